"""Saves, for the next daemon, what was observed about clients, shortly after each change."""

from collections.abc import Sequence
from typing import Protocol

from capd.core.sessions.habits import Habit, Habits
from capd.runtime.saver import Saver, not_saved

SAVE_PAUSE = 0.5
"""Seconds from an observation to its save. Several sessions of one client often start together."""


class HabitStore(Protocol):
    """Saves and loads what was observed about clients, such as whether they list tools again."""

    @property
    def problem(self) -> str:
        """Why the saved observations cannot be used; empty if they can."""
        ...

    async def load(self) -> Sequence[Habit]:
        """Return what was observed about clients, as it was saved."""
        ...

    async def save(self, habits: Sequence[Habit], /) -> bool:
        """Save the observations; return whether that worked."""
        ...


class HabitSaver:
    """What was observed about all clients. It is saved after each change.

    Without a store the observations are lost when the daemon ends.
    """

    def __init__(self, store: HabitStore | None) -> None:
        self.habits = Habits(self._noted)
        self._store = store
        self._saver = Saver(self._save, pause=SAVE_PAUSE)

    @property
    def problem(self) -> str:
        """Why observations could not be loaded, or will be lost at a restart; empty if neither."""
        if self._saver.refused:
            return not_saved("what clients do with their lists")
        return self._store.problem if self._store is not None else ""

    async def load(self) -> None:
        """Load what an earlier daemon observed about clients."""
        if self._store is not None:
            self.habits.restore(await self._store.load())

    async def run(self) -> None:
        """Save new observations about clients until cancelled, and once more at the end."""
        await self._saver.run()

    def _noted(self) -> None:
        if self._store is not None:
            self._saver.changed("habits")

    async def _save(self, _: str) -> bool:
        return self._store is None or await self._store.save(self.habits.written)
