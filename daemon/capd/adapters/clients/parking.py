"""Parks the connections of idle clients: one task waits for the next line of all of them.

           ┌──────────── a line, or something to write ─────────────┐
           v                                                        │
    NEW ─> SERVED ──a look──> QUIET ──a look──> LEAVING ────────> PARKED
             ^──── a line ──────┘

    each of them ──close──> CLOSING ──> OVER

A *look* checks every few seconds whether something has come from the client since the last one.

A connection that is served has a task, a nursery and a chain of ten coroutines: 9 KB, which a
silent client does not need. A parked connection only has its socket in a shared epoll object. It is
still open: capd writes a notification at once, and needs a task only if the client does not read.
Systems without epoll do not park.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from enum import Enum, auto

import trio

from capd.adapters import platform
from capd.adapters.clients.line_sinks import LineSink, ParkingSink
from capd.adapters.stdio_frames import Frame, FrameReader, Oversized

QUIET = 10.0
"""Seconds between two looks. A connection is parked if two looks in a row find it quiet."""
QUIET_AT_FIRST = 0.5
"""Seconds between two looks at a connection that was never parked. Most clients are silent after
their handshake, so of many that open together only a few have a task at the same time."""
_LOOKS_AT_FIRST = 20
"""The number of looks that are `QUIET_AT_FIRST` apart. If the connection is not parked by then, the
later looks are `QUIET` apart."""


class Phase(Enum):
    """What a connection is doing; the module docstring draws the transitions."""

    NEW = auto()
    """Its session starts. No line has been read."""
    SERVED = auto()
    """A task reads its lines."""
    QUIET = auto()
    """As `SERVED`, but no line has come since the last look."""
    LEAVING = auto()
    """Its task ends, so that it can be parked."""
    PARKED = auto()
    """It has no task, and waits for its client's next line."""
    CLOSING = auto()
    """Its client is told why it is closed."""
    OVER = auto()
    """It is ending, or has ended."""


class ParkableConnection(ABC):
    """A connection that has a task while its client is active, and is parked while it is not.

    Its owner calls `run`, and then has to call `park` if `is_idle` is set.
    """

    # Slots, because every idle session has such an object.
    __slots__ = ("__weakref__", "_lines", "_phase", "_reading", "_scope", "_sink", "_spot")

    def __init__(self, sink: LineSink, lines: AsyncIterator[Frame | Oversized]) -> None:
        self._sink = sink
        self._lines = lines
        self._phase = Phase.NEW
        # Around the connection's task; None while it has none.
        self._scope: trio.CancelScope | None = trio.CancelScope()
        # Around each wait for lines.
        self._reading: trio.CancelScope | None = None
        # Where the connection is parked, its descriptor there, and what serves it again.
        self._spot: tuple[Parking, int, Callable[[], None]] | None = None

    @property
    @abstractmethod
    def _is_occupied(self) -> bool:
        """Whether something is in progress that needs the connection's task."""

    @abstractmethod
    def _drop_task_parts(self) -> None:
        """Drop the objects that a connection without a task does not need."""

    @abstractmethod
    def _fail_questions(self) -> None:
        """Fail the requests of servers that wait for this client, because the client is gone."""

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open, and needs no task until its client's next line."""
        return self._phase is Phase.PARKED or self._phase is Phase.LEAVING

    @property
    def is_over(self) -> bool:
        """Whether the connection is ending, or has ended."""
        scope = self._scope
        return self._phase is Phase.OVER or (scope is not None and scope.cancel_called)

    def park_if_idle(self) -> None:
        """Let the task end if nothing has come from the client since the last call."""
        if self._phase is Phase.SERVED:
            self._phase = Phase.QUIET
        elif self._phase is Phase.QUIET and self._reading is not None and self._may_park:
            self._reading.cancel()

    @property
    def _may_park(self) -> bool:
        return (
            isinstance(self._lines, FrameReader)
            and self._lines.is_between_lines
            and isinstance(self._sink, ParkingSink)
            and self._sink.is_idle
            and self._phase is Phase.QUIET
            and not self._is_occupied
        )

    def _leave_if_idle(self) -> bool:
        """Begin to leave the task if no line has come since the last `park_if_idle`.

        Return whether the connection leaves its task.
        """
        if not self._may_park:
            return False
        assert isinstance(self._sink, ParkingSink), "only such a connection may park"
        # The nursery closes in a moment, and then takes no task that writes.
        self._sink.park(self.wake)
        self._phase = Phase.LEAVING
        return True

    def park(self, parking: "Parking", serve_again: Callable[[], None]) -> None:
        """Wait in `parking` without a task; call `serve_again` when `run` is needed again."""
        assert isinstance(self._sink, ParkingSink), "only such a connection is idle"
        self._reading = self._scope = None
        self._drop_task_parts()
        descriptor = self._sink.park(self.wake)
        self._spot = parking, descriptor, serve_again
        self._phase = Phase.PARKED
        if descriptor >= 0:
            parking.park(self, descriptor)
        # A closed socket has no descriptor. The task finds that out, and writes what has piled up.
        if descriptor < 0 or not self._sink.is_idle:
            self.wake()

    def wake(self) -> None:
        """Serve the connection again; do nothing if it is not parked."""
        if self._phase is not Phase.PARKED or self._spot is None:
            return
        parking, descriptor, serve_again = self._spot
        if descriptor >= 0:
            parking.unpark(descriptor)
        self._spot = None
        self._phase = Phase.SERVED
        self._scope = trio.CancelScope()
        serve_again()

    def abandon(self) -> None:
        """Close the socket of a parked connection, which is not served again."""
        self._spot = None
        self._phase = Phase.OVER
        self._fail_questions()
        if isinstance(self._sink, ParkingSink):
            self._sink.abandon()


