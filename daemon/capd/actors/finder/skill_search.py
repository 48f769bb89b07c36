"""Finds skills by words and by meaning.

A skill is searched like a tool: by name, description and capabilities. Skills have an index of
their own, so that they do not change the scores of tools.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from capd.actors.finder.tool_vectors import ToolVectors
from capd.core.tools.tool_search import ToolIndex
from capd.core.tools.tool_text import Tool
from capd.runtime.bus import Bus
from capd_protos import finder as messages
from capd_protos import registry
from capd_protos.types import ToolName, WireName

if TYPE_CHECKING:
    from capd.core.tools.tool_search import Vectors

MOST_BESIDE_TOOLS = 3


class SkillFinder:
    """Searches the skills of the catalog: their index, and the vectors of their texts."""

    def __init__(self, bus: Bus, cache_file: Path) -> None:
        self._vectors = ToolVectors(bus, cache_file, announces=False)
        self._index = ToolIndex()
        self._entries: dict[WireName, registry.SkillEntry] = {}

    async def follow(self) -> None:
        """Compute missing vectors whenever the set of skills changes, until cancelled."""
        await self._vectors.follow()

    async def take(self, skills: list[registry.SkillEntry]) -> None:
        """Replace the skills that are searched."""
        entries = {entry.prompt: entry for entry in skills}
        if entries == self._entries:
            return
        self._entries = entries
        tools = [
            Tool(
                entry.prompt,
                ToolName(entry.skill.name),
                "",
                description=entry.skill.description,
                capabilities=entry.skill.capabilities,
            )
            for entry in skills
        ]
        self._index = ToolIndex(tools)
        if self._vectors.is_in_use:
            await self.prepare()
        self._vectors.wanted(self._index)

    async def use(self) -> None:
        """Prepare for searches, now and whenever the set of skills changes."""
        self._vectors.use()
        await self.prepare()

    async def prepare(self) -> None:
        """Index the words of the skills, unless that is done."""
        if not self._index.is_prepared:
            await trio.to_thread.run_sync(self._index.prepare)

    @property
    def count(self) -> int:
        """How many skills there are."""
        return len(self._entries)

    def found(self, words: str, limit: int, vector: "Vectors | None") -> list[messages.SkillHit]:
        """Return at most `limit` skills for the query `words`, best first.

        `vector` is the vector of the query; None to compare words alone.
        """
        if not self._index.tools:
            return []
        hits = self._index.ranked(words, limit, vector).hits
        entries = ((self._entries[hit.tool.wire_name], hit.score) for hit in hits)
        return [messages.SkillHit(entry.prompt, entry.skill, score) for entry, score in entries]

    @property
    def has_any(self) -> bool:
        """Whether there are any skills."""
        return bool(self._index.tools)
