"""Notices that a connection to another process ended, and that there is one again.

libzmq connects again by itself and says nothing. What was sent into the old connection is gone,
and nobody would answer; for a moment it even takes more. Its monitor tells of both ends of that
gap, in the order in which they happened.
"""

import itertools
from collections.abc import Callable

import trio
import zmq
from zmq.utils.monitor import parse_monitor_message

from capd.runtime.zmq_socket import Context, TrioSocket
from capd_protos.types import Address

_NUMBERS = itertools.count(1)
_EVENTS = int(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)


class ConnectionWatch:
    """Watches the one connection of a socket."""

    def __init__(self, context: Context, watched: TrioSocket, on_lost: Callable[[], None]) -> None:
        """`watched` has not been connected yet; `on_lost` is called when its connection ended."""
        self.is_up = False
        self._on_lost = on_lost
        self._news = trio.Event()
        address = Address(f"inproc://connection-watch-{next(_NUMBERS)}")
        watched.tell(_EVENTS, address)
        self._socket = TrioSocket(context, zmq.SocketType.PAIR)
        self._socket.connect(address)

    async def follow(self) -> None:
        """Take note of what happens, until cancelled."""
        while True:
            self._note(await self._socket.recv())

    def heed(self) -> None:
        """Take note of what has happened by now; never waits."""
        while (frames := self._socket.recv_nowait()) is not None:
            self._note(frames)

    async def came_up(self) -> None:
        """Return once there is a connection."""
        while not self.is_up:
            await self._news.wait()

    def close(self) -> None:
        """Close the watch; the socket that it watches is closed before."""
        self._socket.close()

    def _note(self, frames: list[bytes]) -> None:
        self.is_up = parse_monitor_message(frames)["event"] == zmq.EVENT_CONNECTED
        news, self._news = self._news, trio.Event()
        news.set()
        if not self.is_up:
            self._on_lost()