class Parking:
    """Finds connections that are idle, and wakes parked connections when a line arrives."""

    def __init__(self) -> None:
        self._ready = platform.readiness_queue()
        self._parked: dict[int, ParkableConnection] = {}
        self._served: set[ParkableConnection] = set()
        # Connections that have just been opened, with the number of looks at each.
        self._new: dict[ParkableConnection, int] = {}
        self._any_served = trio.Event()
        self._any_new = trio.Event()

    def __len__(self) -> int:
        """Return how many connections are parked."""
        return len(self._parked)

    def serve(self, connection: ParkableConnection) -> None:
        """Note that a connection has a task, so that it is parked once it is idle."""
        if connection not in self._served:
            self._new[connection] = 0
            self._any_new.set()

    def leave(self, connection: ParkableConnection) -> None:
        """Note that a connection has no task."""
        self._served.discard(connection)
        self._new.pop(connection, None)

    def park(self, connection: ParkableConnection, descriptor: int) -> None:
        """Wake `connection` as soon as its socket `descriptor` can be read or is broken."""
        assert self._ready is not None, "nothing is parked without a queue"
        self._parked[descriptor] = connection
        self._ready.register(descriptor, platform.READABLE)

    def unpark(self, descriptor: int) -> None:
        """Stop waiting for the socket `descriptor`, because its connection gets a task.

        The socket must still be open.
        """
        assert self._ready is not None, "nothing is parked without a queue"
        self._served.add(self._parked.pop(descriptor))
        self._any_served.set()
        self._ready.unregister(descriptor)

    async def run(self) -> None:
        """Park and wake connections until cancelled."""
        if self._ready is None:
            await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wake_ready)
            nursery.start_soon(self._follow_new)
            while True:
                if not self._served:
                    self._any_served = trio.Event()
                    await self._any_served.wait()
                await trio.sleep(QUIET)
                self._look_at_served()

    # Each look is a method of its own: a loop's variable would keep its last connection for as long
    # as the task waits.

    def _look_at_served(self) -> None:
        for each in list(self._served):
            each.park_if_idle()

    async def _follow_new(self) -> None:
        while True:
            if not self._new:
                self._any_new = trio.Event()
                await self._any_new.wait()
            await trio.sleep(QUIET_AT_FIRST)
            self._look_at_new()

    def _look_at_new(self) -> None:
        for each, looks in list(self._new.items()):
            each.park_if_idle()
            self._new[each] = looks + 1
            if looks >= _LOOKS_AT_FIRST:
                del self._new[each]
                self._served.add(each)
                self._any_served.set()

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
        self._served.clear()
        if self._ready is not None:
            self._ready.close()
