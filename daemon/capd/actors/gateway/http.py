"""The gateway of the HTTP front: accepts its connections, and opens sessions for them.

The HTTP front lets MCP clients reach the daemon by a URL on this machine. The sessions belong to
the curator, the actor that owns all sessions. This module is imported only if the front is switched
on.
"""

import socket
from dataclasses import dataclass
from itertools import count

import structlog
import trio

from capd.actor_clients.curator import CuratorClient
from capd.actors.gateway.accepting import next_connection
from capd.actors.gateway.peer_rules import NO_DESCRIPTORS, PeerRules
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.http_front.admission import ADDRESS, Admission, Refusal
from capd.adapters.clients.http_front.endpoint import Endpoint, NoSessionError, SessionOpener
from capd.adapters.clients.http_front.http_connection import HttpConnection, HttpRequest
from capd.adapters.clients.http_front.http_session import HttpSession
from capd.adapters.clients.http_front.tcp_peers import TcpPeers
from capd.adapters.clients.peers import Peers
from capd.adapters.clients.waiting_pool import WaitingPlace, WaitingPool
from capd.core.sessions.session_keys import fresh_key
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError, Bus
from capd.runtime.handle_table import HandleTable
from capd_protos import SOCKET_PROTOCOL, curator
from capd_protos import socket as frames
from capd_protos.types import ActorName

NAME = ActorName("http_gateway")

ENABLE_TIMEOUT = 130.0
MOST_CONNECTIONS = 512
"""The most open connections whose first request was accepted."""
MOST_WAITING = 128
"""The most connections that have not sent the token."""
MOST_LOOKED_AT = 384
"""The most connections that have sent the token, and whose process is being looked up."""
PATIENCE = 10.0
"""Seconds within which a connection has to send the token."""
LOOK_PATIENCE = 20.0
"""Additional seconds for looking up which process has the connection."""
BACKLOG = 128
_KEY_END = "http"

