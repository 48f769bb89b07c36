"""Corrects the names of capabilities and servers in a new memory.

Memories are matched by exact names, so a name that a person typed is replaced by its exact
spelling. A name that does not exist is kept and reported: it may be installed later.
"""

from collections.abc import Iterable

from capd.core.globs import matches
from capd_protos.naming import Named, NameTable, advice
from capd_protos.types import CapabilityId, ServerName

_GLOB = frozenset("*?[")


class Subjects:
    """The names of all installed capabilities and servers, which memories can be about."""

    def __init__(self, capabilities: Iterable[CapabilityId], servers: Iterable[ServerName]) -> None:
        ids = list(capabilities)
        self._names = NameTable(each.name for each in ids)
        self._pinned = NameTable(str(each) for each in ids)
        self._servers = list(dict.fromkeys(servers))
        self._server_names = NameTable(self._servers)

    def capability(self, wanted: str) -> str:
        """Return the exact name of the capability that `wanted` means, or else `wanted`."""
        found = self._book(wanted).find(wanted)
        return found.name if isinstance(found, Named) else wanted

    def tool(self, wanted: str) -> str:
        """Return `wanted`, a `server:tool`, with its server's exact name, if there is one."""
        server, colon, tool = wanted.partition(":")
        if not colon or _GLOB & set(server):
            return wanted
        found = self._server_names.find(server)
        return f"{found.name}:{tool}" if isinstance(found, Named) else wanted

    def unmatched(self, capability: str, tool: str) -> str:
        """Return why a memory about `capability` or `tool` is never delivered.

        The text is empty if the capability and the server of `tool` exist. Whether the server has
        that tool is not checked.
        """
        if capability and (problem := _missing("capability", capability, self._book(capability))):
            return problem
        server, colon, _ = tool.partition(":")
        if not colon or any(matches(each, server) for each in self._servers):
            return ""
        return _missing("server", server, self._server_names)

    def _book(self, wanted: str) -> NameTable:
        return self._pinned if "/" in wanted else self._names


def _missing(kind: str, wanted: str, book: NameTable) -> str:
    found = book.find(wanted)
    if isinstance(found, Named):
        return (
            ""
            if found.name == wanted
            else f"it is never told: {kind} {found.name!r} is not named {wanted!r}"
        )
    hint = advice(found)
    return f"it is never told: no {kind} is named {wanted!r}" + (f". {hint}" if hint else "")
