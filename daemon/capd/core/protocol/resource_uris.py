"""Which server a resource belongs to, by its URI.

URIs are passed on as they are, so a URI is found in what servers list, else in what their
templates can make (RFC 6570, as far as MCP servers use it). Where nothing decides nobody is asked:
a URI may hold what is for its own server alone.
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Owners:
    """Who has a resource."""

    servers: list[ServerIdentity]
    """Those that it may be asked of; more than one only where several list it."""
    rivals: list[ServerIdentity]
    """Where there is nobody: the servers between which nothing decides."""


def owners(
    uri: str,
    listed: Mapping[ServerIdentity, Container[str]],
    templates: Mapping[ServerIdentity, Iterable[str]],
    linked: Container[ServerIdentity] = (),
) -> Owners:
    """Return who has `uri`: one server must not be asked for what is another's.

    Who lists it has it, or who linked to it in a result. Else it is whose template fits with more
    literal characters than anybody else's. `listed` has every candidate: where there is only one,
    it is as with a client of that server alone, which need not list everything.
    """
    listing = [server for server, uris in listed.items() if uri in uris]
    if listing:
        return Owners(listing, [])
    linking = [server for server in listed if server in linked]
    if linking:
        return Owners(linking, []) if len(linking) == 1 else Owners([], linking)
    fits = {server: _fit(templates.get(server, ()), uri) for server in listed}
    best = max(fits.values(), default=-1)
    if best < 0:
        return Owners(list(listed), []) if len(listed) == 1 else Owners([], [])
    fitting = [server for server, fit in fits.items() if fit == best]
    return Owners(fitting, []) if len(fitting) == 1 else Owners([], fitting)


def _fit(templates: Iterable[str], uri: str) -> int:
    """Return how many literal characters the closest template has, -1 where none fits."""
    fitting = (each for each in templates if matches(each, uri))
    return max((len(_EXPRESSION.sub("", each)) for each in fitting), default=-1)


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
