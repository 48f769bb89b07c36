"""Counts how many tokens each known tool takes in a list."""

from collections.abc import Container

import structlog
import trio

from capd.adapters.tokens.counted_texts import Counts, NotCountedError
from capd.core.sessions.surface import renamed
from capd.core.tools.known_tools import KnownTools
from capd_protos.types import WireName

MOST_CATALOGS = 4

log = structlog.get_logger(actor="finder")


class ToolTokens:
    """Counts the tokens of a catalog's definitions once, on the first request."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._tokens: dict[KnownTools, dict[WireName, int]] = {}
        self._lock = trio.Lock()

    async def of_permitted(self, known: KnownTools, barred: Container[WireName]) -> int | None:
        """Return how many tokens a list of all tools except `barred` takes; None if unknown."""
        tokens = await self.of_each(known)
        if tokens is None:
            return None
        return sum(count for wire, count in tokens.items() if wire not in barred)

    async def of_each(self, known: KnownTools) -> dict[WireName, int] | None:
        """Return how many tokens each tool takes in a list; None if they cannot be counted."""
        async with self._lock:
            if known not in self._tokens:
                try:
                    self._tokens[known] = await self._counted(known)
                except NotCountedError as error:
                    log.warning("tools_not_counted", reason=str(error))
                    return None
                # Drop the oldest catalog: it has been replaced, or is a project's.
                if len(self._tokens) > MOST_CATALOGS:
                    del self._tokens[next(iter(self._tokens))]
            return self._tokens[known]

    async def _counted(self, known: KnownTools) -> dict[WireName, int]:
        # In a thread, because each definition is decoded and encoded again.
        listed = await trio.to_thread.run_sync(_as_listed, known)
        counts = await self._counts.counted(list(listed.values()))
        return {wire: counts[definition] for wire, definition in listed.items()}


def _as_listed(known: KnownTools) -> dict[WireName, bytes]:
    return {wire: renamed(source.definition.json, wire) for wire, source in known.sources.items()}
