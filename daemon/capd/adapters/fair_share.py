"""Limits the share of the event loop that work on other people's texts may take.

Such work is done in small steps, with `give_way` between them. After a few milliseconds of work,
other tasks get the same time. So work on one server's lists and messages takes at most half of the
loop.
"""

import time

import trio

_SLICE = 0.004
"""Seconds of this thread's time after which other tasks get a turn."""


class FairShare:
    """Measures one piece of work, and gives other tasks of the event loop as much time.

    Call `resume` after a pause.
    """

    def __init__(self) -> None:
        self._since = time.thread_time()

    def resume(self) -> None:
        """Start measuring again, so that the time before does not count."""
        self._since = time.thread_time()

    async def give_way(self) -> None:
        """Let other tasks run for as long as the work took so far, if that was 4 ms or more."""
        spent = time.thread_time() - self._since
        if spent >= _SLICE:
            await trio.sleep(spent)
            self._since = time.thread_time()
