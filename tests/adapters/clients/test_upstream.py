"""A client's connection answers each request once, in the request's protocol generation."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.clients import socket_sink
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, RefusedError, ServerError
from capd_protos.types import ClientFacts
from client_stage import Json, Stage, Talk, staged

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


async def test_half_a_surrogate_pair_in_a_call_does_not_keep_it_from_its_server(
    autojump_clock: MockClock,
) -> None:
    """JavaScript writes such a half when it cuts a text in the middle of an emoji."""
    async with staged() as stage:
        await stage.send(
            rb'{"id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"cut \ud83d"}}}'
        )

        heard = await stage.heard()

    assert heard == [b'{"jsonrpc":"2.0","id":1,"result":{"content":[ ]}}']
    assert [bytes(call.members["arguments"]) for call in stage.talk.calls] == [
        rb'{"a":"cut \ufffd"}'
    ]


@pytest.mark.parametrize("method", ["tools/list", "prompts/list"])
async def test_params_that_are_null_are_none(autojump_clock: MockClock, method: str) -> None:
    """Some JSON-RPC libraries write `null` for a request without params."""
    async with staged() as stage:
        await stage.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": None})
        await stage.send({"jsonrpc": "2.0", "id": 2, "method": method})

        first, second = map(json.loads, await stage.heard())

    assert first["result"] == second["result"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            UnknownNameError("no tool"),
            {"error": {"code": -32602, "message": "no tool", "data": {"code": "not_found"}}},
        ),
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


@pytest.mark.parametrize(
    ("method", "is_sent", "expected"),
    [
        ("tools/call", False, "not_sent"),
        ("tools/call", True, "outcome_unknown"),
        ("prompts/get", False, 4001),
        ("prompts/get", True, 4002),
    ],
)
async def test_a_request_over_which_capd_itself_fails_is_answered_with_its_true_outcome(
    autojump_clock: MockClock, method: str, is_sent: bool, expected: str | int
) -> None:
    async def run(request: Request) -> bytes:
        if is_sent:
            await request.caller.dispatched()
        raise KeyError("planted")

    class Failing(Talk):
        async def relay(self, request: Request) -> bytes:
            return await run(request)

    async with staged(talk=Failing()) as stage:
        await stage.send({**CALL, "method": method})
        await stage.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})

        first, second = map(json.loads, await stage.heard())

        error = first.get("error", {})
        meta = first.get("result", {}).get("_meta", {})
        assert error.get("code", meta.get("capd/outcome")) == expected
        text = error.get("message") or first["result"]["content"][0]["text"]
        assert text.startswith("capd itself failed over this call (KeyError; its log says where).")
        # The connection is as before.
        assert second["id"] == 2


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        ("list_entries", {"id": 1, "method": "tools/list"}),
        ("turn", {"id": 1, "method": "capd/turn", "params": {"text": "x"}}),
        ("subscribe", {"id": 1, "method": "resources/subscribe", "params": {"uri": "x:y"}}),
        ("instructions", {"id": 1, "method": "server/discover"}),
        ("start", {"id": 1, "method": "nothing"}),
        ("renew_subscriptions", {"method": "notifications/initialized"}),
        ("on_roots_changed", {"method": "notifications/roots/list_changed"}),
    ],
)
async def test_whatever_of_a_session_fails_its_connection_goes_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, failing: str, message: Json
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("planted")

    talk = Talk()
    monkeypatch.setattr(talk, failing, fail)
    async with staged(talk=talk) as stage:
        await stage.send({"jsonrpc": "2.0", **message})
        await stage.send({"jsonrpc": "2.0", "id": 2, "method": "ping"})

        lines = {each.get("id"): each for each in map(json.loads, await stage.heard())}

        assert lines[2]["result"] == {}
        if failing not in {"start", "renew_subscriptions", "on_roots_changed"}:
            assert lines[1]["error"]["code"] == -32603


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
        stage.connection.is_initialized = True
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


@pytest.mark.parametrize("request_id", [b"1.0", b"1.5", b"123456789012345678901234", b'"1.5"'])
@pytest.mark.parametrize("method", [b"tools/call", b"tools/list", b"nothing"])
async def test_an_answer_has_the_id_of_its_request_as_written(
    autojump_clock: MockClock, request_id: bytes, method: bytes
) -> None:
    async with staged() as stage:
        await stage.send(
            b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":{"name":"t"}}' % (request_id, method)
        )

        [answer] = await stage.heard()

        assert answer.startswith(b'{"jsonrpc":"2.0","id":%s,' % request_id)


async def test_a_request_with_a_fraction_as_its_id_can_be_cancelled(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 1.5}}
        request = {**CALL, "id": 1.5}
        lines = [json.dumps(each).encode() for each in (request, {"jsonrpc": "2.0", **cancel})]
        await stage.send(b"\n".join(lines))

        assert (stage.talk.calls, await stage.heard()) == ([], [])


async def test_a_turn_hands_over_the_users_words(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        turn = {"jsonrpc": "2.0", "id": 1, "method": "capd/turn", "params": {"text": "hi"}}
        await stage.send(turn)

        assert json.loads((await stage.heard())[0])["result"] == {"said": "hi"}


# The stateless generation

OFFERS: Json = {"elicitation": {}}
META: Json = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "zed", "version": "2"},
    "io.modelcontextprotocol/clientCapabilities": OFFERS,
}


def request(method: str, message_id: object = 1, meta: Json = META, **params: Any) -> Json:
    told = {**params, "_meta": meta}
    return {"jsonrpc": "2.0", "id": message_id, "method": method, "params": told}


async def answers(stage: Stage, *messages: Json | bytes) -> list[Json]:
    await stage.send(*messages)
    return [json.loads(line) for line in await stage.heard()]


async def test_a_stateless_request_says_itself_who_sends_it(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        heard = await answers(stage, request("tools/call", name="t"))

        assert heard == [
            {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "content": []}}
        ]
        facts = ClientFacts("2026-07-28", b'{"name": "zed", "version": "2"}', b'{"elicitation":{}}')
        assert stage.talk.met_clients == [facts]
        assert [call.caller.client for call in stage.talk.calls] == [facts]


@pytest.mark.parametrize(
    ("method", "lacked"),
    [
        ("tools/list", {"tools": [{"name": "tools"}]}),
        ("prompts/list", {"prompts": [{"name": "prompts"}]}),
        ("resources/templates/list", {"resourceTemplates": [{"name": "resources/templates"}]}),
    ],
)
async def test_a_list_says_in_the_stateless_generation_how_long_it_may_be_kept(
    autojump_clock: MockClock, method: str, lacked: Json
) -> None:
    async with staged() as stage:
        heard = await answers(stage, request(method))

        expected = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **lacked}
        assert heard[0]["result"] == expected


UNSUPPORTED = {
    "code": -32022,
    "message": "Unsupported protocol version",
    "data": {"supported": ["2026-07-28"], "requested": "2031-01-01"},
}


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "server/discover", "x/y"])
async def test_a_version_that_is_not_spoken_is_told_with_those_that_are(
    autojump_clock: MockClock, method: str
) -> None:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    async with staged() as stage:
        heard = await answers(stage, request(method, meta=meta))

        assert heard == [{"jsonrpc": "2.0", "id": 1, "error": UNSUPPORTED}]
        assert stage.talk.calls == []


@pytest.mark.parametrize(
    "meta",
    [
        {"io.modelcontextprotocol/protocolVersion": "2026-07-28"},
        {**META, "io.modelcontextprotocol/protocolVersion": 2026},
        {**META, "io.modelcontextprotocol/clientCapabilities": "all"},
    ],
)
async def test_an_envelope_with_something_wrong_is_an_error_of_its_request(
    autojump_clock: MockClock, meta: Json
) -> None:
    async with staged() as stage:
        heard = await answers(stage, request("tools/call", meta=meta, name="t"), CALL)

        assert [each.get("error", {}).get("code") for each in heard] == [-32602, None]


@pytest.mark.parametrize(
    "method", ["initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
)
async def test_what_the_stateless_generation_does_not_know_is_no_method_there(
    autojump_clock: MockClock, method: str
) -> None:
    async with staged() as stage:
        heard = await answers(stage, request(method, uri="u", level="info"))

        assert heard[0]["error"]["code"] == -32601


async def test_null_for_meta_is_no_meta(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        heard = await answers(stage, {**CALL, "params": {"name": "t", "_meta": None}})

        assert heard == [{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}]


async def test_a_tool_that_is_not_there_costs_a_client_that_can_be_asked_no_more_than_an_error(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        stage.talk.error = UnknownNameError("no tool")
        heard = await answers(stage, request("tools/call", name="t"))

        assert heard[0]["error"] == {
            "code": -32602,
            "message": "no tool",
            "data": {"code": "not_found"},
        }
        assert not stage.ended.is_set()


# Streams of notifications


def listening(message_id: object = 7, **wanted: Any) -> Json:
    return request("subscriptions/listen", message_id, notifications=wanted)


def streamed(method: str, stream: object, **params: Any) -> Json:
    meta = {"io.modelcontextprotocol/subscriptionId": stream}
    return {
        "jsonrpc": "2.0",
        "method": f"notifications/{method}",
        "params": {**params, "_meta": meta},
    }


async def test_a_stream_is_acknowledged_first_and_carries_what_it_asked_for(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["n:1"]}
        acknowledged = await answers(stage, listening(**wanted))
        for what in ("tools", "prompts", "resources"):
            stage.upstream.list_changed(what)
        for uri in ("n:1", "n:1/part", "n:2"):
            params = json.dumps({"uri": uri}).encode()
            stage.upstream.resource_updated(uri, params)
        heard = await answers(stage)

        expected = {key: value for key, value in wanted.items() if value}
        assert acknowledged == [streamed("subscriptions/acknowledged", 7, notifications=expected)]
        assert heard == [
            streamed("tools/list_changed", 7),
            streamed("resources/updated", 7, uri="n:1"),
            streamed("resources/updated", 7, uri="n:1/part"),
        ]
        assert stage.talk.journal == ["+n:1"]


async def test_each_of_several_streams_has_its_own_mark_and_its_own_end(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        both = {"resourceSubscriptions": ["n:1"]}
        await answers(stage, listening("a", promptsListChanged=True, **both))
        await answers(stage, listening(2, **both))
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        stage.upstream.resource_updated("n:1", b'{"uri":"n:1"}')
        heard = await answers(stage, {**cancelled, "params": {"requestId": "a"}})
        stage.upstream.list_changed("prompts")
        stage.upstream.resource_updated("n:1", b'{"uri":"n:1"}')
        after = await answers(stage)
        await answers(stage, {**cancelled, "params": {"requestId": 2}})

        assert heard == [streamed("resources/updated", each, uri="n:1") for each in ("a", 2)]
        assert after == [streamed("resources/updated", 2, uri="n:1")]
        assert stage.talk.journal == ["+n:1", "+n:1", "-n:1"]


async def test_a_stream_ends_in_good_order_with_a_result_of_its_own(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        await answers(stage, listening(toolsListChanged=True))

        stage.upstream.close("stopping", reconnect=True)
        heard = await answers(stage)

        meta = {"io.modelcontextprotocol/subscriptionId": 7}
        assert heard == [
            {"capd": "closing", "reason": "stopping", "reconnect": True},
            {"jsonrpc": "2.0", "id": 7, "result": {"resultType": "complete", "_meta": meta}},
        ]


async def test_streams_have_a_limit_of_their_own(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        for number in range(32):
            await answers(stage, listening(number))
        heard = await answers(stage, listening(32))

        assert [(each["id"], each["error"]["code"]) for each in heard] == [(32, 4003)]


@pytest.mark.parametrize(
    "wrong",
    [
        request("subscriptions/listen", 1),
        request("subscriptions/listen", 1, notifications={"resourceSubscriptions": "u"}),
        request("subscriptions/listen", None, notifications={}),
    ],
)
async def test_a_stream_that_is_asked_for_wrongly_is_an_error(
    autojump_clock: MockClock, wrong: Json
) -> None:
    async with staged() as stage:
        heard = await answers(stage, wrong)

        assert [each["error"]["code"] for each in heard] == [-32602]


async def test_a_stream_tells_of_the_tasks_that_it_is_promised(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        stage.talk.watched = ["t-1"]
        capabilities: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": capabilities}
        wanted = {"taskIds": ["t-1", "t-2"]}
        acknowledged = await answers(
            stage, request("subscriptions/listen", 7, meta, notifications=wanted)
        )
        for task in ("t-1", "t-2"):
            stage.upstream.task_changed(task, json.dumps({"taskId": task}).encode())
        told = await answers(stage)

        assert acknowledged == [
            streamed("subscriptions/acknowledged", 7, notifications={"taskIds": ["t-1"]}),
            streamed("tasks", 7),
        ]
        assert told == [streamed("tasks", 7, taskId="t-1")]


# Subscriptions of the handshake generation


async def test_a_subscription_outlives_the_connection_that_it_was_made_on(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        subscribe = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe"}
        level = {"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel"}
        await answers(stage, {**subscribe, "params": {"uri": "n:1"}})
        await answers(stage, {**level, "params": {"level": "error"}})
    async with staged(connection=stage.connection) as stage:
        await wait_all_tasks_blocked()
        stage.upstream.resource_updated("n:1", b'{"uri":"n:1"}')
        stage.upstream.resource_updated("n:2", b'{"uri":"n:2"}')
        heard = await answers(stage)

        updated = {"method": "notifications/resources/updated", "params": {"uri": "n:1"}}
        assert heard == [{"jsonrpc": "2.0", **updated}]
        assert stage.upstream.connection.log_level == "error"


# Requests that ask


async def ask_who(call: Request) -> bytes:
    answer = await call.caller.ask("elicitation/create", b'{"message":"who?"}', lambda _: None)
    return b'{"content":[],"answer":%s}' % answer


async def test_a_request_that_asks_is_repeated_and_runs_once(autojump_clock: MockClock) -> None:
    async with staged(dispatched=True) as stage:
        stage.talk.run = ask_who
        first = await answers(stage, request("tools/call", 1, name="t"))
        state = first[-1]["result"]["requestState"]
        again = {"requestState": state, "inputResponses": {"input-1": {"action": "accept"}}}
        second = await answers(stage, request("tools/call", 2, name="t", **again))
        third = await answers(stage, request("tools/call", 3, name="t", **again))

        asked = {"input-1": {"method": "elicitation/create", "params": {"message": "who?"}}}
        assert first == [
            {"capd": "dispatched", "id": 1},
            {
                "jsonrpc": "2.0",
                "id": 1,
                "result": {
                    "resultType": "input_required",
                    "inputRequests": asked,
                    "requestState": state,
                },
            },
        ]
        result = {"resultType": "complete", "content": [], "answer": {"action": "accept"}}
        assert second == [
            {"capd": "dispatched", "id": 2},
            {"jsonrpc": "2.0", "id": 2, "result": result},
        ]
        assert third[0]["error"]["code"] == -32602
        assert len(stage.talk.calls) == 1


async def test_a_request_whose_connection_was_lost_is_refused_when_it_is_repeated(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        stage.talk.run = ask_who
        first = await answers(stage, request("tools/call", 1, name="t"))
    again = {"requestState": first[0]["result"]["requestState"], "inputResponses": {}}
    async with staged() as stage:
        second = await answers(stage, request("tools/call", 2, name="t", **again))

        assert second[0]["error"]["code"] == -32602
        assert stage.talk.calls == []


async def test_answers_that_are_none_leave_the_request_as_it_was(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        stage.talk.run = ask_who
        first = await answers(stage, request("tools/call", 1, name="t"))
        again = {"requestState": first[0]["result"]["requestState"]}
        wrong = await answers(stage, request("tools/call", 2, name="t", inputResponses=[], **again))
        right = await answers(
            stage, request("tools/call", 3, name="t", inputResponses={"input-1": 5}, **again)
        )

        assert wrong[0]["error"]["code"] == -32602
        assert right[0]["result"]["answer"] == 5


async def test_a_handshake_client_is_asked_by_a_request(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        stage.connection.is_initialized = True
        stage.talk.run = ask_who
        asked = await answers(stage, CALL)
        heard = await answers(stage, {"jsonrpc": "2.0", "id": "capd-1", "result": {"x": 1}})

        question = {"method": "elicitation/create", "params": {"message": "who?"}}
        assert asked == [{"jsonrpc": "2.0", "id": "capd-1", **question}]
        assert heard == [{"jsonrpc": "2.0", "id": 1, "result": {"content": [], "answer": {"x": 1}}}]


# Bounds


async def test_thirty_two_run_sixty_four_wait_and_the_next_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        stage.talk.hold = trio.Event()
        calls = [{**CALL, "id": number} for number in range(97)]
        refused = await answers(stage, *calls)
        running = len(stage.talk.calls)
        stage.talk.hold.set()
        await wait_all_tasks_blocked()
        done = await answers(stage)

        assert [(each["id"], each["error"]["code"]) for each in refused] == [(96, 4003)]
        assert running == 32
        assert sorted(each["id"] for each in done) == list(range(96))


async def test_a_request_that_waits_for_its_client_takes_nobody_elses_turn(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        stage.talk.run = ask_who
        for number in range(40):
            await answers(stage, request("tools/call", number, name=f"t{number}"))
        stage.talk.run = None
        heard = await answers(stage, request("tools/call", 99, name="t"))

        assert [each["id"] for each in heard] == [99]
