"""Limits the memory for the HTTP bodies that one connection reads at the same time.

A server decides how long each of its answers is, and a client how many it requests at once. So a
connection has 16 MiB for the bodies that it is reading. Beyond that, only one body at a time may
grow: the one that has "the place". Any other body that needs the place is read no further until
the body with the place was passed on. A body of up to 1 MiB never waits, so a slow large answer
delays no small one.
"""

import trio

FREE_BYTES = 1 << 20
"""A body of at most this many bytes is not counted, and never waits."""
SMALL_BYTES = 16 << 20
"""The most bytes of all counted bodies of a connection together, without the one that has the
place."""


class LargeBodies:
    """The HTTP bodies of one connection that are being read, and the memory that they take."""

    def __init__(self) -> None:
        self.place = trio.Semaphore(1, max_value=1)
        self.size_bytes = 0
        """The bytes of the counted bodies: those over 1 MiB, without the one that has the place."""


class LargeBody:
    """One HTTP body that is being read."""

    def __init__(self, bodies: LargeBodies) -> None:
        self._bodies = bodies
        self._counted_bytes = 0
        self._has_place = False

    async def note(self, size_bytes: int) -> None:
        """Record how many bytes of this body are in memory.

        If the counted bodies of the connection exceed `SMALL_BYTES`, wait until this body may grow.
        """
        if self._has_place:
            return
        self._count(size_bytes if size_bytes > FREE_BYTES else 0)
        if self._counted_bytes and self._bodies.size_bytes > SMALL_BYTES:
            await self._bodies.place.acquire()
            self._has_place = True
            self._count(0)

    def leave(self) -> None:
        """Stop counting the body, because it was passed on or given up."""
        self._count(0)
        if self._has_place:
            self._has_place = False
            self._bodies.place.release()

    def _count(self, size_bytes: int) -> None:
        self._bodies.size_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes
