"""The gateway: decides who may connect, and which actor gets the connection.

The user of every accepted connection is checked before a byte is read. The first line is a hello. A
session's stream is passed to the curator, the actor that owns all sessions. A control connection is
served here. An error on one connection does not affect the others.
"""

import os
import socket
from itertools import count
from typing import TYPE_CHECKING, cast

import structlog
import trio
from trio.abc import Listener

from capd.actor_clients.client import ANSWER_TIMEOUT
from capd.actor_clients.curator import CuratorClient
from capd.actor_clients.registry import RegistryClient
from capd.actors.gateway.accepting import next_connection
from capd.actors.gateway.peer_rules import PeerRules
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.hellos import (
    HELLO_TIMEOUT,
    read_hello,
    refused,
    send_frame,
    send_welcome,
)
from capd.adapters.clients.peers import Peer, Peers
from capd.adapters.clients.socket_sink import SocketSink
from capd.adapters.clients.waiting_pool import WaitingPlace, WaitingPool
from capd.adapters.stdio_frames import FrameReader
from capd.core.errors import described
from capd.core.protocol.outcomes import internal_error
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError, Bus
from capd.runtime.handle_table import HandleTable
from capd_protos import SOCKET_PROTOCOL, curator
from capd_protos import socket as frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from capd.actors.control.connection import Control

MOST_WAITING = 256
"""The most connections that have not sent a hello."""

log = structlog.get_logger(actor="gateway")


class Gateway:
    """Accepts connections, checks them, reads the hello, and passes them on."""

    def __init__(
        self,
        bus: Bus,
        listener: Listener[trio.SocketStream],
        connections: HandleTable[int, Connection],
        control: "Callable[[], Control]",
        version: str,
        *,
        stopping: trio.Event,
        may_connect: tuple[str, ...] = (),
        peers: Peers | None = None,
    ) -> None:
        """Create the gateway. `control` returns the object that serves control connections.

        Once `stopping` is set, new clients wait for the next daemon.

        `may_connect` are globs of servers whose own processes may be clients.
        """
        self._peers = peers or Peers()
        self._rules = PeerRules(bus, may_connect)
        self._waiting = WaitingPool(MOST_WAITING, HELLO_TIMEOUT + ANSWER_TIMEOUT)
        self._curator = CuratorClient(bus)
        self._registry = RegistryClient(bus)
        self._stopping = stopping
        self._listener = listener
        self._connections = connections
        self._control = control
        self._daemon = frames.DaemonInfo(version, os.getpid())
        self._ids = count(1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; the listener outlives a restart of this actor."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            accepting = trio.CancelScope()
            nursery.start_soon(self._stop_accepting, accepting)
            with accepting:
                await self._accept(nursery)
            await trio.sleep_forever()

    async def _stop_accepting(self, accepting: trio.CancelScope) -> None:
        await self._stopping.wait()
        accepting.cancel()

    async def _accept(self, nursery: trio.Nursery) -> None:
        while True:
            stream = await next_connection(self._listener, log)
            nursery.start_soon(self._contained, stream)

    async def _contained(self, stream: trio.SocketStream) -> None:
        await contained("connection", self._serve, stream, log=log)

    async def _serve(self, stream: trio.SocketStream) -> None:
        peer: Peer | None = None
        is_handed_over = False
        try:
            peer = self._peers.of(cast("socket.socket", stream.socket))
            if peer.uid != os.getuid():
                log.warning("foreign_connection", uid=peer.uid)
                return
            with self._waiting.place(peer.pid) as place:
                is_handed_over = await self._let_in(stream, peer, place)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            log.info("connection_broken")
        except OSError as error:
            log.error("peer_not_seen", reason=error.strerror)
        finally:
            if peer is not None:
                peer.close()
            if not is_handed_over:
                await trio.aclose_forcefully(stream)

    async def _let_in(self, stream: trio.SocketStream, peer: Peer, place: WaitingPlace) -> bool:
        """Serve one accepted connection; return whether the curator took its stream."""
        reader = FrameReader(stream, frames.HELLO_LIMIT_BYTES)
        hello = await read_hello(reader)
        if isinstance(hello, frames.Hello) and hello.credential:
            # A hello with a credential comes over a bridge that leads to the wrong socket: here,
            # the far side would be treated as the user.
            hello = refused("bridge_refused", "this socket is not a bridge's")
        if isinstance(hello, frames.Hello) and hello.role == "runner":
            hello = refused("bridge_refused", "a runner connects to the socket of its bridge")
        # Checked after the hello, because a client that is refused while it writes does not read
        # why. And checked last, because a process that ends may leave its connection to another.
        hello = await self._rules.refusal(peer) or hello
        place.leave()
        if isinstance(hello, frames.Refused):
            await send_frame(stream, hello)
        elif hello.role == "control":
            await send_frame(stream, frames.Welcome(SOCKET_PROTOCOL, self._daemon))
            await self._control().serve(stream, reader, peer)
        else:
            return await self._open_session(stream, reader, hello, peer)
        return False

    async def _open_session(
        self, stream: trio.SocketStream, reader: FrameReader, hello: frames.Hello, peer: Peer
    ) -> bool:
        """Open the session that a hello asks for; return whether the curator took the stream."""
        connection = next(self._ids)
        taken = Connection(SocketSink(stream), reader, trio.Event(), peer.is_excepted)
        self._connections.put(connection, taken)
        try:
            known = await self._registry.describe(hello.project or hello.cwd)
            opened = await self._curator.open_session(
                curator.OpenSession(connection, hello, peer.pid)
            )
        except Exception as error:  # noqa: BLE001 - the boundary: each hello has an answer
            is_taken = self._connections.take(connection) is None
            answer = refused("overloaded", str(error))
            if not isinstance(error, ActorUnavailableError):
                log.error("task_failed", task="hello", **described(error))
                answer = refused("bad_hello", internal_error(error))
            if not is_taken:
                await send_frame(stream, answer)
            return is_taken
        return await send_welcome(stream, opened, self._daemon, taken, known.wanted_keys)
