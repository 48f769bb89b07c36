"""Projects whose files never answer, like those on a hung network file system."""

import threading
from collections.abc import Callable
from typing import TypeVar

from capd.adapters.timed_reads import TimedReads

T = TypeVar("T")


class HungReads(TimedReads):
    """Reads that hang in the places that are named; all others are waited for without an end."""

    def __init__(self) -> None:
        super().__init__(float("inf"))
        self.hung: set[str] = set()
        self._hanging = TimedReads(0.01)
        self._answers = threading.Event()

    async def of(self, place: str, read: Callable[[], T]) -> T:
        """Return what `read` returns, unless `place` hangs."""
        if place not in self.hung:
            return await super().of(place, read)

        def slow() -> T:
            self._answers.wait()
            return read()

        return await self._hanging.of(place, slow)

    def answer(self) -> None:
        """Have every place answer."""
        self.hung.clear()
        self._answers.set()
