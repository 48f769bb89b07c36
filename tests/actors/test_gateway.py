"""The gateway accepts every kind of hello and rejects lines that are no requests."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from capd.adapters.clients import requests_in_flight
from capd_protos import socket as frames

from .fakes import FakeProcess, Json, text
from .world import World, running_world

ANSWERS = {"capd": "hello", "protocol": 1, "role": "mcp", "client": {"name": "editor"}}


def request(request_id: object, method: str = "ping", **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def call(request_id: object, tool: str, /, **arguments: Any) -> Json:
    return request(request_id, "tools/call", name=tool, arguments=arguments)


async def first_answer(world: World, *lines: bytes) -> Json:
    client = await world.connected()
    await client.send(*lines)
    return await client.line()


# Hellos


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello", "bad_hello"),
        (b"{}", "bad_hello"),
        (b"[]", "bad_hello"),
        (b"\xff\xfe", "bad_hello"),
        (b"[" * 50_000, "bad_hello"),
        (b'{"capd":"goodbye"}', "bad_hello"),
        (json.dumps({**ANSWERS, "role": "king"}).encode(), "bad_hello"),
        (json.dumps({**ANSWERS, "client": {}}).encode(), "bad_hello"),
        (json.dumps({**ANSWERS, "cwd": "x" * 70_000}).encode(), "bad_hello"),
        (json.dumps({**ANSWERS, "protocol": 2}).encode(), "protocol"),
        (json.dumps(request(1)).encode(), "bad_hello"),
    ],
)
async def test_a_first_line_that_is_no_hello_is_refused_and_the_next_client_served(
    autojump_clock: MockClock, tmp_path: Path, line: bytes, code: str
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.connected()
        await client.send(line)

        answer = await client.line()

        assert (answer["capd"], answer["code"], answer["protocol"]) == ("refused", code, 1)
        with pytest.raises(EOFError):
            await client.line()
        assert (await world.session()).welcome["capd"] == "welcome"


async def test_a_client_that_says_nothing_is_sent_away(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.connected()

        assert (await client.line())["message"] == "no hello within 10 s"


async def test_a_client_that_leaves_before_its_hello_is_no_trouble(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        async with running_world(tmp_path) as world:
            for sent in (b"", b'{"capd":"hel', b"garbage\n"):
                client = await world.connected()
                await client.stream.send_all(sent)
                await client.stream.aclose()
            await trio.sleep(1)

            assert (await world.session()).welcome["capd"] == "welcome"
    assert not any(entry["event"] == "task_failed" for entry in logs)


async def test_unknown_members_of_a_hello_are_ignored(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s", future={"x": 1})

        assert client.welcome == {
            "capd": "welcome",
            "protocol": 1,
            "daemon": client.welcome["daemon"],
            "session": "s",
            "resume": client.welcome["resume"],
            "resumed": False,
            "want_env": [],
        }


async def test_what_comes_right_behind_the_hello_is_not_lost(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.connected()
        await client.send(json.dumps(ANSWERS).encode(), request(7))

        assert (await client.line())["capd"] == "welcome"
        assert await client.line() == {"jsonrpc": "2.0", "id": 7, "result": {}}


# Lines


@pytest.mark.parametrize("role", ["mcp", "control"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"garbage", (frames.PARSE_ERROR, None)),
        (b'{"jsonrpc":"2.0","id":5,"method":"pi', (frames.PARSE_ERROR, 5)),
        (b'{"id":5,"method":"\xff"}', (frames.PARSE_ERROR, 5)),
        (b'{"id":5,"x":' + b"[" * 100_000, (frames.PARSE_ERROR, 5)),
        # Passed on as it is, it would end the server of every session.
        (
            b'{"id":5,"method":"tools/call","params":{"name":"a","arguments":{"x":"\xff"}}}',
            (frames.PARSE_ERROR, 5),
        ),
        (b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]', (frames.INVALID_REQUEST, None)),
        (b'"ping"', (frames.INVALID_REQUEST, None)),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', (frames.INVALID_REQUEST, 5)),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', (frames.INVALID_REQUEST, None)),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"no/such"}', (frames.METHOD_NOT_FOUND, 1.5)),
        (b'{"jsonrpc":"2.0","id":5,"method":"no/such"}', (frames.METHOD_NOT_FOUND, 5)),
        (b'{"id":5,"method":"turn","params":{"text":1}}', (None, 5)),
    ],
)
async def test_a_line_that_is_no_request_is_answered_and_the_next_one_served(
    autojump_clock: MockClock,
    tmp_path: Path,
    role: str,
    line: bytes,
    expected: tuple[int | None, float | None],
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.connected()
        await client.hello(role=role)
        await client.send(line)

        answer = await client.line()

        code, request_id = expected
        unknown = frames.METHOD_NOT_FOUND if role == "mcp" else frames.INVALID_PARAMS
        assert (answer["error"]["code"], answer["id"]) == (code or unknown, request_id)
        method = "ping" if role == "mcp" else "servers"
        await client.send(request("next", method))
        assert (await client.line())["id"] == "next"


async def test_a_line_over_the_limit_is_answered_and_the_next_one_served(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "LINE_LIMIT_BYTES", 10_000)
    async with running_world(tmp_path) as world:
        client = await world.connected()
        await client.hello()

        await client.send(json.dumps(request(5, "ping", x="y" * 20_000)).encode(), request(6))

        answer = await client.line()
        assert (answer["id"], answer["error"]["code"]) == (5, frames.INVALID_REQUEST)
        assert "over the limit of 10000" in answer["error"]["message"]
        assert (await client.line())["id"] == 6


async def test_unknown_link_frames_notifications_and_replies_are_ignored(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session()
        await client.send(
            b'{"capd":"future","x":1}',
            b'{"capd":"env","env":{"A":1}}',
            b'{"capd":"env",',
            b'{"jsonrpc":"2.0","method":"notifications/future"}',
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
            b'{"jsonrpc":"2.0","id":99,"result":{}}',
        )

        assert await client.result("ping") == {}
        assert client.heard == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 3},
        {"name": "alpha__echo", "_meta": "progressToken"},
        [],
    ],
)
async def test_wrong_params_of_a_call_are_named(
    autojump_clock: MockClock, tmp_path: Path, params: Any
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session()
        wrong = {"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params}
        await client.send(wrong)
        await client.result("ping")

        assert client.heard[0]["error"]["code"] == frames.INVALID_PARAMS


# Requests side by side


async def slowly(process: FakeProcess, request: Json) -> None:
    await trio.sleep(request["params"].get("arguments", {}).get("seconds", 10))
    await process.reply(request, text("done"))


async def test_requests_are_answered_as_they_finish(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].call = slowly
        client = await world.session()
        await client.capability("enable", "alpha")

        await client.send(call("slow", "alpha__echo", seconds=9), call("fast", "alpha__die"))
        await client.send(call("fastest", "alpha__echo", seconds=1))
        await client.result("ping")
        await trio.sleep(20)

        assert [each["id"] for each in client.heard[1:]] == ["fastest", "slow", "fast"]


@pytest.mark.parametrize("in_one_write", [True, False])
async def test_a_cancelled_request_gets_no_answer_and_its_server_is_told(
    autojump_clock: MockClock, tmp_path: Path, in_one_write: bool
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].call = slowly
        client = await world.session()
        await client.capability("enable", "alpha")
        cancel = {"method": "notifications/cancelled", "params": {"requestId": "x"}}

        if in_one_write:
            await client.send(call("x", "alpha__echo"), {"jsonrpc": "2.0", **cancel})
        else:
            await client.send(call("x", "alpha__echo"))
            await trio.sleep(1)
            await client.send({"jsonrpc": "2.0", **cancel})
        await trio.sleep(30)

        assert [each for each in client.heard if each.get("id") == "x"] == []
        server = world.machine.processes[0]
        asked = server.asked_for("tools/call")
        told = [each["params"]["requestId"] for each in server.asked_for("notifications/cancelled")]
        assert told == [each["id"] for each in asked]
        assert len(asked) == (0 if in_one_write else 1)


@pytest.mark.parametrize("ids", ["different", "same"])
async def test_a_session_has_at_most_so_many_requests_under_way(
    autojump_clock: MockClock, tmp_path: Path, ids: str
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].call = slowly
        client = await world.session()
        await client.capability("enable", "alpha")
        over = 30
        count = requests_in_flight.MOST_REQUESTS + over

        numbers = [f"r{number if ids == 'different' else 0}" for number in range(count)]
        await client.send(*[call(number, "alpha__echo", seconds=100) for number in numbers])
        await trio.sleep(1)

        refused = [each for each in client.heard if "error" in each]
        assert {each["error"]["code"] for each in refused} == {frames.REFUSED}
        assert len(refused) == over
        await trio.sleep(200)
        assert await client.result("ping") == {}


async def test_dispatched_arrives_before_the_server_sees_the_call(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    seen: list[object] = []
    async with running_world(tmp_path) as world:
        client = await world.session(dispatched=True)
        await client.capability("enable", "alpha")
        heard_before = len(client.heard)

        async def note(process: FakeProcess, request: Json) -> None:
            # The clock jumps once nothing else moves, so what was sent first is there.
            await trio.sleep(0.001)
            seen.append(list(client.heard[heard_before:]))
            await process.reply(request, text("done"))

        world.machine.scripts["alpha"].call = note
        await client.send(call("x", "alpha__echo"), call("y", "capability", action="list"))
        await trio.sleep(1)

        assert {"capd": "dispatched", "id": "x"} in seen[0]  # type: ignore[operator]
        kinds = [each.get("capd", each.get("id")) for each in client.heard[heard_before:]]
        assert kinds.count("dispatched") == 1
        assert kinds.index("dispatched") < kinds.index("x")


async def test_progress_reaches_its_own_caller_under_its_own_token(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async def progress(process: FakeProcess, request: Json) -> None:
        token = request["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1, "message": "half"}
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        await process.say(note)
        await process.reply(request, text("done"))

    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].call = progress
        first, second = await world.session("a"), await world.session("b")
        for client in (first, second):
            await client.capability("enable", "alpha")
        await first.send(
            request("x", "tools/call", name="alpha__echo", _meta={"progressToken": "mine", "k": 1})
        )
        await second.send(
            request("x", "tools/call", name="alpha__echo", _meta={"progressToken": "mine"})
        )
        await trio.sleep(1)

        tokens = [
            each["params"]["_meta"] for each in world.machine.processes[0].asked_for("tools/call")
        ]
        assert tokens[0]["progressToken"] != tokens[1]["progressToken"]
        assert {meta.get("k") for meta in tokens} == {1, None}
        for client in (first, second):
            heard = client.heard[1:]
            assert [each.get("method", each.get("id")) for each in heard] == [
                "notifications/progress",
                "x",
            ]
            assert heard[0]["params"] == {
                "progressToken": "mine",
                "progress": 1,
                "message": "half",
            }


async def test_a_client_that_vanishes_in_a_call_cancels_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].call = slowly
        client = await world.session()
        await client.capability("enable", "alpha")
        await client.send(call("x", "alpha__echo", seconds=1000))
        await trio.sleep(1)

        await client.stream.aclose()
        await trio.sleep(1)

        assert len(world.machine.processes[0].asked_for("notifications/cancelled")) == 1


@pytest.mark.parametrize(
    ("asked", "agreed"), [("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25"), (7, None)]
)
async def test_the_handshake_agrees_on_a_version(
    autojump_clock: MockClock, tmp_path: Path, asked: object, agreed: str | None
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session()

        answer = await client.ask("initialize", protocolVersion=asked)

        if agreed is None:
            assert answer["error"]["code"] == frames.INVALID_PARAMS
        else:
            assert answer["result"]["protocolVersion"] == agreed
            assert answer["result"]["capabilities"]["tools"] == {"listChanged": True}


async def test_no_notification_comes_before_the_handshake_is_over(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.connected()
        await client.hello(cwd=str(world.project))
        await client.send(call(1, "capability", action="enable", name="alpha"))

        assert (await client.line())["id"] == 1
        await client.send(request(2))
        assert (await client.line())["id"] == 2
