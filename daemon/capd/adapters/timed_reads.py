"""Reads paths that may never answer, such as a project on a network file system that hangs.

A thread that waits for such a path cannot be ended. So each path has at most one thread, and a
second caller waits until that thread is done. A path that hangs keeps only that one thread busy.
"""

from collections.abc import Callable
from typing import TypeVar

import trio

from capd.core.errors import CapdError

LONGEST_WAIT = 2.0
"""Seconds to wait for one project. Opening a session may take at most five."""
AT_ONCE = 32
"""How many paths are read at the same time; a reload reads hundreds."""

T = TypeVar("T")


class NoAnswerError(CapdError):
    """A path did not answer in time; the text says which."""


class TimedReads:
    """Runs reads in threads, at most one for each path."""

    def __init__(self, longest: float = LONGEST_WAIT) -> None:
        """Start without a read in progress; a caller waits for at most `longest` seconds."""
        self.longest = longest
        self._waited_for = trio.CapacityLimiter(AT_ONCE)
        self._limiters: dict[str, trio.CapacityLimiter] = {}

    async def of(self, place: str, read: Callable[[], T]) -> T:
        """Call `read`, which reads the path `place`, in a thread; return its result.

        If the caller gives up, `read` may still run, and a later caller for `place` waits for it.

        Raises:
            NoAnswerError: it took too long.
        """
        async with self._waited_for:
            return await self._answer(place, read)

    async def _answer(self, place: str, read: Callable[[], T]) -> T:
        limiter = self._limiters.setdefault(place, trio.CapacityLimiter(1))
        try:
            with trio.fail_after(self.longest):
                return await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=limiter)
        except trio.TooSlowError:
            reason = f"{place} did not answer within {self.longest:g} s"
            raise NoAnswerError(reason) from None
        finally:
            use = limiter.statistics()
            if not use.borrowed_tokens and not use.tasks_waiting:
                self._limiters.pop(place, None)
