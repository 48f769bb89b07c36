"""A connection to a scripted server: each call ends once, with its own answer."""

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, memory_stream_one_way_pair, wait_all_tasks_blocked

from capd.adapters.servers import server_connection as connection_module
from capd.adapters.servers.callers import CallHooks
from capd.adapters.servers.listings import list_tools
from capd.adapters.servers.negotiation import HandshakeError, negotiate
from capd.adapters.servers.server_connection import ConnectionBrokenError, ServerConnection
from capd.core.protocol.outcomes import CallFailedError, NotSentError, ServerError
from capd_protos.types import ClientFacts, ServerName
from connection_calls import call_tool

Json = dict[str, Any]


class Narrow(trio.abc.SendStream):
    """A server's stdin that takes nothing while its gate is closed."""

    def __init__(self, journal: list[str]) -> None:
        self.taken = b""
        self.gate = trio.Event()
        self.gate.set()
        self._journal = journal

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._journal.append("first byte")
        await self.gate.wait()
        await trio.lowlevel.checkpoint()
        self.taken += bytes(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.gate.wait()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Stage:
    """A server connection, the lines that the server has read, and its answers."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.stdin = Narrow(self.journal)
        self.stdout, receive = memory_stream_one_way_pair()
        self.changes: list[str] = []
        self.broken: list[str] = []
        self.server_connection = ServerConnection(
            ServerName("alpha"),
            self.stdin,
            receive,
            on_list_changed=self._changed,
            log=structlog.get_logger(),
        )

    def _changed(self, what: str) -> None:
        self.changes.append(what)

    async def run(self) -> None:
        try:
            await self.server_connection.run()
        except* ConnectionBrokenError as errors:
            self.broken += [str(error) for error in errors.exceptions]
            self.server_connection.close("broke the protocol")

    async def say(self, *messages: Json | bytes) -> None:
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            await self.stdout.send_all(line + b"\n")
        await wait_all_tasks_blocked()

    async def answer(self, request: Json, result: object) -> None:
        await self.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def read(self, method: str = "") -> list[Json]:
        lines = [json.loads(line) for line in self.stdin.taken.splitlines()]
        return [line for line in lines if not method or line.get("method") == method]

    async def asked(self, count: int = 1) -> list[Json]:
        """Wait until the server has read `count` calls; return them."""
        await wait_all_tasks_blocked()
        calls = self.read("tools/call")
        assert len(calls) == count, calls
        return calls

    async def call(self, meta: bytes = b"", *, timeout: float | None = None, **hooks: Any) -> bytes:
        caller = CallHooks(**{f"on_{name}": hook for name, hook in hooks.items()})
        return await call_tool(
            self.server_connection, "echo", b'{"a":1}', meta, timeout=timeout, caller=caller
        )


class Call:
    """One call in its own task, and how often it ended."""

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self.scope = trio.CancelScope()
        self.ends: list[bytes | Exception] = []
        self._make = make

    async def run(self) -> None:
        with self.scope:
            try:
                self.ends.append(await self._make())
            except (CallFailedError, ServerError) as error:
                self.ends.append(error)

    @property
    def kinds(self) -> list[str]:
        return [
            "result" if isinstance(end, bytes) else getattr(end, "outcome", "error")
            for end in self.ends
        ]

    @property
    def text(self) -> str:
        return str(self.ends[0])


@asynccontextmanager
async def staged() -> AsyncIterator[tuple[Stage, Callable[..., Call]]]:
    stage = Stage()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.run)

        def start(*args: Any, **kwargs: Any) -> Call:
            call = Call(lambda: stage.call(*args, **kwargs))
            nursery.start_soon(call.run)
            return call

        yield stage, start
        nursery.cancel_scope.cancel()


# Ids and replies


async def test_ids_never_meet_and_each_reply_finds_its_call(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        calls = [start() for _ in range(40)]
        asked = await stage.asked(40)

        assert len({each["id"] for each in asked}) == 40
        for request in reversed(asked):
            await stage.answer(request, {"for": request["id"]})

        assert [call.kinds for call in calls] == [["result"]] * 40
        results = {call.ends[0] for call in calls}
        assert results == {b'{"for": %d}' % each["id"] for each in asked}


async def test_a_result_is_passed_on_byte_for_byte(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        call = start()
        request = (await stage.asked())[0]
        result = b'{ "content":[ ],"x" : 1e999999, "\\u00e9": "\xc3\xa9" }'

        await stage.say(b'{"id":%d,"jsonrpc":"2.0","result":%s}' % (request["id"], result))

        assert call.ends == [result]
        assert request["params"] == {"name": "echo", "arguments": {"a": 1}}


@pytest.mark.parametrize(
    ("size_bytes", "half"), [(1 << 10, rb"\ud83d"), (2 << 20, rb"\ufffd"), (15 << 20, rb"\ufffd")]
)
async def test_a_text_that_was_cut_inside_an_emoji_is_no_lost_result(
    autojump_clock: MockClock, size_bytes: int, half: bytes
) -> None:
    async with staged() as (stage, start):
        call = start()
        request = (await stage.asked())[0]
        text = rb"\ud83d\ude00\"\\ud83d" + b"x" * size_bytes

        result = rb'{"content":[{"type":"text", "text":"%s\ud83d"}]}' % text
        await stage.say(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (request["id"], result))

        assert call.ends == [rb'{"content":[{"type":"text", "text":"%s%s"}]}' % (text, half)]
        assert stage.server_connection.counts == {}


async def test_a_second_reply_to_one_call_is_dropped_and_counted(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        call = start()
        request = (await stage.asked())[0]

        first, second = (b'{"id":%d,"result":"%s"}' % (request["id"], n) for n in (b"a", b"b"))
        await stage.say(first + b"\n" + second)

        assert call.ends == [b'"a"']
        assert stage.server_connection.counts == {"unknown_reply": 1}


@pytest.mark.parametrize("written", ['"%d"', "%d.0", "%de0"])
async def test_a_reply_may_repeat_the_id_as_another_json_value(
    autojump_clock: MockClock, written: str
) -> None:
    """Some servers do so, and the SDKs' clients take the reply for that of the same request."""
    notes: list[bytes] = []
    async with staged() as (stage, start):
        call = start(b'{"progressToken":"p"}', progress=notes.append)
        request = (await stage.asked())[0]
        same = written % request["id"]

        await stage.say(
            b'{"method":"notifications/progress","params":{"progressToken":%s}}' % same.encode(),
            b'{"id":%s,"result":"mine"}' % same.encode(),
        )

        assert (call.ends, len(notes)) == ([b'"mine"'], 1)
        assert stage.server_connection.counts == {}


async def test_replies_that_nobody_waits_for_reach_nobody(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        call = start()
        request = (await stage.asked())[0]

        others = (0, request["id"] - 1, request["id"] + 1, 10**30, request["id"] + 0.5, None)
        for foreign in (*others, f"{request['id']}0", f" {request['id']}", "9" * 5000, ""):
            await stage.say({"jsonrpc": "2.0", "id": foreign, "result": "STOLEN"})
        await stage.say({"jsonrpc": "2.0", "id": [1], "result": "STOLEN"})

        assert call.ends == []
        assert stage.server_connection.counts == {"unknown_reply": 10, "junk_lines": 1}
        await stage.answer(request, "mine")
        assert call.ends == [b'"mine"']


async def test_a_servers_error_is_passed_on_as_it_is(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        call = start()
        request = (await stage.asked())[0]

        error = {"code": -1, "message": ""}
        await stage.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

        told = call.ends[0]
        assert isinstance(told, ServerError)
        assert told.error == b'{"code": -1, "message": ""}'


# Lines that are no messages


async def test_junk_is_counted_logged_five_times_and_survived(
    autojump_clock: MockClock,
) -> None:
    with capture_logs() as logs:
        async with staged() as (stage, start):
            call = start()
            request = (await stage.asked())[0]
            await stage.say(b"Starting\x1b[2J", b"\xff\xfe", b"[]", b"42", b"null", b"{", b"{}")
            await stage.answer(request, "fine")

            assert call.kinds == ["result"]
            assert stage.server_connection.counts["junk_lines"] == 7
    assert len(logs) == 5
    assert "\x1b" not in repr([entry["begins"] for entry in logs])


@pytest.mark.parametrize(
    "lines",
    [[b"noise"] * 1001, [b"x" * 300_000] * 4, [b'{"x":"%s"}' % (b"y" * 300_000)] * 4],
)
async def test_a_flood_of_junk_ends_the_connection_and_every_call(
    autojump_clock: MockClock, lines: list[bytes]
) -> None:
    async with staged() as (stage, start):
        call = start()
        await stage.asked()

        for line in lines:
            await stage.stdout.send_all(line + b"\n")
        await wait_all_tasks_blocked()

        assert len(stage.broken) == 1
        assert "writes what is not MCP" in stage.broken[0]
        assert call.kinds == ["outcome_unknown"]


async def test_a_server_that_says_a_little_junk_for_ever_is_no_flood(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        for number in range(1, 1500):
            await stage.stdout.send_all(b"[log] a request came in\n")
            if number % 100 == 0:
                call = start()
                await stage.answer((await stage.asked(number // 100))[-1], "fine")
                assert call.kinds == ["result"]

        assert stage.broken == []


@pytest.mark.parametrize(
    "rest",
    [
        b'"result":{"content":[{"type":"text","text":"\xff\xfe"}]}}',
        b'"result":{"v":NaN}}',
        b'"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'"result":{"cut',
        b'"method":7}',
    ],
)
async def test_an_unreadable_reply_fails_its_own_call_at_once(
    autojump_clock: MockClock, rest: bytes
) -> None:
    async with staged() as (stage, start):
        mine = start()
        first = (await stage.asked())[0]
        other = start()
        second = (await stage.asked(2))[1]
        started_at = trio.current_time()

        await stage.say(b'{"jsonrpc":"2.0","id":%d,' % first["id"] + rest)

        assert mine.kinds == ["outcome_unknown"]
        assert "the call has run, its result is lost" in mine.text
        assert trio.current_time() == started_at
        await stage.answer(second, "fine")
        assert other.ends == [b'"fine"']


async def test_an_oversized_reply_fails_its_own_call_with_its_size(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        stage.server_connection._reader._cap_bytes = 1000
        mine = start()
        first = (await stage.asked())[0]
        other = start()
        second = (await stage.asked(2))[1]
        line = b'{"jsonrpc":"2.0","id":%d,"result":"%s"}' % (first["id"], b"x" * 5000)

        await stage.say(line)

        assert mine.kinds == ["outcome_unknown"]
        assert f"a line of {len(line)} bytes is over the limit" in mine.text
        await stage.answer(second, "fine")
        assert other.kinds == ["result"]


# Progress and patience


def progress(token: object) -> Json:
    params = {"progressToken": token, "progress": 1}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


async def test_progress_finds_its_call_by_the_connections_own_token(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        heard: dict[str, list[bytes]] = {"a": [], "b": []}
        for name, notes in heard.items():
            start(b'{"progressToken":"same","k":"%s"}' % name.encode(), progress=notes.append)
        first, second = await stage.asked(2)

        for request in (first, second):
            assert request["params"]["_meta"]["progressToken"] == request["id"]
        await stage.say(progress(first["id"]), progress("same"), progress(999), progress([1]))

        mine = first["params"]["_meta"]["k"]
        assert {name: len(notes) for name, notes in heard.items()} == {"a": 0, "b": 0, mine: 1}
        assert stage.server_connection.counts == {
            "unknown_progress": 2,
            "malformed_notification": 1,
        }


@pytest.mark.parametrize("meta", [b'{"x":"progressToken"}', b'{"a/b":[1, 2]}'])
async def test_meta_without_a_token_of_its_own_is_not_touched(
    autojump_clock: MockClock, meta: bytes
) -> None:
    async with staged() as (stage, start):
        start(meta)
        await wait_all_tasks_blocked()

        assert b'"_meta":' + meta + b"}" in stage.stdin.taken


async def test_progress_extends_the_wait_and_silence_ends_it(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        call = start(b'{"progressToken":1}', timeout=10)
        request = (await stage.asked())[0]

        for _ in range(5):
            await trio.sleep(8)
            await stage.say(progress(request["id"]))
        assert call.ends == []
        await trio.sleep(11)

        assert call.kinds == ["outcome_unknown"]
        cancelled = stage.read("notifications/cancelled")
        assert [each["params"]["requestId"] for each in cancelled] == [request["id"]]
        await stage.answer(request, "late")
        assert stage.server_connection.counts == {"unknown_reply": 1}


async def test_progress_does_not_extend_the_wait_beyond_the_longest_call(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        stage.server_connection.longest_call = 30.0
        call = start(b'{"progressToken":1}', timeout=10)
        request = (await stage.asked())[0]

        for _ in range(4):
            await trio.sleep(7)
            await stage.say(progress(request["id"]))
        assert call.ends == []
        await trio.sleep(3)

        assert call.kinds == ["outcome_unknown"]


async def test_no_server_can_guess_the_next_id(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        for _ in range(40):
            start()
        ids = [request["id"] for request in await stage.asked(40)]

    steps = {second - first for first, second in itertools.pairwise(ids)}
    assert len(steps) == 39
    assert all(0 < each < 2**31 for each in ids)


async def test_without_a_timeout_of_its_own_a_call_has_half_an_hour(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        call = start()
        await stage.asked()

        await trio.sleep(connection_module.IDLE_TIMEOUT - 1)
        assert call.ends == []
        await trio.sleep(2)

        assert call.kinds == ["outcome_unknown"]


# Cancelling


async def test_a_cancelled_call_tells_the_server_once(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        call = start()
        request = (await stage.asked())[0]

        call.scope.cancel()
        await wait_all_tasks_blocked()

        assert call.ends == []
        told = stage.read("notifications/cancelled")
        assert [each["params"]["requestId"] for each in told] == [request["id"]]


async def test_a_call_that_is_cancelled_unsent_tells_the_server_nothing(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        stage.stdin.gate = trio.Event()
        blocking = start()
        await wait_all_tasks_blocked()
        waiting = start()
        await wait_all_tasks_blocked()

        waiting.scope.cancel()
        await wait_all_tasks_blocked()
        stage.stdin.gate.set()
        request = (await stage.asked())[0]

        assert stage.read("notifications/cancelled") == []
        await stage.answer(request, "fine")
        assert blocking.kinds == ["result"]


async def test_a_call_that_is_cancelled_while_it_is_written_is_written_whole(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        stage.stdin.gate = trio.Event()
        call = start()
        await wait_all_tasks_blocked()

        call.scope.cancel()
        await wait_all_tasks_blocked()
        stage.stdin.gate.set()
        await wait_all_tasks_blocked()

        assert [line["method"] for line in stage.read()] == [
            "tools/call",
            "notifications/cancelled",
        ]


# What was sent, and what was not


async def test_dispatched_is_over_before_the_first_byte(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):

        async def dispatched() -> None:
            await trio.sleep(5)
            stage.journal.append("dispatched")

        start(dispatched=dispatched)
        await trio.sleep(10)

        assert stage.journal == ["dispatched", "first byte"]


async def test_a_caller_that_cannot_be_told_sends_nothing(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):

        async def dispatched() -> None:
            await trio.lowlevel.checkpoint()
            raise NotSentError("the client has disconnected")

        call = start(dispatched=dispatched)
        await wait_all_tasks_blocked()

        assert (call.kinds, stage.stdin.taken) == (["not_sent"], b"")


async def test_a_death_tells_what_was_sent_from_what_was_not(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        sent = start()
        await stage.asked()
        stage.stdin.gate = trio.Event()
        being_written = start()
        await wait_all_tasks_blocked()
        queued = start()

        async def never() -> None:
            await trio.sleep(1)

        undispatched = start(dispatched=never)
        await wait_all_tasks_blocked()

        stage.server_connection.close("exited with code 9")
        await stage.stdout.aclose()
        await trio.sleep(5)

        assert sent.kinds == ["outcome_unknown"]
        assert "exited with code 9; the call may have run" in sent.text
        assert being_written.kinds == ["outcome_unknown"]
        assert queued.kinds == ["not_sent"]
        assert undispatched.kinds == ["not_sent"]
        late = start()
        await wait_all_tasks_blocked()
        assert late.kinds == ["not_sent"]
        assert "is not running: exited with code 9" in late.text


async def test_a_call_that_waits_too_long_to_be_written_was_not_sent(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        stage.stdin.gate = trio.Event()
        being_written = start(timeout=3)
        await wait_all_tasks_blocked()
        queued = start(timeout=2)
        undispatched = start(timeout=1, dispatched=trio.sleep_forever)
        await trio.sleep(4)

        assert undispatched.kinds == ["not_sent"]
        assert queued.kinds == ["not_sent"]
        assert being_written.kinds == ["outcome_unknown"]
        assert "did not answer within 2 s; the call was not sent" in queued.text
        stage.stdin.gate.set()
        await wait_all_tasks_blocked()
        assert [line["method"] for line in stage.read()] == [
            "tools/call",
            "notifications/cancelled",
        ]


async def test_a_server_that_stops_reading_refuses_what_does_not_fit(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        stage.stdin.gate = trio.Event()
        calls = [start() for _ in range(1100)]
        await wait_all_tasks_blocked()

        refused = [call for call in calls if call.ends]
        assert [call.kinds for call in refused] == [["not_sent"]] * 76
        await trio.sleep(connection_module.WRITE_TIMEOUT + 1)

        assert "did not read a frame" in stage.broken[0]
        kinds = sorted(call.kinds[0] for call in calls)
        assert kinds == ["not_sent"] * 1099 + ["outcome_unknown"]


async def test_a_line_that_never_ends_breaks_the_connection(autojump_clock: MockClock) -> None:
    async with staged() as (stage, start):
        call = start()
        await stage.asked()
        await stage.stdout.send_all(b'{"jsonrpc":"2.0","id":1,"resu')

        await trio.sleep(31)

        assert "has not ended" in stage.broken[0]
        assert call.kinds == ["outcome_unknown"]


# Requests and notifications of the server


async def test_a_ping_is_answered_and_everything_else_is_not_offered(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, _):
        await stage.say(
            {"jsonrpc": "2.0", "id": "p", "method": "ping"},
            {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}},
            {"jsonrpc": "2.0", "id": 2, "method": "elicitation/create", "params": {}},
            {"jsonrpc": "2.0", "id": 3, "method": "roots/list"},
        )

        answers = stage.read()
        assert answers[0] == {"jsonrpc": "2.0", "id": "p", "result": {}}
        assert [each["error"]["code"] for each in answers[1:]] == [-32601] * 3
        assert sorted(each["id"] for each in answers[1:]) == [1, 2, 3]


async def test_a_servers_request_with_a_calls_number_is_no_reply_to_it(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, start):
        call = start()
        request = (await stage.asked())[0]

        await stage.say(
            {"jsonrpc": "2.0", "id": request["id"], "method": "ping", "result": "STOLEN"}
        )

        assert call.ends == []


async def test_changed_tools_are_told_and_other_notifications_ignored(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, _):
        for method in ("tools/list_changed", "message", "tools/list_changed", "future"):
            await stage.say({"jsonrpc": "2.0", "method": f"notifications/{method}"})

        assert stage.changes == ["tools", "tools"]
        assert stage.server_connection.counts == {"unclaimed_notification": 2}


# The handshake


CLIENT = ClientFacts("2025-11-25", b'{"name":"editor","version":"1.2"}', b'{"roots":{}}')


async def served(stage: Stage, *answers: Json) -> None:
    """Answer the server connection's own requests in their order."""
    for number, answer in enumerate(answers):
        await wait_all_tasks_blocked()
        requests = [each for each in stage.read() if "id" in each]
        await stage.say({"jsonrpc": "2.0", "id": requests[number]["id"], **answer})


async def test_the_handshake_offers_what_the_client_offers_and_is_completed(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, _), trio.open_nursery() as nursery:
        nursery.start_soon(served, stage, {"result": {"protocolVersion": "2025-03-26"}})
        await negotiate(stage.server_connection, CLIENT, wants_stateless=False, timeout=10)
        await wait_all_tasks_blocked()

        first, second = stage.read()
        assert first["params"] == {
            "protocolVersion": "2025-11-25",
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "editor", "version": "1.2"},
        }
        assert second == {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert stage.server_connection.protocol_version == "2025-03-26"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"result": {"protocolVersion": "1999"}}, "speaks protocol '1999', none of"),
        ({"result": {}}, "answered initialize with"),
        ({"result": 7}, "answered initialize with"),
    ],
)
async def test_a_handshake_that_goes_wrong_says_how(
    autojump_clock: MockClock, answer: Json, expected: str
) -> None:
    async with staged() as (stage, _), trio.open_nursery() as nursery:
        nursery.start_soon(served, stage, answer)
        with pytest.raises(HandshakeError, match=expected):
            await negotiate(stage.server_connection, CLIENT, wants_stateless=False, timeout=10)


async def test_a_handshake_without_an_answer_ends_and_is_not_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with staged() as (stage, _):
        with pytest.raises(HandshakeError, match="did not answer within 10 s"):
            await negotiate(stage.server_connection, CLIENT, wants_stateless=False, timeout=10)

        # MCP: a client must not cancel `initialize`.
        assert stage.read("notifications/cancelled") == []


def page(*names: str, cursor: str | None = None) -> Json:
    tools = [{"name": name, "inputSchema": {}} for name in names]
    return {"result": {"tools": tools, **({"nextCursor": cursor} if cursor else {})}}


async def test_pages_are_followed_until_a_cursor_repeats(autojump_clock: MockClock) -> None:
    async with staged() as (stage, _), trio.open_nursery() as nursery:
        pages = [page("a", cursor="1"), page("b", cursor="2"), page("c", "a", cursor="1")]
        nursery.start_soon(served, stage, *pages)

        tools = await list_tools(stage.server_connection)

        assert [tool.definition.name for tool in tools] == ["a", "b", "c"]
        cursors = [each["params"].get("cursor") for each in stage.read("tools/list")]
        assert cursors == [None, "1", "2"]


async def test_pages_without_an_end_are_given_up_after_fifty(autojump_clock: MockClock) -> None:
    async with staged() as (stage, _), trio.open_nursery() as nursery:
        pages = [page(f"t{number}", cursor=str(number)) for number in range(60)]
        nursery.start_soon(served, stage, *pages[:50])

        assert len(await list_tools(stage.server_connection)) == 50


async def test_slow_pages_share_one_deadline(autojump_clock: MockClock) -> None:
    async with staged() as (stage, _), trio.open_nursery() as nursery:

        async def slowly() -> None:
            for number in range(2):
                await trio.sleep(20)
                request = stage.read("tools/list")[number]
                await stage.say({"id": request["id"], **page(f"t{number}", cursor=str(number))})

        nursery.start_soon(slowly)
        started_at = trio.current_time()
        with pytest.raises(HandshakeError, match="did not answer"):
            await list_tools(stage.server_connection)

        assert trio.current_time() - started_at == pytest.approx(30)
        nursery.cancel_scope.cancel()


async def test_entries_that_are_no_tools_are_left_out(autojump_clock: MockClock) -> None:
    entries: list[object] = [
        {"name": "good", "inputSchema": {}},
        {"name": "a\nb", "inputSchema": {}},
        7,
        {"name": "good", "inputSchema": {}},
        {},
    ]
    async with staged() as (stage, _), trio.open_nursery() as nursery:
        nursery.start_soon(served, stage, {"result": {"tools": entries}})

        assert [tool.definition.name for tool in await list_tools(stage.server_connection)] == [
            "good"
        ]
