"""Finds the server of a resource by its URI.

capd passes URIs on unchanged. It looks a URI up in the servers' resource lists, and then compares
it with their templates (RFC 6570, as far as MCP servers use it). If several servers list the URI,
any of them may be asked. If none lists it and it is unclear which one has it, none is asked,
because a URI may contain something that only its own server should see.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from posixpath import normpath
from urllib.parse import unquote

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import ServerIdentity

_EXPRESSION = lazy_pattern(r"\{[^{}]*\}")


def matches(template: str, uri: str) -> bool:
    """Tell whether `uri` contains the literals of `template` in their order.

    The literals are searched from left to right, in linear time. A regular expression made of a
    hostile server's template might not be linear. The result may be true for a URI with one slash
    too many; then the server answers that it has no such resource.
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
    """Tell whether a change of `uri` concerns a subscriber to the URI `subscribed`.

    It does if both are the same, or if `uri` is below `subscribed`.
    """
    if not uri.startswith(subscribed):
        return False
    rest = uri[len(subscribed) :]
    return not rest or subscribed.endswith("/") or rest[0] in "/?#"


@dataclass(frozen=True, slots=True)
class Owners:
    """The servers to ask for a resource, or the possible ones if it is unclear which one has it."""

    servers: list[ServerIdentity]
    """The servers to ask; more than one only if several list the resource."""
    rivals: list[ServerIdentity]
    """The servers that may have the resource, if it is not clear which one has it."""


def owners(
    uri: str,
    listed: Mapping[ServerIdentity, Container[str]],
    templates: Mapping[ServerIdentity, Iterable[str]],
    linked: Container[ServerIdentity] = (),
) -> Owners:
    """Return which servers to ask for `uri`. A server is never asked for another one's resource.

    The servers that list `uri` are asked. If none does, a server in `linked`, which linked to `uri`
    in a result, is asked, or else the server whose template fits with the most literal characters.
    `listed` has the listed URIs of every candidate, `templates` their templates. A single candidate
    is always asked, because a server need not list everything.
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
    """Return the most literal characters of any template that fits `uri`; -1 if none fits."""
    fitting = (each for each in templates if matches(each, uri))
    return max((len(_EXPRESSION.sub("", each)) for each in fitting), default=-1)


def spellings(uri: str) -> tuple[str, ...]:
    """Return a URI as it is written, then the form that a server may decode it to, if it differs.

    In the second form percent-encoding is decoded, and `.` and `..` are resolved. A rule about a
    URI must be checked against both forms.
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
