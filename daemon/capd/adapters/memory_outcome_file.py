"""Saves the effects of memories, in one file of the state folder.

An unusable file is set aside, and a new one is started.
"""

from pathlib import Path

import msgspec

from capd.adapters.state_file import versioned_file
from capd.core.memories.outcomes import Outcome, Outcomes

MOST_BYTES = 4 << 20
VERSION = 1


class _Document(msgspec.Struct, frozen=True):
    version: int
    memories: dict[str, Outcome]


class MemoryOutcomeFile:
    """The file of one daemon."""

    def __init__(self, path: Path) -> None:
        self._file = versioned_file(path, _Document, version=VERSION, most_bytes=MOST_BYTES)

    @property
    def problem(self) -> str:
        """Why an earlier daemon's file cannot be used; empty if it can."""
        return self._file.problem

    async def load(self) -> Outcomes:
        """Return the saved effects."""
        document = await self._file.load()
        return Outcomes(dict(document.memories)) if document is not None else Outcomes()

    async def save(self, outcomes: Outcomes) -> bool:
        """Save the effects; return whether that worked."""
        return await self._file.save(_Document(VERSION, dict(outcomes.by_name)))
