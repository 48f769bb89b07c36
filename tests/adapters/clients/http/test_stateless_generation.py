"""The HTTP front with clients of the stateless generation."""

import json
from dataclasses import replace

import pytest
import trio

from capd.adapters.clients.conversation import Request
from capd.adapters.clients.http_front.answers import only
from capd.adapters.clients.http_front.http_session import HttpSession
from capd.adapters.clients.http_front.posted_message import message_of

from .rig import META, Json, Talk, fronted, modern, rpc, stateless

CALL = stateless("tools/call", {"name": "t", "arguments": {"region": "eu", "n": 42, "on": True}})
HEADERS = modern("tools/call", "t")
LISTEN = {"notifications": {"toolsListChanged": True}}
MET = 'met {"name": "editor", "version": "1"}'
MARKED = (
    b'{"name":"t","inputSchema":{"type":"object","properties":{'
    b'"region":{"type":"string","x-mcp-header":"Region"},'
    b'"n":{"type":"integer","x-mcp-header":"N"},'
    b'"on":{"type":"boolean","x-mcp-header":"On"}}}}'
)
PARAMS = {"mcp-param-region": "eu", "mcp-param-n": "42", "mcp-param-on": "true"}


def marked(talk: Talk) -> None:
    talk.tools = [MARKED]


def takes_long(talk: Talk) -> None:
    async def run(request: Request) -> bytes:
        await trio.sleep(1000)
        return b"{}"

    talk.run = run


async def test_requests_of_one_client_program_share_a_session_without_an_id(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        heard = [await front.connect().ask("POST", CALL, HEADERS) for _ in range(2)]

        answer = {"resultType": "complete", "content": []}
        assert [each.json["result"] for each in heard] == [answer, answer]
        assert "mcp-session-id" not in heard[0].headers
        assert (front.sessions, len(front.prepared)) == ([("editor", True)], 1)


async def test_another_client_program_has_a_session_of_its_own(autojump_clock: object) -> None:
    async with fronted() as front:
        other = {**META, "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1"}}
        for meta in (META, other):
            await front.connect().ask(
                "POST", rpc("tools/list", {"_meta": meta}), modern("tools/list")
            )

        assert front.sessions == [("editor", True), ("agent", True)]


async def test_what_is_on_from_the_start_is_switched_on_when_the_client_is_known(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        await front.connect().ask("POST", CALL, HEADERS)

        assert front.talks[0].journal[:2] == [MET, "prepared"]


TASK = stateless("tasks/get", {"taskId": "t"})


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (rpc("tools/list"), modern("tools/list"), 400, -32602),
        (rpc("tools/list"), {}, 400, -32602),
        (stateless("tools/list"), {"mcp-method": "tools/list"}, 400, -32020),
        (stateless("tools/list"), modern("prompts/list"), 400, -32020),
        (stateless("tools/list"), modern("TOOLS/LIST"), 400, -32020),
        (stateless("tools/list"), {"mcp-protocol-version": "2026-07-28"}, 400, -32020),
        (CALL, modern("tools/call"), 400, -32020),
        (CALL, modern("tools/call", "other"), 400, -32020),
        (CALL, modern("tools/call", "=?base64?dA==?="), 200, None),
        (CALL, modern("tools/call", "=?base64?dB==?="), 400, -32020),
        (TASK, modern("tasks/get", "t"), 200, None),
        (TASK, modern("tasks/get"), 200, None),
        (TASK, modern("tasks/get", "u"), 400, -32020),
        (stateless("tasks/get"), modern("tasks/get", "t"), 400, -32020),
        (stateless("ping"), modern("ping"), 404, -32601),
        (stateless("initialize"), modern("initialize"), 404, -32601),
        (stateless("no/such"), modern("no/such"), 404, -32601),
        (
            rpc("tools/list", {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "9"}}),
            {**modern("tools/list"), "mcp-protocol-version": "9"},
            400,
            -32022,
        ),
    ],
)
async def test_headers_and_body_have_to_say_the_same(
    autojump_clock: object, body: Json, headers: dict[str, str], status: int, code: int | None
) -> None:
    async with fronted() as front:
        heard = await front.connect().ask("POST", body, headers)

        assert (heard.status, heard.json.get("error", {}).get("code")) == (status, code)
        assert heard.json["id"] == 1


async def test_a_number_that_no_float_holds_is_compared_as_any(autojump_clock: object) -> None:
    async with fronted() as front:
        front.script = marked
        arguments = {"region": "eu", "n": 10**400, "on": True}
        body = stateless("tools/call", {"name": "t", "arguments": arguments})

        heard = await front.connect().ask(
            "POST", body, {**HEADERS, **PARAMS, "mcp-param-n": str(10**400)}
        )

        assert heard.status == 200


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"mcp-param-n": "42.0"}, 200),
        ({"mcp-param-region": "=?base64?ZXU=?="}, 200),
        ({"mcp-param-region": "us"}, 400),
        ({"mcp-param-region": None}, 400),
        ({"mcp-param-n": "43"}, 400),
        ({"mcp-param-n": "4e1"}, 400),
        ({"mcp-param-on": "True"}, 400),
        ({"mcp-param-other": "x"}, 200),
    ],
)
async def test_arguments_in_headers_are_compared_with_the_arguments(
    autojump_clock: object, change: dict[str, str | None], status: int
) -> None:
    async with fronted() as front:
        front.script = marked
        said = {k: v for k, v in {**HEADERS, **PARAMS, **change}.items() if v is not None}

        heard = await front.connect().ask("POST", CALL, said)

        assert heard.status == status
        assert ('call "t"' in front.talks[0].journal) == (status == 200)
        # What the front looks up for itself is no list of the client's.
        assert "listed" not in front.talks[0].journal


