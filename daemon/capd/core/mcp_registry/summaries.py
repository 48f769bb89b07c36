"""The compact copy of a registry: one short summary for each server, of its latest version.

The number of entries and the length of each text are limited, and so is the size on disk. A server
that was deleted from the registry is removed: answers to `updated_since` list deleted servers.
"""

from collections.abc import Iterable, Sequence

import msgspec

from capd.core.mcp_registry.server_json import (
    LONGEST_DESCRIPTION,
    Entry,
    KeyValue,
    Package,
    Status,
    Transport,
)

VERSION = 1
MOST_ENTRIES = 50_000
MOST_BYTES = 64 << 20
"""The most bytes of one copy on disk."""
_MOST_NEEDS = 8
_LONGEST_WORD = 120


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """One server, as `capd find` prints it."""

    name: str
    version: str
    title: str = ""
    description: str = ""
    status: Status = "active"
    updated_at: str = ""
    runs: tuple[str, ...] = ()
    """How the server can be run: `npm`, `pypi`, `oci`, or the host of its address."""
    needs: tuple[str, ...] = ()
    """The required inputs without a default of its first package or remote, secrets included."""

    @property
    def namespace(self) -> str:
        """The publisher, as verified by the registry."""
        return self.name.partition("/")[0]


class Copy(msgspec.Struct):
    """The saved summaries of one registry's list, and where the next refresh has to begin."""

    url: str
    version: int = VERSION
    synced_at: float = 0.0
    """When the last complete refresh began, in seconds since the epoch; 0 for never."""
    since: str = ""
    """When the last complete refresh began, as the registry expects it in `updated_since`."""
    etag: str = ""
    """The HTTP ETag of the list, if it has a single page."""
    cursor: str = ""
    """The cursor from which an interrupted first refresh continues."""
    entries: dict[str, Summary] = {}


def summary(entry: Entry) -> Summary:
    """Return the summary of an entry, with every text cut to its limit."""
    server = entry.server
    packages, remotes = server.packages or [], server.remotes or []
    runs = [each.registry_type.lower()[:_LONGEST_WORD] for each in packages]
    runs += [_host(each.url or "") for each in remotes]
    ways: list[Package | Transport] = [*packages, *remotes]
    return Summary(
        server.name,
        server.version,
        _line(server.title or "")[:_LONGEST_WORD],
        _line(server.description or "")[:LONGEST_DESCRIPTION],
        entry.status,
        entry.updated_at[:_LONGEST_WORD],
        tuple(dict.fromkeys(runs))[:_MOST_NEEDS],
        _needs(ways[0]) if ways else (),
    )


def updated(copy: Copy, entries: Iterable[Entry]) -> int:
    """Add, replace or remove `entries` in the saved copy of a registry.

    Return how many did not fit into it.
    """
    left_out = 0
    for entry in entries:
        name = entry.server.name
        if entry.status == "deleted":
            copy.entries.pop(name, None)
        elif name in copy.entries or len(copy.entries) < MOST_ENTRIES:
            copy.entries[name] = summary(entry)
        else:
            left_out += 1
    return left_out


def _needs(way: Package | Transport) -> tuple[str, ...]:
    inputs: Sequence[KeyValue] = (
        way.environment_variables if isinstance(way, Package) else way.headers
    ) or ()
    named = [each.name for each in inputs if each.is_required and each.default is None]
    if isinstance(way, Package):
        named += [
            (each.value_hint or each.name or "an argument").lstrip("-")
            for each in way.package_arguments or ()
            if each.is_required and each.default is None and each.value is None
        ]
    return tuple(each[:_LONGEST_WORD] for each in named)[:_MOST_NEEDS]


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0][:_LONGEST_WORD] or "an address"


def _line(text: str) -> str:
    return " ".join(text.split())
