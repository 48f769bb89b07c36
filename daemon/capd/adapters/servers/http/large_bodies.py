"""How much memory the bodies that one connection reads take together.

A server decides how long each of its answers is, and a client how many it asks for at once. So a
connection has 16 MiB for the bodies that it reads at the same time, and one place for a body that
goes on beyond them. A body that needs the place while another one has it is read no further until
that one was passed on. A body of up to 1 MiB never waits, so a slow large answer holds up no usual
one.
"""

import trio

FREE_BYTES = 1 << 20
"""A body of at most so many bytes is not counted, and never waits."""
SMALL_BYTES = 16 << 20
"""What all counted bodies of a connection may have together, without the one that has the place."""


class LargeBodies:
    """The bodies of one connection that are being read."""

    def __init__(self) -> None:
        self.place = trio.Semaphore(1, max_value=1)
        self.size_bytes = 0
        """How many bytes those bodies hold that are longer than 1 MiB and do not have the place."""


class LargeBody:
    """One body that is being read."""

    def __init__(self, bodies: LargeBodies) -> None:
        self._bodies = bodies
        self._counted_bytes = 0
        self._has_place = False

    async def note(self, size_bytes: int) -> None:
        """Record how many bytes of this body are in memory.

        If the counted bodies of the connection exceed `SMALL_BYTES`, wait until this one may.
        """
        if self._has_place:
            return
        self._count(size_bytes if size_bytes > FREE_BYTES else 0)
        if self._counted_bytes and self._bodies.size_bytes > SMALL_BYTES:
            await self._bodies.place.acquire()
            self._has_place = True
            self._count(0)

    def leave(self) -> None:
        """Forget the body: it was passed on, or given up."""
        self._count(0)
        if self._has_place:
            self._has_place = False
            self._bodies.place.release()

    def _count(self, size_bytes: int) -> None:
        self._bodies.size_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes
