"""Saves what was observed about clients and their lists, in one file of the state folder.

An unusable file is set aside, and a new one is started: everything can be observed again.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from capd.adapters.state_file import versioned_file
from capd.core.sessions.habits import Habit

MOST_BYTES = 1 << 20
VERSION = 1


class _Document(msgspec.Struct, frozen=True):
    version: int
    clients: list[Habit]


class HabitFile:
    """The file of one daemon."""

    def __init__(self, path: Path) -> None:
        self._file = versioned_file(path, _Document, version=VERSION, most_bytes=MOST_BYTES)

    @property
    def problem(self) -> str:
        """Why an earlier daemon's file cannot be used; empty if it can."""
        return self._file.problem

    async def load(self) -> list[Habit]:
        """Return the saved observations."""
        document = await self._file.load()
        return document.clients if document is not None else []

    async def save(self, habits: Sequence[Habit]) -> bool:
        """Save the observations; return whether that worked."""
        return await self._file.save(_Document(VERSION, list(habits)))
