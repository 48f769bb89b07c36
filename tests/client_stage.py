"""A client's connection with a conversation that the test scripts."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from capd.adapters.clients.client_connection import ClientConnection
from capd.adapters.clients.conversation import Request
from capd.adapters.clients.socket_sink import SocketSink
from capd.adapters.clients.upstream import Upstream
from capd.adapters.stdio_frames import FrameReader
from capd_protos.types import ClientFacts, SessionKey

Json = dict[str, Any]


class Talk:
    """A conversation with a journal."""

    def __init__(self) -> None:
        self.calls: list[Request] = []
        self.met_clients: list[ClientFacts] = []
        self.journal: list[str] = []
        self.run: Callable[[Request], Awaitable[bytes]] | None = None
        self.values: dict[str, str] = {}
        self.watched: list[str] = []
        self.error: Exception | None = None
        self.hold: trio.Event | None = None

    async def start(self) -> None:
        pass

    async def wait_ready(self) -> None:
        pass

    def extensions(self) -> dict[str, msgspec.Raw]:
        return {}

    def instructions(self) -> str:
        return "Be brief."

    def on_client_info(self, client: ClientFacts) -> None:
        self.met_clients.append(client)

    async def list_entries(self, kind: str) -> list[bytes]:
        await trio.lowlevel.checkpoint()
        return [b'{"name": "%s"}' % kind.encode()]

    async def relay(self, request: Request) -> bytes:
        self.calls.append(request)
        await request.caller.dispatched()
        if self.run is not None:
            return await self.run(request)
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return b'{"content":[ ]}'

    def direct_route(self, request: Request) -> None:
        del request

    async def watch_task(self, task: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return b"{}" if task in self.watched else None

    def unwatch_task(self, task: str) -> None:
        self.watched.remove(task)

    async def subscribe(self, uri: str) -> bytes:
        await trio.lowlevel.checkpoint()
        self.journal.append(f"+{uri}")
        return b"{}"

    async def unsubscribe(self, uri: str) -> bytes:
        await trio.lowlevel.checkpoint()
        self.journal.append(f"-{uri}")
        return b"{}"

    async def follow_level(self) -> None:
        await trio.lowlevel.checkpoint()
        self.journal.append("level")

    async def renew_subscriptions(self) -> None:
        await trio.lowlevel.checkpoint()

    def on_roots_changed(self) -> None:
        self.journal.append("roots")

    async def turn(self, text: str) -> bytes:
        return json.dumps({"said": text}).encode()

    def on_environment(self, values: dict[str, str]) -> None:
        self.values.update(values)


class Stage:
    def __init__(
        self,
        ours: trio.SocketStream,
        theirs: trio.SocketStream,
        *,
        dispatched: bool,
        talk: Talk | None,
        connection: ClientConnection | None = None,
    ) -> None:
        self.talk = talk or Talk()
        self.client = theirs
        self.ours = ours
        self.ended = trio.Event()
        self.connection = connection or ClientConnection(SessionKey("s"))
        self.upstream = Upstream(
            SocketSink(ours),
            FrameReader(ours),
            connection=self.connection,
            wants_dispatched=dispatched,
            version="1",
            log=structlog.get_logger(),
        )
        self._received = b""

    async def run(self) -> None:
        await self.upstream.run(self.talk)
        self.ended.set()

    async def send(self, *messages: Json | bytes) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            await self.client.send_all(line + b"\n")
        await wait_all_tasks_blocked()

    async def heard(self) -> list[bytes]:
        """Return every line that has been received."""
        with trio.move_on_after(0.01):
            while chunk := await self.client.receive_some():
                self._received += bytes(chunk)
        *lines, self._received = self._received.split(b"\n")
        return lines


@asynccontextmanager
async def staged(
    *,
    dispatched: bool = False,
    talk: Talk | None = None,
    connection: ClientConnection | None = None,
) -> AsyncIterator[Stage]:
    ours, theirs = trio.socket.socketpair()
    streams = trio.SocketStream(ours), trio.SocketStream(theirs)
    async with trio.open_nursery() as nursery:
        stage = Stage(*streams, dispatched=dispatched, talk=talk, connection=connection)
        nursery.start_soon(stage.run)
        try:
            yield stage
        finally:
            nursery.cancel_scope.cancel()
            for stream in streams:
                stream.socket.close()
