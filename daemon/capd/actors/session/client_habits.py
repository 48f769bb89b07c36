"""Writes down what clients were seen to do a moment after it was seen, for the next daemon."""

from collections.abc import Sequence
from typing import Protocol

import trio

from capd.core.sessions.habits import Habit, Habits

SAVE_PAUSE = 0.5
"""Seconds from a sight to its writing down: sessions of one client come together."""
SAVE_TIMEOUT = 2.0
TRY_AGAIN = 2.0
"""Seconds after which what could not be written, as on a full disk, is written again."""


class HabitStore(Protocol):
    """Where habits are written down."""

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
        self._has_unsaved = trio.Event()

    async def load(self) -> None:
        """Take over what an earlier daemon saw."""
        if self._store is not None:
            self.habits.restore(await self._store.load())

    async def run(self) -> None:
        """Write down what changes, until cancelled, and then what is left."""
        try:
            while True:
                await self._has_unsaved.wait()
                await trio.sleep(SAVE_PAUSE)
                if not await self._save():
                    await trio.sleep(TRY_AGAIN)
                    self._has_unsaved.set()
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(SAVE_TIMEOUT):
                await self._save()

    def _noted(self) -> None:
        self._has_unsaved.set()

    async def _save(self) -> bool:
        if self._store is None or not self._has_unsaved.is_set():
            return True
        self._has_unsaved = trio.Event()
        return await self._store.save(self.habits.written)
