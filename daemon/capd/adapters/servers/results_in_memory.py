"""Limits the memory that the large results of one server take together.

A server may answer many calls at once with 15 MiB each. Its connection reads on only while its
results in memory take at most 16 MiB together. The rest waits in the server's pipe, so a server
holds up its own calls and nobody else's. If nothing is freed for 10 seconds, the connection reads
on, and writes large lines to files (`spool`) until something is freed.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self

import msgspec
import trio

FREE_BYTES = 5 << 18
"""A result of at most this many bytes (1.25 MiB) is not counted."""
MOST_BYTES = 16 << 20
PATIENCE = 10.0
"""Seconds for which a connection waits for a result to be freed."""


class ResultsInMemory:
    """The large results of one connection that are in memory."""

    def __init__(self, on_freed: Callable[[], None]) -> None:
        """Start without results. `on_freed` is called whenever a counted result is freed."""
        self.size_bytes = 0
        self.is_full = False
        """Whether the results in memory take more than `MOST_BYTES`. The value is stored, because
        the connection reads it before each batch of lines."""
        self._on_freed = on_freed
        self._is_stuck = False
        self._freed = trio.Event()

    def held(self, result: bytes | msgspec.Raw) -> bytes:
        """Return a copy of the large `result`, which is counted while anything refers to the copy.

        This is called in the event loop.
        """
        size_bytes = len(result)
        self._count(size_bytes)
        token = trio.lowlevel.current_trio_token()
        return _Counted(result, partial(_soon, token, self._free, size_bytes))

    async def wait_for_room(self) -> bool:
        """Wait until the results take at most `MOST_BYTES`.

        Return False if no result is freed for `PATIENCE` seconds. Later calls then return False at
        once, until a result is freed.
        """
        while self.is_full:
            self._freed = trio.Event()
            with trio.move_on_after(0 if self._is_stuck else PATIENCE):
                await self._freed.wait()
            self._is_stuck = not self._freed.is_set()
            if self._is_stuck:
                return False
        return True

    def _count(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self.is_full = self.size_bytes > MOST_BYTES

    def _free(self, size_bytes: int) -> None:
        self._count(-size_bytes)
        self._is_stuck = False
        self._freed.set()
        self._on_freed()


class _Counted(bytes):
    """A result that is counted as long as anything refers to it."""

    _on_freed: Callable[[], None]

    def __new__(cls, data: bytes | msgspec.Raw, on_freed: Callable[[], None]) -> Self:
        made = super().__new__(cls, data)
        made._on_freed = on_freed
        return made

    def __del__(self) -> None:
        # A result may be dropped in many places, also in a thread that shortens it.
        self._on_freed()


def _soon(token: trio.lowlevel.TrioToken, free: Callable[[int], None], size_bytes: int) -> None:
    # After the end of the loop nobody waits.
    with suppress(trio.RunFinishedError):
        token.run_sync_soon(free, size_bytes)
