"""Parks the connections of idle clients: one task waits for the next line of all of them.

    served ──nothing for 10 to 20 s──> parked ──a line, or something to write──> served

A connection that is served has a task, a nursery and a chain of ten coroutines: 9 KB, of which a
client that is silent has no use. A parked one has its socket in a shared epoll object. It is still
open: a notification is written at once, and only a client that does not read brings the task back.
Systems without epoll do not park.
"""

from typing import Protocol

import trio

from capd.adapters import platform

QUIET = 10.0
"""Seconds between two looks. A connection is parked at the second in a row that finds it quiet."""


class ParkableConnection(Protocol):
    """A client's connection, as the parking sees it."""

    def park_if_idle(self) -> None:
        """Stop being served if nothing has happened since the last call."""
        ...

    def wake(self) -> None:
        """Be served again."""
        ...

    def abandon(self) -> None:
        """Close the socket at once."""
        ...


class Parking:
    """Finds connections that are idle, and wakes those that are parked when a line comes."""

    def __init__(self) -> None:
        self._ready = platform.readiness_queue()
        self._parked: dict[int, ParkableConnection] = {}
        self._served: set[ParkableConnection] = set()
        self._any_served = trio.Event()

    def __len__(self) -> int:
        """Return how many connections are parked."""
        return len(self._parked)

    def serve(self, connection: ParkableConnection) -> None:
        """Note that a connection is served, so that it is parked once it is idle."""
        self._served.add(connection)
        self._any_served.set()

    def leave(self, connection: ParkableConnection) -> None:
        """Note that a connection is over."""
        self._served.discard(connection)

    def park(self, connection: ParkableConnection, descriptor: int) -> None:
        """Wake `connection` as soon as its socket `descriptor` can be read or is broken."""
        assert self._ready is not None, "nothing is parked without a queue"
        self._served.discard(connection)
        self._parked[descriptor] = connection
        self._ready.register(descriptor, platform.READABLE)

    def unpark(self, descriptor: int) -> None:
        """Wait no longer for a socket. It must still be open."""
        assert self._ready is not None, "nothing is parked without a queue"
        del self._parked[descriptor]
        self._ready.unregister(descriptor)

    async def run(self) -> None:
        """Park and wake connections until cancelled."""
        if self._ready is None:
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wake_ready)
            while True:
                if not self._served:
                    self._any_served = trio.Event()
                    await self._any_served.wait()
                await trio.sleep(QUIET)
                for each in list(self._served):
                    each.park_if_idle()

    async def _wake_ready(self) -> None:
        assert self._ready is not None, "checked by the caller"
        while True:
            await trio.lowlevel.wait_readable(self._ready.fileno())
            for descriptor, _ in self._ready.poll(0):
                self._parked[descriptor].wake()

    def close(self) -> None:
        """Close every parked connection, so that its client connects again."""
        for descriptor, each in list(self._parked.items()):
            self.unpark(descriptor)
            each.abandon()
        if self._ready is not None:
            self._ready.close()
