"""Finds the server of a resource by its URI.

URIs are passed on unchanged. A URI is looked up in the servers' lists, and otherwise compared with
their templates (RFC 6570, as far as MCP servers use it). If it is ambiguous, no server is asked,
because a URI may contain something that only its own server should see.
"""

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from posixpath import normpath
from urllib.parse import unquote

from capd_protos.types import ServerIdentity

_EXPRESSION = re.compile(r"\{[^{}]*\}")


def matches(template: str, uri: str) -> bool:
    """Tell whether `uri` contains the literals of `template` in their order.

    Each literal is searched from left to right: linear, unlike a regular expression that a hostile
    server could write. The result may be true for a URI with one slash too many. That costs a
    request to the wrong server and nothing more.
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
    """Tell whether a subscriber to `subscribed` gets news of `uri`: it is the same, or below it."""
    if not uri.startswith(subscribed):
        return False
    rest = uri[len(subscribed) :]
    return not rest or subscribed.endswith("/") or rest[0] in "/?#"


@dataclass(frozen=True, slots=True)
class Owners:
    """The servers that have a resource."""

    servers: list[ServerIdentity]
    """The servers to ask; more than one only if several list the resource."""
    rivals: list[ServerIdentity]
    """The possible servers, if none can be chosen."""


def owners(
    uri: str,
    listed: Mapping[ServerIdentity, Container[str]],
    templates: Mapping[ServerIdentity, Iterable[str]],
    linked: Container[ServerIdentity] = (),
) -> Owners:
    """Return the owners of `uri`: one server must never be asked for another's resource.

    The owner is the server that lists it, or that linked to it in a result. Otherwise it is the one
    whose template fits with more literal characters than all others. `listed` contains every
    candidate. A single candidate is always the owner, because a server need not list everything.
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
    """Return the number of literal characters of the closest template, -1 if none fits."""
    fitting = (each for each in templates if matches(each, uri))
    return max((len(_EXPRESSION.sub("", each)) for each in fitting), default=-1)


def spellings(uri: str) -> tuple[str, ...]:
    """Return a URI as it is written, and as a server may read it if that differs.

    In the second, percent signs are decoded, and `.` and `..` resolved. Code that checks whether a
    URI is inside a folder must check both.
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
