"""The HTTP front without a daemon: connections in memory, and a scripted conversation."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import msgspec
import structlog
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from capd.adapters.clients.client_connection import ClientConnection
from capd.adapters.clients.conversation import Request
from capd.adapters.clients.http_front.admission import Admission, Refusal
from capd.adapters.clients.http_front.endpoint import Endpoint, SessionOpener
from capd.adapters.clients.http_front.http_connection import HttpConnection, HttpRequest
from capd.adapters.clients.http_front.http_session import HttpSession
from capd.adapters.clients.upstream import Upstream
from capd_protos.types import ClientFacts, SessionKey

Json = dict[str, Any]

PORT = 8377
TOKEN = "t" * 43
HOST = f"127.0.0.1:{PORT}"
INFO = {"name": "editor", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": INFO,
}


class Talk:
    """A conversation with a journal."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.tools = [b'{"name":"t"}']
        self.run: Callable[[Request], Awaitable[bytes]] | None = None

    async def start(self) -> None:
        pass

    async def wait_ready(self) -> None:
        pass

    def extensions(self) -> dict[str, msgspec.Raw]:
        return {}

    def instructions(self) -> str:
        return ""

    def on_client_info(self, client: ClientFacts) -> None:
        self.journal.append(f"met {client.info.decode()}")

    async def list_entries(self, kind: str) -> list[bytes]:
        await trio.lowlevel.checkpoint()
        if kind == "tools":
            self.journal.append("listed")
        return self.tools if kind in {"tools", "seen tools"} else []

    async def relay(self, request: Request) -> bytes:
        self.journal.append(f"call {bytes(request.members.get('name', b'-')).decode()}")
        try:
            return await self.run(request) if self.run is not None else b'{"content":[ ]}'
        except trio.Cancelled:
            self.journal.append("cancelled")
            raise

    def direct_route(self, request: Request) -> None:
        del request

    async def subscribe(self, uri: str) -> bytes:
        self.journal.append(f"+{uri}")
        await trio.lowlevel.checkpoint()
        return b"{}"

    async def unsubscribe(self, uri: str) -> bytes:
        self.journal.append(f"-{uri}")
        await trio.lowlevel.checkpoint()
        return b"{}"

    async def watch_task(self, task: str) -> bytes | None:
        self.journal.append(f"+{task}")
        await trio.lowlevel.checkpoint()
        return None

    def unwatch_task(self, task: str) -> None:
        self.journal.append(f"-{task}")

    async def follow_level(self) -> None:
        await trio.lowlevel.checkpoint()

    async def renew_subscriptions(self) -> None:
        await trio.lowlevel.checkpoint()

    def on_roots_changed(self) -> None:
        self.journal.append("roots")

    async def turn(self, text: str) -> bytes:
        return json.dumps({"said": text}).encode()

    def on_environment(self, values: dict[str, str]) -> None:
        self.journal.append(f"environment {sorted(values)}")


@dataclass
class Heard:
    """The part of an answer that has been received."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_over: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Json]:
        """The events that carry a message; comments and events without data are none."""
        return [json.loads(data) for _, data in self.numbered if data]

    @property
    def numbered(self) -> list[tuple[str, str]]:
        found = []
        for block in self.body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
            if "data" in fields:
                found.append((fields.get("id", ""), fields["data"]))
        return found


class Visitor:
    """A client's end of one connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def ask(
        self, method: str, body: Json | bytes = b"", headers: dict[str, str] | None = None
    ) -> Heard:
        """Send a request; return what was received of its answer once nothing more arrives."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        said = {
            "host": HOST,
            "authorization": f"Bearer {TOKEN}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(headers or {}),
        }
        request = h11.Request(method=method, target="/mcp", headers=list(said.items()))
        events: list[h11.Event] = [request, h11.EndOfMessage()]
        if data:
            events.insert(1, h11.Data(data=data))
        await self.stream.send_all(b"".join(self._http.send(event) or b"" for event in events))
        self._heard = Heard()
        return await self.hear()

    async def hear(self) -> Heard:
        """Return what was received of the answer once nothing more arrives."""
        heard = self._heard
        await wait_all_tasks_blocked()
        while not heard.is_over:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                with trio.move_on_after(0.001) as scope:
                    self._http.receive_data(bytes(await self.stream.receive_some()))
                if scope.cancelled_caught:
                    return heard
            elif isinstance(event, h11.Response):
                heard.status = event.status_code
                heard.headers = {k.decode(): v.decode() for k, v in event.headers}
            elif isinstance(event, h11.Data):
                heard.body += bytes(event.data)
            else:
                heard.is_over = True
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return heard


class Front:
    def __init__(self, nursery: trio.Nursery, poll_after: float) -> None:
        self._nursery = nursery
        self._admission = Admission(PORT, TOKEN)
        self.talks: list[Talk] = []
        self.sessions: list[tuple[str, bool]] = []
        self.upstreams: list[Upstream] = []
        self.prepared: list[HttpSession] = []
        self.gate = trio.Event()
        """Until it is set nothing is switched on."""
        self.gate.set()
        self.script: Callable[[Talk], None] = lambda _: None
        self.endpoint = Endpoint(SessionOpener(self._open, self._prepare), poll_after=poll_after)

    async def _open(self, session: HttpSession, name: str, is_kept: bool) -> None:
        self.sessions.append((name, is_kept))
        talk = Talk()
        self.script(talk)
        self.talks.append(talk)
        upstream = Upstream(
            session,
            session.lines,
            connection=ClientConnection(SessionKey(f"s{len(self.talks)}")),
            wants_dispatched=False,
            version="1",
            log=structlog.get_logger(),
        )
        self.upstreams.append(upstream)
        self._nursery.start_soon(upstream.run, talk)
        await trio.lowlevel.checkpoint()

    async def _prepare(self, session: HttpSession) -> None:
        await self.gate.wait()
        self.prepared.append(session)
        self.talks[-1].journal.append("prepared")
        await trio.lowlevel.checkpoint()

    def connect(self) -> Visitor:
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(HttpConnection(ours).serve, self._refusal, self.endpoint.respond)
        return Visitor(theirs)

    async def _refusal(self, request: HttpRequest) -> Refusal | None:
        return self._admission.refusal(request)

    async def initialized(self, **client: Any) -> dict[str, str]:
        """Open a session of the handshake generation; return the headers that name it."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO, **client}
        opened = await self.connect().ask("POST", rpc("initialize", params))
        named = {"mcp-session-id": opened.headers["mcp-session-id"]}
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        noted = await self.connect().ask("POST", told, named)
        assert noted.status == 202
        return named


@asynccontextmanager
async def fronted(*, poll_after: float = 0.0) -> AsyncIterator[Front]:
    async with trio.open_nursery() as nursery:
        front = Front(nursery, poll_after)
        nursery.start_soon(front.endpoint.run)
        await wait_all_tasks_blocked()
        yield front
        nursery.cancel_scope.cancel()


def rpc(method: str, params: Json | None = None, request_id: int | str = 1) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


def stateless(method: str, params: Json | None = None, request_id: int | str = 1) -> Json:
    return rpc(method, {**(params or {}), "_meta": META}, request_id)


def modern(method: str, name: str = "", **more: str) -> dict[str, str]:
    """Return the headers of a stateless request."""
    found = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, **more}
    return {**found, "mcp-name": name} if name else found
