"""Calls without a task of their own, over real sockets: each is sent once and ends once."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.clients.conversation import Request
from capd.adapters.servers.server_connection import ServerConnection
from capd.core.protocol.generations import Members
from capd.core.results.large_results import Result
from capd_protos.types import ServerName
from client_stage import Json, Stage, Talk, staged

TIMEOUT = 30.0


class TalkRoute:
    """A route that records each call of `leave` and its arguments."""

    def __init__(self, talk: "DirectTalk", members: Members) -> None:
        self._talk = talk
        self.server_connection = talk.server_connection
        self.members = members
        self.timeout: float | None = TIMEOUT

    def leave(
        self, result: Result | None, error: Exception | None = None, *, has_ended: bool = True
    ) -> bool:
        del error, has_ended
        self._talk.left.append(None if result is None else bytes(result))  # type: ignore[arg-type]  # no large one here
        return self._talk.is_release_due

    def is_unchanged(self, result: Result) -> bool:
        del result
        return self._talk.passed_as is None

    async def passed(self, result: Result) -> Result:
        del result
        await trio.lowlevel.checkpoint()
        assert self._talk.passed_as is not None
        return self._talk.passed_as

    async def release(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
            self._talk.released += 1


class DirectTalk(Talk):
    """A conversation whose tools all run on one server connection."""

    def __init__(self, server_connection: ServerConnection) -> None:
        super().__init__()
        self.server_connection = server_connection
        self.left: list[bytes | None] = []
        self.is_release_due = False
        self.passed_as: Result | None = None
        """What clients get of results, where these are not passed on as they came."""
        self.released = 0

    def direct_route(self, request: Request) -> TalkRoute:  # type: ignore[override]  # the fake has none
        return TalkRoute(self, request.members)


class Server:
    """The far end of a server connection."""

    def __init__(self) -> None:
        stdin, self._stdin = socket.socketpair()
        self._stdout, stdout = socket.socketpair()
        self._streams = [
            trio.SocketStream(trio.socket.from_stdlib_socket(each))
            for each in (stdin, self._stdin, self._stdout, stdout)
        ]
        self.log: list[str] = []
        self.server_connection = ServerConnection(
            ServerName("alpha"),
            self._streams[0],
            self._streams[3],
            on_list_changed=self.log.append,
            log=structlog.get_logger(),
        )

    async def told(self) -> list[Json]:
        """Return the lines that it has not read yet."""
        await wait_all_tasks_blocked()
        found = b""
        while True:
            try:
                found += self._stdin.recv(1 << 20)
            except BlockingIOError:
                return [json.loads(line) for line in found.splitlines()]

    async def say(self, *messages: Json) -> None:
        lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
        await self._streams[2].send_all(b"\n".join(lines) + b"\n")
        await wait_all_tasks_blocked()

    def fill(self) -> None:
        """Be one that has not read for so long that nothing more goes in."""
        fill(self._streams[0])

    def close(self) -> None:
        for stream in self._streams:
            stream.socket.close()


class Scene:
    def __init__(self, stage: Stage, server: Server, talk: DirectTalk) -> None:
        self.stage = stage
        self.server = server
        self.talk = talk

    async def answers(self) -> list[Json]:
        return [json.loads(line) for line in await self.stage.heard()]


@asynccontextmanager
async def scene(*, dispatched: bool = False) -> AsyncIterator[Scene]:
    server = Server()
    talk = DirectTalk(server.server_connection)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.server_connection.run)
        async with staged(dispatched=dispatched, talk=talk) as stage:
            await wait_all_tasks_blocked()
            yield Scene(stage, server, talk)
        nursery.cancel_scope.cancel()
    server.close()


def fill(stream: trio.SocketStream) -> None:
    """Write blanks until nothing more goes in."""
    with socket.socket(fileno=stream.socket.fileno()) as ours:
        try:
            while True:
                ours.send(b" " * 4096)
        except BlockingIOError:
            ours.detach()


def call(request_id: int | str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def cancelled(request_id: int | str) -> Json:
    params = {"requestId": request_id}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def chunk(*messages: Json) -> bytes:
    return b"\n".join(json.dumps(message).encode() for message in messages)


async def test_a_call_is_told_then_written_and_its_reply_answers_it(
    autojump_clock: MockClock,
) -> None:
    async with scene(dispatched=True) as it:
        await it.stage.send(call("a", name="t", arguments={"x": 1}))
        (written,) = await it.server.told()
        await it.server.say({"id": written["id"], "result": {"content": []}})

        assert written["params"] == {"name": "t", "arguments": {"x": 1}}
        assert await it.stage.heard() == [
            b'{"capd":"dispatched","id":"a"}',
            b'{"jsonrpc":"2.0","id":"a","result":{"content": []}}',
        ]
        assert (it.talk.calls, it.talk.left) == ([], [b'{"content": []}'])


async def test_a_client_that_is_silent_during_a_long_call_gets_its_result(
    autojump_clock: MockClock,
) -> None:
    async with scene() as it:
        await it.stage.send(call("a", name="t"))
        (written,) = await it.server.told()
        # What `Parking` does with a connection whose client says nothing for half a minute.
        for _ in range(3):
            it.stage.upstream.park_if_idle()
            await wait_all_tasks_blocked()
        assert not it.stage.upstream.is_idle
        await it.server.say({"id": written["id"], "result": {"content": []}})

        assert await it.stage.heard() == [b'{"jsonrpc":"2.0","id":"a","result":{"content": []}}']


async def test_a_result_that_is_not_left_as_it_came_is_answered_as_it_is_passed(
    autojump_clock: MockClock,
) -> None:
    async with scene() as it:
        it.talk.passed_as = b'{"content":["short"]}'
        await it.stage.send(chunk(call("a", name="t"), call("b", name="t")))
        written = await it.server.told()
        await it.server.say(*({"id": each["id"], "result": {"content": []}} for each in written))

        # Each is passed in a task of its own, so their order is open.
        assert sorted(await it.stage.heard()) == [
            b'{"jsonrpc":"2.0","id":"a","result":{"content":["short"]}}',
            b'{"jsonrpc":"2.0","id":"b","result":{"content":["short"]}}',
        ]
        assert it.talk.left == [b'{"content": []}'] * 2


async def test_the_calls_of_one_chunk_keep_their_order_and_each_its_own_answer(
    autojump_clock: MockClock,
) -> None:
    async with scene() as it:
        await it.stage.send(chunk(*(call(number, name=f"t{number}") for number in range(20))))
        written = await it.server.told()
        await it.server.say(*({"id": w["id"], "result": w["params"]} for w in reversed(written)))

        assert [each["params"]["name"] for each in written] == [f"t{n}" for n in range(20)]
        assert [(each["id"], each["result"]["name"]) for each in await it.answers()] == [
            (number, f"t{number}") for number in reversed(range(20))
        ]


async def test_a_cancellation_in_the_same_chunk_sends_nothing(autojump_clock: MockClock) -> None:
    async with scene(dispatched=True) as it:
        await it.stage.send(chunk(call(1, name="t"), cancelled(1), call(2, name="u")))

        assert [each["params"]["name"] for each in await it.server.told()] == ["u"]
        assert await it.stage.heard() == [b'{"capd":"dispatched","id":2}']
        assert it.talk.left == [None]


async def test_a_cancelled_call_tells_the_server_once_and_has_no_answer(
    autojump_clock: MockClock,
) -> None:
    async with scene() as it:
        await it.stage.send(call(1, name="t"))
        (written,) = await it.server.told()

        await it.stage.send(cancelled(1))
        await it.stage.send(cancelled(1))

        told = [each["params"]["requestId"] for each in await it.server.told()]
        await it.server.say({"id": written["id"], "result": {}})
        assert told == [written["id"]]
        assert (await it.stage.heard(), it.talk.left) == ([], [None])
        assert it.server.server_connection.counts["unknown_reply"] == 1


async def test_a_client_that_vanishes_has_its_calls_cancelled_and_lets_go(
    autojump_clock: MockClock,
) -> None:
    async with scene() as it:
        it.talk.is_release_due = True
        await it.stage.send(call(1, name="t"), call(2, name="t"))
        written = await it.server.told()

        await it.stage.client.aclose()

        told = [each["params"]["requestId"] for each in await it.server.told()]
        assert told == [each["id"] for each in written]
        assert (it.talk.left, it.talk.released) == ([None, None], 2)


async def test_a_server_that_dies_leaves_an_unknown_outcome(autojump_clock: MockClock) -> None:
    async with scene() as it:
        await it.stage.send(call(1, name="t"))

        it.server.server_connection.close("exited")

        (answer,) = await it.answers()
        assert answer["result"]["_meta"]["capd/outcome"] == "outcome_unknown"
        assert it.talk.left == [None]


async def test_a_servers_error_is_passed_on_as_it_is(autojump_clock: MockClock) -> None:
    async with scene() as it:
        await it.stage.send(call(1, name="t"))
        (written,) = await it.server.told()

        await it.server.say({"id": written["id"], "error": {"code": -7, "message": "", "x": 1}})

        assert [each["error"] for each in await it.answers()] == [
            {"code": -7, "message": "", "x": 1}
        ]


async def test_silence_ends_a_call_and_progress_extends_it(autojump_clock: MockClock) -> None:
    async with scene() as it:
        await it.stage.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await it.stage.send(call(1, name="t", _meta={"progressToken": "p"}), call(2, name="t"))
        began_at = trio.current_time()
        first, second = await it.server.told()
        await trio.sleep(TIMEOUT - 1)
        token = first["params"]["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": 1}
        await it.server.say({"method": "notifications/progress", "params": progress})

        ended: dict[int, float] = {}
        heard: list[Json] = []
        while trio.current_time() < began_at + 3 * TIMEOUT:
            await trio.sleep(0.5)
            heard += await it.answers()
            for each in heard:
                if "result" in each:
                    ended.setdefault(each["id"], round(trio.current_time() - began_at))

        assert ended == {2: TIMEOUT, 1: 2 * TIMEOUT - 1}
        assert heard[0]["params"] == {"progressToken": "p", "progress": 1}
        assert {each["result"]["_meta"]["capd/outcome"] for each in heard if "result" in each} == {
            "outcome_unknown"
        }
        told = [each["params"]["requestId"] for each in await it.server.told()]
        assert told == [second["id"], first["id"]]


async def test_a_call_beyond_the_sessions_share_goes_the_long_way(
    autojump_clock: MockClock,
) -> None:
    async with scene() as it:
        await it.stage.send(chunk(*(call(number, name="t") for number in range(33))))
        written = await it.server.told()
        waiting = len(it.talk.calls)
        await it.server.say({"id": written[0]["id"], "result": {}})

        assert (len(written), waiting, len(it.talk.calls)) == (32, 0, 1)
        assert [each["id"] for each in await it.answers()] == [0, 32]


@pytest.mark.parametrize("full", ["the server's", "the client's"])
async def test_where_nothing_more_goes_in_a_call_goes_the_long_way(
    autojump_clock: MockClock, full: str
) -> None:
    async with scene(dispatched=full == "the client's") as it:
        held = trio.Event()
        it.talk.hold = held
        if full == "the server's":
            it.server.fill()
        else:
            note = b'{"jsonrpc":"2.0","method":"notifications/x","params":"%s"}' % (b"x" * 200_000)
            for _ in range(5):
                it.stage.upstream.post(note)

        await it.stage.send(call(1, name="t"))

        assert it.talk.left == [None]
        it.server.server_connection.close("exited")
        assert it.talk.left == [None]
        assert [request.members.keys() for request in it.talk.calls] == [{"name"}]
        assert full == "the server's" or await it.server.told() == []


@pytest.mark.parametrize("size", [10, 60_000])
async def test_answers_to_a_client_that_reads_late_all_arrive_once(
    autojump_clock: MockClock, size: int
) -> None:
    async with scene() as it:
        await it.stage.send(chunk(*(call(number, name="t") for number in range(8))))
        written = await it.server.told()
        fill(it.stage.ours)

        await it.server.say(*({"id": each["id"], "result": {"t": "x" * size}} for each in written))

        heard: list[Json] = []
        for _ in range(100):
            heard += await it.answers()
        assert sorted((each["id"], len(each["result"]["t"])) for each in heard) == [
            (number, size) for number in range(8)
        ]
        assert len(it.talk.left) == 8


async def test_what_is_over_makes_room_for_the_next(autojump_clock: MockClock) -> None:
    async with scene() as it:
        answered = []
        for number in range(200):
            await it.stage.send(call(number, name="t"))
            for written in await it.server.told():
                await it.server.say({"id": written["id"], "result": {}})
            answered += [each["id"] for each in await it.answers() if "result" in each]

        assert answered == list(range(200))
        assert it.talk.calls == []


async def test_two_calls_of_one_id_both_end_with_their_connection(
    autojump_clock: MockClock,
) -> None:
    async with scene() as it:
        await it.stage.send(chunk(call("a", name="t"), call("a", name="t")))
        written = await it.server.told()

        await it.stage.client.aclose()
        await it.stage.ended.wait()
        told = await it.server.told()
        await it.server.say(*({"id": each["id"], "result": {}} for each in written))

        ended = {each["params"]["requestId"] for each in told}
        assert ended == {each["id"] for each in written}
        assert it.server.server_connection.is_alive
