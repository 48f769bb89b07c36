"""Writes down what clients were seen to do a moment after it was seen, for the next daemon."""

from collections.abc import Sequence
from typing import Protocol

from capd.core.sessions.habits import Habit, Habits
from capd.runtime.saver import Saver, not_saved

SAVE_PAUSE = 0.5
"""Seconds from a sight to its writing down: sessions of one client come together."""


class HabitStore(Protocol):
    """Where habits are written down."""

    @property
    def problem(self) -> str:
        """Why what an earlier daemon wrote is not used; empty where it is."""
        ...

    async def load(self) -> list[Habit]:
        """Return what was written down last."""
        ...

    async def save(self, habits: Sequence[Habit]) -> bool:
        """Write it down; tell whether it is kept."""
        ...


class HabitSaver:
    """The habits of one daemon's clients; without a store they end with it."""

    def __init__(self, store: HabitStore | None) -> None:
        self.habits = Habits(self._noted)
        self._store = store
        self._saver = Saver(self._save, pause=SAVE_PAUSE)

    @property
    def problem(self) -> str:
        """Why the next daemon does not have what this one saw, or this one not what one before."""
        if self._saver.refused:
            return not_saved("what clients do with their lists")
        return self._store.problem if self._store is not None else ""

    async def load(self) -> None:
        """Take over what an earlier daemon saw."""
        if self._store is not None:
            self.habits.restore(await self._store.load())

    async def run(self) -> None:
        """Write down what changes, until cancelled, and then what is left."""
        await self._saver.run()

    def _noted(self) -> None:
        if self._store is not None:
            self._saver.changed("habits")

    async def _save(self, _: str) -> bool:
        return self._store is None or await self._store.save(self.habits.written)
