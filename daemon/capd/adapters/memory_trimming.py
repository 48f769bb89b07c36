"""Gives freed memory back to the operating system.

The objects of an ended session are freed, but the C library keeps the memory. capd asks it to
return that memory once no session has ended for a moment. So an editor that closes many sessions at
once causes one pass over the heap, not one for each. The same is done after calls, once the daemon
is quiet again: a few results of a megabyte leave 7 MB behind.
"""

import gc
import time
from collections.abc import Callable

import trio

from capd.adapters import platform

QUIET = 2.0
"""Seconds without the end of another session before memory is returned."""
LONGEST_WAIT = 30.0
"""Seconds after which memory is returned although sessions keep ending."""
LOOK = 5.0
"""Seconds between two looks at how much the daemon has worked."""
STILL = 0.05
"""The daemon is quiet if it used at most this many CPU seconds within `LOOK`."""
WORKED = 0.3
"""CPU seconds of work after which memory is returned again. Returning takes a few milliseconds."""


class MemoryTrimmer:
    """Returns memory to the system after sessions have ended."""

    def __init__(
        self, is_idle: Callable[[], bool], give_back: Callable[[], None] = platform.trim_memory
    ) -> None:
        """Create it. `give_back` returns the memory.

        If `is_idle` returns True, because no session is open, garbage is collected first.
        """
        self._is_idle = is_idle
        self._give_back = give_back
        self._ended = trio.Event()

    def ended(self) -> None:
        """Note that a session has ended."""
        self._ended.set()

    async def run(self) -> None:
        """Until cancelled, return memory to the system after sessions have ended."""
        while True:
            await self._ended.wait()
            with trio.move_on_after(LONGEST_WAIT):
                while self._ended.is_set():
                    self._ended = trio.Event()
                    with trio.move_on_after(QUIET):
                        await self._ended.wait()
            self._ended = trio.Event()
            if self._is_idle():
                # Sessions are built without reference cycles. This collects a cycle that was
                # overlooked, at a time when a collection delays nobody.
                gc.collect()
            # In a thread: it takes milliseconds, and does not hold the interpreter's lock.
            await trio.to_thread.run_sync(self._give_back)


async def return_after_work(
    give_back: Callable[[], None] = platform.trim_memory,
    cpu_seconds: Callable[[], float] = time.process_time,
) -> None:
    """Until cancelled, return memory to the system whenever the daemon is quiet after work.

    `cpu_seconds` returns the CPU time that the daemon has used so far.
    """
    returned_at = last = cpu_seconds()
    while True:
        await trio.sleep(LOOK)
        now = cpu_seconds()
        if now - last <= STILL and now - returned_at >= WORKED:
            await trio.to_thread.run_sync(give_back)
            returned_at = cpu_seconds()
        last = now
