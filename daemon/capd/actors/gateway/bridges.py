"""The gateway of bridges: decides which connection over a bridge gets a session.

Over a bridge, clients on another host or in a container reach this daemon. A client's connection at
a bridge's own socket can only have the role `mcp`, so it reaches no control method. It is checked
in this order, and a failed check closes that connection only:

    user at the socket ──> hello within 10 s ──> credential ──> role ──> process ──> session
                                                                              └──> runner

A runner is the process that starts servers on the far side (`adapters/servers/far_runners`). Its
connection waits until a session of the same bridge needs a server, and reaches nothing else.
`adapters/clients/hellos` says which parts of the hello, the first line on a connection, are used.
"""

import os
import socket
from itertools import count
from typing import cast

import structlog
import trio

from capd.actor_clients.client import ANSWER_TIMEOUT
from capd.actor_clients.curator import CuratorClient
from capd.actors.gateway.accepting import next_connection
from capd.actors.gateway.peer_rules import PeerRules
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.hellos import (
    HELLO_TIMEOUT,
    far_hello,
    read_hello,
    refused,
    send_frame,
    send_welcome,
)
from capd.adapters.clients.open_bridges import OpenBridge
from capd.adapters.clients.peers import Peers
from capd.adapters.clients.socket_sink import SocketSink
from capd.adapters.clients.waiting_pool import WaitingPool
from capd.adapters.servers.far_runners import MOST_IDLE, MOST_SERVERS, FarRunners
from capd.adapters.stdio_frames import FrameReader
from capd.core.protocol.outcomes import internal_error
from capd.core.sessions.bridges import far_folder, shown_path
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError, Bus
from capd.runtime.handle_table import HandleTable
from capd_protos import SOCKET_PROTOCOL, curator
from capd_protos import socket as frames

MOST_WAITING = 32
"""The most connections of one bridge that have not sent a hello."""
MOST_SESSIONS = 64
"""The most connections of one bridge that have a session."""
LINE_LIMIT_BYTES = 8 * 1024 * 1024
_FIRST_ID = 1 << 40

log = structlog.get_logger(actor="gateway")


