"""When sessions hear that a server's prompts or resources are others (80, B8).

Servers announce entry by entry. Of what comes together sessions hear once, and of a storm once in
two seconds. That the kept list is old is known at once: who lists meanwhile gets the right one.
"""

from collections.abc import Callable
from typing import NoReturn

import trio

FOLLOWED = ("prompts", "resources")
GATHERED_FOR = 0.1
"""Seconds in which changes are one set: those of one loop in a server, not those of two calls."""
PAUSE = 2.0


class ListChanges:
    """The announcements of one instance; `follow` them in a task of its own."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` passes one on, for `prompts` or `resources`."""
        self._tell = tell
        self._noted = {what: trio.Event() for what in FOLLOWED}

    def note(self, what: str) -> None:
        """Note that a list is another one."""
        self._noted[what].set()

    async def follow(self) -> None:
        """Tell of changes, until cancelled."""
        async with trio.open_nursery() as nursery:
            for what in FOLLOWED:
                nursery.start_soon(self._follow, what)

    async def _follow(self, what: str) -> NoReturn:
        while True:
            await self._noted[what].wait()
            await trio.sleep(GATHERED_FOR)
            self._noted[what] = trio.Event()
            self._tell(what)
            await trio.sleep(PAUSE)