log = structlog.get_logger(actor=NAME)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The settings of the HTTP front: who is admitted, and what its sessions begin with."""

    admission: Admission
    is_bare: bool = False
    """Whether tools keep the names that their servers give them, and capd's own tools are not
    listed."""
    capabilities: tuple[str, ...] = ()
    """The capabilities that every session begins with, as `name` or `tap/name`."""
    project: str = ""
    """The project of every session; empty for none."""
    poll_after: float = 0.0
    """Seconds after which the stream of an unfinished answer is closed once, so that the client
    requests the rest; 0 for never."""


def listener_on(port: int) -> trio.SocketListener:
    """Listen on `port` of the loopback interface; raises OSError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Otherwise connections in TIME_WAIT of the last daemon would block the port.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((ADDRESS, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


class _Visit:
    """One HTTP connection, and whether its process and its token were checked.

    capd checks the process with the connection's first request, and the token with each.
    """

    def __init__(
        self, gateway: "HttpGateway", stream: trio.SocketStream, place: WaitingPlace
    ) -> None:
        self.is_let_in = False
        self._gateway = gateway
        self._stream = stream
        self._place = place

    async def refusal(self, request: HttpRequest) -> Refusal | None:
        if self.is_let_in:
            return self._gateway.refused_later(request)
        refused = await self._gateway.refusal(request, self._stream, self._place)
        self.is_let_in = refused is None
        return refused


class HttpGateway:
    """Accepts connections, checks them, and opens sessions."""

    def __init__(
        self,
        bus: Bus,
        listener: trio.SocketListener,
        connections: HandleTable[int, Connection],
        settings: HttpSettings,
        *,
        may_connect: tuple[str, ...] = (),
        peers: Peers | None = None,
    ) -> None:
        """Create it. `may_connect` are globs of servers whose own processes may be clients."""
        self._rules = PeerRules(bus, may_connect)
        self._lets_servers_in = bool(may_connect)
        self._peers = TcpPeers(peers or Peers(), searches_servers=bool(may_connect))
        self._waiting = WaitingPool(MOST_WAITING, PATIENCE)
        self._looked_at = WaitingPool(MOST_LOOKED_AT, LOOK_PATIENCE)
        self._let_in = 0
        self._curator = CuratorClient(bus)
        self._listener = listener
        self._connections = connections
        self._settings = settings
        # The Unix socket's connections have the positive numbers of the same table.
        self._ids = count(-1, -1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept until cancelled; the listener outlives a restart of this actor."""
        opener = SessionOpener(self._open_session, self._prepare)
        self._endpoint = Endpoint(opener, poll_after=self._settings.poll_after)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._endpoint.run)
            task_status.started()
            while True:
                stream = await next_connection(self._listener, log)
                nursery.start_soon(self._contained, stream)

    async def _contained(self, stream: trio.SocketStream) -> None:
        await contained("http connection", self._serve, stream, log=log)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            with self._waiting.place() as place:
                visit = _Visit(self, stream, place)
                try:
                    await HttpConnection(stream).serve(visit.refusal, self._endpoint.respond)
                finally:
                    self._let_in -= visit.is_let_in
        finally:
            await trio.aclose_forcefully(stream)

    async def refusal(
        self, request: HttpRequest, stream: trio.SocketStream, place: WaitingPlace
    ) -> Refusal | None:
        """Return why the first request of a connection is refused; None if it is accepted."""
        refused = self._settings.admission.refusal(request)
        if refused is not None:
            return refused
        place.move(self._looked_at)
        refused = await self._refused_process(stream)
        if refused is None and self._let_in >= MOST_CONNECTIONS:
            refused = Refusal(503, f"{MOST_CONNECTIONS} connections are open; close one first")
        if refused is None:
            place.leave()
            self._let_in += 1
        return refused

    def refused_later(self, request: HttpRequest) -> Refusal | None:
        """Return why a later request of a connection is refused; None if it is accepted."""
        return self._settings.admission.refusal(request)

    async def _refused_process(self, stream: trio.SocketStream) -> Refusal | None:
        """Return why the process at the other end may not use capd; None if it may."""
        try:
            ours, theirs = stream.socket.getsockname(), stream.socket.getpeername()
        except OSError:
            return Refusal(403, "the connection is closed")
        verdict, chain = await self._peers.judge(ours, theirs)
        if verdict in {"person", "outside", "untold"}:
            return None
        if verdict == "no_descriptors":
            log.error("http_peer_not_judged", reason="no file descriptor is free")
            return Refusal(503, NO_DESCRIPTORS)
        server = await self._rules.server_of(chain) if chain else ""
        if self._rules.is_excepted(server):
            return None
        log.warning("http_peer_refused", verdict=verdict, server=server or "unknown")
        return Refusal(
            403,
            "it cannot be seen that a process that capd did not start has this connection; a server"
            " that is meant to be a client: [servers] may_connect in config.toml, and"
            ' may_connect = ["*"] where your client cannot be seen (docs/http.md)',
        )

    # Callbacks of the endpoint

    async def _open_session(self, session: HttpSession, client: str, is_kept: bool) -> None:
        """Open a session; with `is_kept`, later connections of the same client can use it.

        Raises:
            NoSessionError: the session cannot be opened.
        """
        connection = next(self._ids)
        welcomed = trio.Event()
        welcomed.set()
        self._connections.put(
            connection, Connection(session, session.lines, welcomed, self._lets_servers_in)
        )
        hello = frames.Hello(
            SOCKET_PROTOCOL,
            "mcp",
            frames.ClientInfo(client or _KEY_END),
            project=self._settings.project,
            session=fresh_key(client, _KEY_END) if is_kept else "",
        )
        # Pid 0 (unknown): a TCP socket, unlike a Unix socket, does not have the pid of its peer.
        request = curator.OpenSession(connection, hello, 0, is_bare=self._settings.is_bare)
        try:
            opened = await self._curator.open_session(request)
        except BaseException as error:
            if self._connections.take(connection) is None:
                # The curator has the session's connection and will not use it.
                with trio.move_on_after(1.0, shield=True):
                    await session.end()
            if isinstance(error, ActorUnavailableError):
                raise NoSessionError(f"no session can be opened: {error}") from None
            raise
        if isinstance(opened, curator.CuratorRefused):
            raise NoSessionError(opened.message)
        session.key = opened.session

    async def _prepare(self, session: HttpSession) -> None:
        for name in self._settings.capabilities:
            try:
                reply = await self._curator.enable(session.key, name, timeout=ENABLE_TIMEOUT)
            except ActorUnavailableError as error:
                log.error("not_enabled", capability=name, reason=str(error))
                continue
            if isinstance(reply, curator.CuratorRefused):
                log.error("not_enabled", capability=name, session=session.key, reason=reply.message)
            elif not reply.is_ok:
                log.error("not_enabled", capability=name, session=session.key, reason=reply.text)