class BridgeGateway:
    """Accepts connections over bridges, and passes them to the curator."""

    def __init__(
        self,
        bus: Bus,
        connections: HandleTable[int, Connection],
        version: str,
        *,
        may_connect: tuple[str, ...] = (),
        peers: Peers | None = None,
        runners: FarRunners | None = None,
    ) -> None:
        """Create it. `may_connect` are globs of servers whose own processes may be clients.

        `runners` gets the connections of runners, the processes that start servers on far sides.
        Without it none is accepted.
        """
        self._runners = runners
        self._peers = peers or Peers()
        self._rules = PeerRules(bus, may_connect)
        self._curator = CuratorClient(bus)
        self._connections = connections
        self._daemon = frames.DaemonInfo(version, os.getpid())
        # The user's socket uses the small numbers of the same table, and HTTP the negative ones.
        self._ids = count(_FIRST_ID)

    async def serve(self, bridge: OpenBridge) -> None:
        """Serve a bridge until it ends; then all its connections are closed."""
        waiting = WaitingPool(MOST_WAITING, HELLO_TIMEOUT + ANSWER_TIMEOUT)
        try:
            with bridge.scope:
                async with trio.open_nursery() as nursery:
                    while True:
                        stream = await next_connection(bridge.listener, log)
                        nursery.start_soon(self._contained, bridge, stream, waiting)
        finally:
            if self._runners is not None:
                self._runners.forget(bridge.name)
            for stream in (*bridge.streams, *bridge.runners):
                _shut(stream)
        if bridge.is_revoked:
            with trio.move_on_after(ANSWER_TIMEOUT, shield=True):
                await self.forget(bridge)

    async def forget(self, bridge: OpenBridge) -> None:
        """End the sessions of a bridge, and delete their saved records."""
        try:
            await self._curator.end_bridge(bridge.name)
        except ActorUnavailableError as error:
            log.error("bridge_not_ended", bridge=bridge.name, reason=str(error))

    async def _contained(
        self, bridge: OpenBridge, stream: trio.SocketStream, waiting: WaitingPool
    ) -> None:
        await contained("bridge connection", self._serve, bridge, stream, waiting, log=log)

    async def _serve(
        self, bridge: OpenBridge, stream: trio.SocketStream, waiting: WaitingPool
    ) -> None:
        is_handed_over = False
        try:
            with waiting.place() as place:
                hello = await self._hello(bridge, stream)
                place.leave()
                if isinstance(hello, frames.Refused):
                    bridge.refused += 1
                    log.warning("bridge_refused", bridge=bridge.name, code=hello.code)
                    await send_frame(stream, hello)
                elif hello is not None and hello[0].role == "runner":
                    is_handed_over = await self._keep_runner(bridge, stream)
                elif hello is not None:
                    bridge.streams.add(stream)
                    is_handed_over = await self._open_session(bridge, stream, *hello)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            log.info("connection_broken")
        except OSError as error:
            log.error("peer_not_seen", reason=error.strerror)
        finally:
            if not is_handed_over:
                bridge.streams.discard(stream)
                await trio.aclose_forcefully(stream)

    async def _hello(
        self, bridge: OpenBridge, stream: trio.SocketStream
    ) -> tuple[frames.Hello, FrameReader] | frames.Refused | None:
        """Read and check a connection's hello; return it with the reader of the lines after it.

        If the hello is refused, return the refusal to answer with. Return None for a process of
        another user, which gets no answer.
        """
        peer = self._peers.of(cast("socket.socket", stream.socket))
        try:
            if peer.uid != os.getuid():
                log.warning("foreign_connection", uid=peer.uid)
                return None
            reader = FrameReader(stream, frames.HELLO_LIMIT_BYTES)
            hello = await read_hello(reader, LINE_LIMIT_BYTES)
            if isinstance(hello, frames.Refused):
                return hello
            if not bridge.admits(hello.credential):
                return refused("bridge_refused", "this bridge does not know that credential")
            if hello.role not in {"mcp", "runner"}:
                return refused("bridge_refused", "a bridge has sessions, and no control role")
            if (descends := await self._rules.refusal(peer)) is not None:
                return descends
        finally:
            peer.close()
        if hello.role == "runner":
            return self._refused_runner(bridge) or (hello, reader)
        if bridge.sessions >= MOST_SESSIONS:
            return refused("overloaded", f"this bridge has {MOST_SESSIONS} sessions already")
        return hello, reader

    def _refused_runner(self, bridge: OpenBridge) -> frames.Refused | None:
        if self._runners is None:
            return refused("bridge_refused", "this daemon starts no servers over a bridge")
        if bridge.open_runners >= MOST_IDLE + MOST_SERVERS:
            return refused("overloaded", "this bridge has too many connections of its runner")
        return None

    async def _keep_runner(self, bridge: OpenBridge, stream: trio.SocketStream) -> bool:
        """Store the connection of a bridge's runner until a server needs it.

        Return whether it was stored. A runner is the process that starts servers on the far side.
        """
        assert self._runners is not None
        await send_frame(stream, frames.Welcome(SOCKET_PROTOCOL, self._daemon))
        if bridge.scope.cancel_called:
            return False
        bridge.runners.add(stream)
        self._runners.offer(bridge.name, stream)
        return True

    async def _open_session(
        self,
        bridge: OpenBridge,
        stream: trio.SocketStream,
        hello: frames.Hello,
        reader: FrameReader,
    ) -> bool:
        """Open the session that a hello asks for; return whether the curator took the stream."""
        connection = next(self._ids)
        taken = Connection(SocketSink(stream), reader, trio.Event(), is_far=True)
        self._connections.put(connection, taken)
        request = curator.OpenSession(
            connection,
            far_hello(bridge.name, hello),
            0,
            bridge=bridge.name,
            far_project=shown_path(hello.project or hello.cwd),
            far_folder=far_folder(hello.project or hello.cwd),
        )
        try:
            opened = await self._curator.open_session(request)
        except BaseException as error:
            is_taken = self._connections.take(connection) is None
            if is_taken:
                # The curator has the stream and will not use it. Close it, so that the client
                # connects again.
                _shut(stream)
            elif isinstance(error, ActorUnavailableError):
                await send_frame(stream, refused("overloaded", str(error)))
            elif isinstance(error, Exception):
                await send_frame(stream, refused("bad_hello", internal_error(error)))
            if isinstance(error, ActorUnavailableError):
                return is_taken
            raise
        # The welcome asks for no values of the client's environment: it is another machine's.
        return await send_welcome(stream, opened, self._daemon, taken)


def _shut(stream: trio.SocketStream) -> None:
    """Shut a connection down, even if another task is reading it."""
    try:
        stream.socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
