"""A client's connection alone, with a conversation that does as the test says."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.clients import socket_sink
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.clients.socket_sink import SocketSink
from capd.adapters.clients.upstream import Upstream
from capd.adapters.stdio_frames import FrameReader
from capd.core.outcomes import NotSentError, OutcomeUnknownError, RefusedError, ServerError
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
        self.error: Exception | None = None
        self.hold: trio.Event | None = None

    def instructions(self) -> str:
        return "Be brief."

    def met(self, client: ClientFacts) -> None:
        self.met_clients.append(client)

    async def listed(self, kind: str) -> list[bytes]:
        await trio.lowlevel.checkpoint()
        return [b'{"name": "%s"}' % kind.encode()]

    async def relayed(self, request: Request) -> bytes:
        self.calls.append(request)
        await request.caller.dispatched()
        if self.run is not None:
            return await self.run(request)
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return b'{"content":[ ]}'

    async def subscribed(self, uri: str) -> bytes:
        await trio.lowlevel.checkpoint()
        self.journal.append(f"+{uri}")
        return b"{}"

    async def unsubscribed(self, uri: str) -> bytes:
        await trio.lowlevel.checkpoint()
        self.journal.append(f"-{uri}")
        return b"{}"

    async def wants_level(self, level: str) -> None:
        await trio.lowlevel.checkpoint()
        self.journal.append(level)

    def roots_changed(self) -> None:
        self.journal.append("roots")

    async def turn(self, text: str) -> bytes:
        return json.dumps({"said": text}).encode()

    def environment(self, values: dict[str, str]) -> None:
        self.values.update(values)


class Stage:
    def __init__(
        self, ours: trio.SocketStream, theirs: trio.SocketStream, *, dispatched: bool
    ) -> None:
        self.talk = Talk()
        self.client = theirs
        self.ended = trio.Event()
        self.upstream = Upstream(
            SocketSink(ours),
            FrameReader(ours),
            session=SessionKey("s"),
            client=ClientFacts(),
            wants_dispatched=dispatched,
            is_initialized=False,
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
        """Return every line that has come so far."""
        with trio.move_on_after(0.01):
            while chunk := await self.client.receive_some():
                self._received += bytes(chunk)
        *lines, self._received = self._received.split(b"\n")
        return lines


@asynccontextmanager
async def staged(*, dispatched: bool = False) -> AsyncIterator[Stage]:
    ours, theirs = trio.socket.socketpair()
    streams = trio.SocketStream(ours), trio.SocketStream(theirs)
    async with trio.open_nursery() as nursery:
        stage = Stage(*streams, dispatched=dispatched)
        nursery.start_soon(stage.run)
        try:
            yield stage
        finally:
            nursery.cancel_scope.cancel()
            for stream in streams:
                stream.socket.close()


LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}


async def test_a_list_and_a_result_are_passed_on_byte_for_byte(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        await stage.send({**CALL, "id": "a"})
        await stage.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})

        assert await stage.heard() == [
            b'{"jsonrpc":"2.0","id":"a","result":{"content":[ ]}}',
            b'{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name": "tools"}]}}',
        ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnknownNameError("no tool"), {"error": {"code": -32602, "message": "no tool"}}),
        (ServerError(b'{"code":-1,"x": 2}'), {"error": {"code": -1, "x": 2}}),
        (NotSentError("no"), {"capd/outcome": "not_sent", "capd/retriable": True}),
        (OutcomeUnknownError("no"), {"capd/outcome": "outcome_unknown", "capd/retriable": False}),
        (RefusedError("no"), {"capd/outcome": "refused", "capd/retriable": False}),
    ],
)
async def test_each_failure_has_its_own_answer(
    autojump_clock: MockClock, error: Exception, expected: Json
) -> None:
    async with staged() as stage:
        stage.talk.error = error
        await stage.send(CALL)

        answer = json.loads((await stage.heard())[0])

        if "error" in expected:
            assert answer["error"] == expected["error"]
        else:
            assert (answer["result"]["isError"], answer["result"]["_meta"]) == (True, expected)


async def test_dispatched_is_written_before_the_call_goes_on(autojump_clock: MockClock) -> None:
    async with staged(dispatched=True) as stage:
        stage.talk.hold = trio.Event()
        await stage.send(CALL)
        before = await stage.heard()
        stage.talk.hold.set()
        await wait_all_tasks_blocked()

        assert before == [b'{"capd":"dispatched","id":1}']
        assert len(await stage.heard()) == 1


async def test_notifications_wait_for_the_handshake(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        stage.upstream.list_changed("tools")
        await stage.send(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
        )
        stage.upstream.list_changed("tools")

        first, second = await stage.heard()
        assert json.loads(first)["result"]["instructions"] == "Be brief."
        assert second == LIST_CHANGED


async def test_environment_and_goodbye_are_link_frames(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.send(b'{"capd":"env","env":{"A":"1"}}', b'{"capd":"goodbye"}')
        await stage.ended.wait()

        assert stage.talk.values == {"A": "1"}
        assert stage.upstream.is_goodbye


async def test_a_closing_frame_comes_before_the_end(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await wait_all_tasks_blocked()
        stage.upstream.close("moved", reconnect=True)
        await stage.ended.wait()

        assert await stage.heard() == [
            b'{"capd":"closing","reason":"moved","reconnect":true}',
        ]
        assert not stage.upstream.is_goodbye


async def test_a_client_that_reads_nothing_is_given_up(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged() as stage:
        stage.upstream.is_initialized = True
        for _ in range(20_000):
            stage.upstream.list_changed("tools")
            await trio.lowlevel.checkpoint()

        await trio.sleep(socket_sink.WRITE_TIMEOUT + 1)

        assert stage.ended.is_set()


async def test_a_cancellation_on_the_heels_of_its_request_keeps_it_from_running(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
        lines = [json.dumps(each).encode() for each in (CALL, {"jsonrpc": "2.0", **cancel})]
        await stage.send(b"\n".join(lines))

        assert (stage.talk.calls, await stage.heard()) == ([], [])


async def test_a_turn_hands_over_the_users_words(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        turn = {"jsonrpc": "2.0", "id": 1, "method": "capd/turn", "params": {"text": "hi"}}
        await stage.send(turn)

        assert json.loads((await stage.heard())[0])["result"] == {"said": "hi"}
