"""Which server a resource belongs to, by its URI.

URIs are passed on as they are, so a URI is found in what servers list, else in what their
templates can make (RFC 6570, as far as MCP servers use it).
"""

import re
from collections.abc import Mapping, Sequence
from posixpath import normpath
from urllib.parse import unquote

from capd_protos.types import ServerIdentity

_EXPRESSION = re.compile(r"\{[^{}]*\}")


def matches(template: str, uri: str) -> bool:
    """Tell whether `uri` has the literals of `template` in their order.

    Left to right, each literal at its first place: linear, where a regular expression of a
    hostile server's making would not be. It may say yes to a slash too many, which costs a
    question to the wrong server and no more.
    """
    first, *others = _EXPRESSION.split(template)
    if not others:
        return template == uri
    *middle, last = others
    if not uri.startswith(first) or not uri.endswith(last):
        return False
    at, end = len(first), len(uri) - len(last)
    for literal in middle:
        found = uri.find(literal, at, max(at, end))
        if found < 0:
            return False
        at = found + len(literal)
    return at <= end


def is_within(uri: str, subscribed: str) -> bool:
    """Tell whether news of `uri` are for who subscribed to `subscribed`: a part of it counts."""
    if not uri.startswith(subscribed):
        return False
    rest = uri[len(subscribed) :]
    return not rest or subscribed.endswith("/") or rest[0] in "/?#"


def owners(
    uri: str,
    listed: Mapping[ServerIdentity, Sequence[str]],
    templates: Mapping[ServerIdentity, Sequence[str]],
) -> list[ServerIdentity]:
    """Return the servers that may have `uri`, the likeliest first.

    `listed` has every candidate. A server that lists it is before one whose template fits;
    where nothing fits any candidate may have it, for not everything is listed.
    """
    listing = [server for server, uris in listed.items() if uri in uris]
    fitting = [
        server
        for server in listed
        if any(matches(template, uri) for template in templates.get(server, ()))
    ]
    found = list(dict.fromkeys([*listing, *fitting]))
    return found or list(listed)


def spellings(uri: str) -> tuple[str, ...]:
    """Return a URI as it is written, and as a server may read it where that is another text.

    Percent signs are decoded, `.` and `..` resolved: who asks whether a URI is within a folder
    has to ask of both.
    """
    plain = unquote(uri)
    scheme, colon, rest = plain.partition(":")
    host, path = _split_host(rest) if colon else ("", plain)
    is_plain = not {".", "..", ""} & set(path.strip("/").split("/")) or path in {"", "/"}
    resolved = path if is_plain else normpath(path) + "/" * path.endswith("/")
    read = f"{scheme}{colon}{host}{resolved}" if colon else resolved
    return (uri,) if read == uri else (uri, read)


def _split_host(rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        return "", rest
    host, slash, path = rest[2:].partition("/")
    return f"//{host}", slash + path