async def test_an_argument_that_is_left_out_has_no_header(autojump_clock: object) -> None:
    async with fronted() as front:
        front.script = marked
        bare = stateless("tools/call", {"name": "t", "arguments": {"region": None}})

        heard = [
            await front.connect().ask("POST", bare, {**HEADERS, **more})
            for more in ({}, {"mcp-param-region": "None"})
        ]

        assert [each.status for each in heard] == [200, 400]


async def test_closing_an_answer_cancels_its_request_alone(autojump_clock: object) -> None:
    async with fronted() as front:
        front.script = takes_long
        leaving, staying = front.connect(), front.connect()
        await leaving.ask("POST", CALL, HEADERS)
        await staying.ask("POST", CALL, HEADERS)

        await leaving.stream.aclose()

        await trio.sleep(2)
        assert front.talks[0].journal.count("cancelled") == 1
        assert not (await staying.hear()).is_over


async def test_a_stream_of_changes_bears_the_clients_own_id(autojump_clock: object) -> None:
    async with fronted() as front:
        visitors = [front.connect(), front.connect()]
        for number, visitor in enumerate(visitors):
            body = stateless("subscriptions/listen", LISTEN, f"l{number}")
            await visitor.ask("POST", body, modern("subscriptions/listen"))

        front.upstreams[0].list_changed("tools")

        for number, visitor in enumerate(visitors):
            events = (await visitor.hear()).events
            assert [event["method"] for event in events] == [
                "notifications/subscriptions/acknowledged",
                "notifications/tools/list_changed",
            ]
            assert {
                event["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
                for event in events
            } == {f"l{number}"}


async def test_events_of_this_generation_have_no_ids(autojump_clock: object) -> None:
    async with fronted() as front:
        heard = await front.connect().ask("POST", CALL, {**HEADERS, "accept": "text/event-stream"})

        assert [number for number, _ in heard.numbered] == [""]


async def test_a_session_that_ended_is_opened_again_by_the_next_request(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        await front.connect().ask("POST", CALL, HEADERS)
        front.upstreams[0].close("stopping", reconnect=True)
        await trio.sleep(1)

        heard = await front.connect().ask("POST", CALL, HEADERS)

        assert (heard.status, len(front.sessions)) == (200, 2)


async def test_a_session_that_ends_while_a_call_is_checked_is_opened_again(
    autojump_clock: object,
) -> None:
    async with fronted() as front:

        async def end_the_session(kind: str) -> list[bytes]:
            del kind
            front.upstreams[0].close("stopping", reconnect=True)
            await trio.sleep_forever()
            return []

        def ends_when_listed(talk: Talk) -> None:
            if not front.talks:
                talk.list_entries = end_the_session  # type: ignore[method-assign]

        front.script = ends_when_listed
        client = front.connect()
        await client.ask("POST", CALL, HEADERS)
        await trio.sleep(1)

        heard = await client.hear()

        assert (heard.status, heard.is_over, len(front.sessions)) == (200, True, 2)


async def test_a_call_whose_session_ends_under_way_is_refused(autojump_clock: object) -> None:
    async with fronted() as front:
        front.script = takes_long
        client = front.connect()
        await client.ask("POST", CALL, HEADERS)
        front.upstreams[0].close("stopping", reconnect=True)
        await trio.sleep(1)

        heard = await client.hear()

        text = "the session has ended: the request may have run"
        assert (heard.status, heard.json["error"]["message"]) == (503, text)


async def test_a_request_to_a_session_that_has_ended_is_over_at_once(
    autojump_clock: object,
) -> None:
    session = HttpSession()
    await session.aclose()

    exchange = await session.request(message_of(json.dumps(CALL).encode()), takes_events=True)

    assert await only(exchange) == b""


async def test_the_first_client_may_leave_while_its_session_is_made_ready(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        front.gate = trio.Event()
        first, second = front.connect(), front.connect()
        await first.ask("POST", CALL, HEADERS)
        await first.stream.aclose()
        await second.ask("POST", CALL, HEADERS)

        front.gate.set()

        assert (await second.hear()).status == 200
        assert len(front.sessions) == 1


async def test_a_notification_is_accepted_and_means_nothing(autojump_clock: object) -> None:
    async with fronted() as front:
        told = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}

        heard = await front.connect().ask("POST", told, modern(told["method"]))

        assert (heard.status, front.sessions) == (202, [])


async def test_a_session_over_which_capd_fails_costs_no_other_client_the_front(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("planted")

    async with fronted() as front:
        with monkeypatch.context() as planted:
            opener = replace(front.endpoint._opener, prepare=fail)
            planted.setattr(front.endpoint, "_opener", opener)
            refused = await front.connect().ask("POST", CALL, HEADERS)

        again = await front.connect().ask("POST", CALL, HEADERS)

        assert (refused.status, refused.json["error"]["message"]) == (
            503,
            "capd itself failed over this request (KeyError; its log says where)",
        )
        assert again.json["result"] == {"resultType": "complete", "content": []}


async def test_a_request_over_which_the_front_fails_is_answered(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("planted")

    async with fronted() as front:
        with monkeypatch.context() as planted:
            planted.setattr(front.endpoint, "_stateless", fail)
            refused = await front.connect().ask("POST", CALL, HEADERS)

        again = await front.connect().ask("POST", CALL, HEADERS)

        assert (refused.status, refused.json["error"]["code"]) == (500, -32603)
        assert again.status == 200
