"""A share of the event loop for work on what a stranger wrote.

Such work is done in small steps with `give_way` between them. After a few milliseconds of it the
others get as long: however much one server lists or says, it takes half of the loop at most.
"""

import time

import trio

_SLICE = 0.004
"""Seconds of this thread after which others have their turn."""


class FairShare:
    """The share of one piece of work; one that was idle calls `resume` before it goes on."""

    def __init__(self) -> None:
        self._since = time.thread_time()

    def resume(self) -> None:
        """Begin to count the time of work."""
        self._since = time.thread_time()

    async def give_way(self) -> None:
        """Let others run for as long as the work since the last time took, if that was long."""
        spent = time.thread_time() - self._since
        if spent >= _SLICE:
            await trio.sleep(spent)
            self._since = time.thread_time()
