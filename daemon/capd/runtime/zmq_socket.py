"""A ZeroMQ socket that several trio tasks may use.

The socket's file descriptor becomes readable only once after its state has changed: it is
edge-triggered (docs/design/actors.md). Two rules follow. A task reads the option EVENTS before it
sleeps on the descriptor. And after every send or receive EVENTS is read again for the sleeping
tasks, because the operation may have consumed the change that they wait for.

trio lets only one task wait for a descriptor. So one task, the leader, waits, and the others sleep
until they are woken, or become the leader.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import trio
import zmq

from capd.core.errors import CapdError
from capd_protos.types import Address

Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]

HIGH_WATER = 1000
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_RECONNECT_MS = 50
_ROUTER_RETRY = 0.01


class SocketFullError(CapdError):
    """There is no room: the peer has 1000 unread messages, or has not connected."""


class CannotBindError(CapdError):
    """The socket cannot listen at an address."""


class NoSuchPeerError(CapdError):
    """The peer that the first frame names is not connected."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """A sleeping task, and the state of the socket for which it waits."""

    flag: int
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class TrioSocket:
    """Sends and receives multipart messages in trio. Whoever creates it must close it."""

    def __init__(
        self,
        context: Context,
        kind: zmq.SocketType,
        *,
        high_water: int = HIGH_WATER,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._kind = kind
        self._socket = context.socket(kind)
        self._socket.set(zmq.SNDHWM, high_water)
        self._socket.set(zmq.RCVHWM, high_water)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.MAXMSGSIZE, max_message_bytes)
        self._socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        if kind == zmq.ROUTER:
            self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._fd = self._socket.fileno()
        self._waiters: list[_Waiter] = []
        self._leader: _Waiter | None = None

    def bind(self, address: Address) -> None:
        """Listen at `address`.

        Raises:
            CannotBindError: the address is taken, too long, or its folder is missing.
        """
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            raise CannotBindError(f"cannot listen at {address}: {error}") from None
        self.refresh()

    def connect(self, address: Address) -> None:
        """Connect to `address`, whether or not somebody listens there yet."""
        self._socket.connect(address)
        self.refresh()

    def subscribe(self, prefix: bytes) -> None:
        """Receive messages whose first frame starts with `prefix` (SUB only)."""
        self._socket.set(zmq.SUBSCRIBE, prefix)

    def close(self) -> None:
        """Drop unsent messages; waiting tasks get `trio.ClosedResourceError`."""
        # Cancelling removes the leader's wait from trio's epoll before the descriptor is closed.
        for waiter in self._waiters:
            waiter.scope.cancel()
        self._socket.close(linger=0)

    async def recv(self) -> list[bytes]:
        """Return the next message. If this is cancelled, no message is lost."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            self._check_open()
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                await self._wait(zmq.POLLIN)
                continue
            if self._waiters:
                self.refresh()
            # Shielded: a cancellation here would lose the message, which is in no queue any more.
            await trio.lowlevel.cancel_shielded_checkpoint()
            return frames

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send one message, waiting for room. If this is cancelled, nothing is sent.

        Raises:
            NoSuchPeerError: see `send_nowait`.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            try:
                self.send_nowait(frames)
            except SocketFullError:
                await self.wait_writable()
            else:
                await trio.lowlevel.cancel_shielded_checkpoint()
                return

    def send_nowait(self, frames: Sequence[bytes]) -> None:
        """Send one message without waiting.

        Raises:
            SocketFullError: there is no room, or nobody is connected yet.
            NoSuchPeerError: a ROUTER does not know the peer in the first frame.
        """
        self._check_open()
        if self._kind == zmq.PUB:
            # A socket that only sends looks for new subscriptions once a millisecond at most.
            # `refresh` makes it look now, so that a new subscriber gets every later event.
            self.refresh()
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            raise SocketFullError("the peer reads too slowly, or has not connected") from None
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                raise NoSuchPeerError("the peer is not connected") from None
            raise
        finally:
            if self._waiters:
                self.refresh()

    async def wait_writable(self) -> None:
        """Sleep until `send_nowait` may succeed."""
        if self._kind == zmq.ROUTER:
            # A ROUTER is writable if there is room for any of its peers, so polling does not help.
            await trio.sleep(_ROUTER_RETRY)
        else:
            await self._wait(zmq.POLLOUT)

    def refresh(self) -> None:
        """Let libzmq process its pending commands, and wake the tasks that can continue."""
        if self._socket.closed:
            return
        events = cast("int", self._socket.get(zmq.EVENTS))
        for waiter in self._waiters:
            if waiter.flag & events:
                waiter.scope.cancel()

    def _check_open(self) -> None:
        if self._socket.closed:
            raise trio.ClosedResourceError("this socket was closed")

    async def _wait(self, flag: int) -> None:
        self._check_open()
        waiter = _Waiter(flag)
        self._waiters.append(waiter)
        try:
            # Reads EVENTS, which ends the wait below at once if the change has come already.
            self.refresh()
            with waiter.scope:
                if self._leader is None:
                    self._leader = waiter
                    await trio.lowlevel.wait_readable(self._fd)
                else:
                    await trio.sleep_forever()
        finally:
            self._waiters.remove(waiter)
            if self._leader is waiter:
                self._leader = None
            # Wake the next task even if this one was no leader: it may have been woken to become
            # the leader, and then cancelled.
            if self._leader is None and self._waiters:
                self._waiters[0].scope.cancel()
