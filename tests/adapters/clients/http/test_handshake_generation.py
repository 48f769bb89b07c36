"""The HTTP front with clients of the handshake generation."""

import json
from collections import Counter
from typing import Any

import pytest
import trio

from capd.adapters.clients.conversation import Request
from capd.adapters.clients.http_front.endpoint import MOST_SESSIONS

from .rig import INFO, Talk, Visitor, fronted, rpc

CALL = rpc("tools/call", {"name": "t"}, 7)
RESULT = {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
MET = 'met {"name": "editor", "version": "1"}'
ACCEPT_EVENTS = {"accept": "text/event-stream"}
ACCEPT_JSON = {"accept": "application/json"}
NOTE = {"level": "info", "data": "x"}
NOTICE = {"jsonrpc": "2.0", "method": "notifications/message", "params": NOTE}


def says_first(talk: Talk) -> None:
    async def run(request: Request) -> bytes:
        request.caller.tell("notifications/message", b'{"level":"info","data":"x"}')
        await trio.sleep(1)
        return b'{"content":[]}'

    talk.run = run


def asks_first(talk: Talk) -> None:
    async def run(request: Request) -> bytes:
        return await request.caller.ask("elicitation/create", b'{"message":"?"}', lambda _: None)

    talk.run = run


def takes_long(talk: Talk) -> None:
    async def run(request: Request) -> bytes:
        await trio.sleep(100)
        return b'{"content":[]}'

    talk.run = run


async def test_an_answer_without_a_word_before_it_is_one_json_document(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        named = await front.initialized()

        heard = await front.connect().ask("POST", CALL, named)

        assert (heard.status, heard.headers["content-type"]) == (200, "application/json")
        assert heard.body == b'{"jsonrpc":"2.0","id":7,"result":{"content":[ ]}}'
        assert front.talks[0].journal == [MET, "prepared", 'call "t"']


async def test_half_a_surrogate_pair_in_a_call_does_not_refuse_it(autojump_clock: object) -> None:
    async with fronted() as front:
        named = await front.initialized()
        cut = rpc("tools/call", {"name": "t", "arguments": {"text": "cut \ud83d"}}, 7)

        heard = await front.connect().ask("POST", cut, named)

        assert (heard.status, json.loads(heard.body)) == (200, RESULT)


async def test_what_is_said_before_an_answer_makes_it_a_stream(autojump_clock: object) -> None:
    async with fronted() as front:
        front.script = says_first
        named = await front.initialized()
        visitor = front.connect()
        await visitor.ask("POST", CALL, named)
        await trio.sleep(1)

        heard = await visitor.hear()

        assert (heard.headers["content-type"], heard.is_over) == ("text/event-stream", True)
        assert heard.events == [NOTICE, RESULT]


async def test_a_client_that_takes_only_events_gets_them(autojump_clock: object) -> None:
    async with fronted() as front:
        named = await front.initialized()

        heard = await front.connect().ask("POST", CALL, {**named, **ACCEPT_EVENTS})

        assert (heard.events, heard.is_over) == ([RESULT], True)


async def test_a_client_that_takes_only_json_hears_the_rest_on_its_stream(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        front.script = says_first
        named = await front.initialized()
        visitor, stream = front.connect(), front.connect()
        await stream.ask("GET", headers=named)
        await visitor.ask("POST", CALL, {**named, **ACCEPT_JSON})
        await trio.sleep(1)

        heard = await visitor.hear()

        assert heard.json == RESULT
        assert (await stream.hear()).events == [NOTICE]


async def test_an_answer_that_takes_long_becomes_a_stream_that_shows_life(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        front.script = takes_long
        named = await front.initialized()
        visitor = front.connect()
        await visitor.ask("POST", CALL, named)
        await trio.sleep(50)

        heard = await visitor.hear()

        assert (heard.status, heard.is_over, heard.events) == (200, False, [])
        assert heard.body.endswith(b":\n\n:\n\n")


async def test_a_servers_question_goes_on_the_stream_of_its_call_and_is_answered_by_a_post(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        front.script = asks_first
        named = await front.initialized()
        visitor = front.connect()
        asked = (await visitor.ask("POST", CALL, named)).events
        answer = {"jsonrpc": "2.0", "id": asked[0]["id"], "result": {"action": "decline"}}

        noted = await front.connect().ask("POST", answer, named)

        assert (noted.status, noted.body) == (202, b"")
        assert (await visitor.hear()).events == [
            {**asked[0], "method": "elicitation/create", "params": {"message": "?"}},
            {"jsonrpc": "2.0", "id": 7, "result": {"action": "decline"}},
        ]


async def test_what_belongs_to_no_request_waits_for_the_clients_stream(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        named = await front.initialized()
        front.upstreams[0].list_changed("tools")

        heard = await front.connect().ask("GET", headers=named)

        told = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        assert (heard.status, heard.events, heard.is_over) == (200, [told], False)


async def test_the_newest_stream_of_a_session_is_the_one(autojump_clock: object) -> None:
    async with fronted() as front:
        named = await front.initialized()
        old, new = front.connect(), front.connect()
        await old.ask("GET", headers=named)
        await new.ask("GET", headers=named)

        front.upstreams[0].list_changed("tools")

        assert (await old.hear()).is_over
        assert len((await new.hear()).events) == 1


async def test_a_client_that_lost_its_connection_gets_what_it_missed(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        front.script = says_first
        named = await front.initialized()
        visitor = front.connect()
        last = (await visitor.ask("POST", CALL, named)).numbered[-1][0]
        await visitor.stream.aclose()
        await trio.sleep(5)

        heard = await front.connect().ask("GET", headers={**named, "last-event-id": last})

        assert (heard.events, heard.is_over) == ([RESULT], True)


async def test_a_polled_answer_is_closed_behind_an_event_to_come_back_to(
    autojump_clock: object,
) -> None:
    async with fronted(poll_after=0.5) as front:
        front.script = takes_long
        named = await front.initialized()
        visitor = front.connect()
        await visitor.ask("POST", CALL, named)
        await trio.sleep(1)
        first = await visitor.hear()
        await trio.sleep(100)

        last = {"last-event-id": first.numbered[0][0]}
        heard = await front.connect().ask("GET", headers={**named, **last})

        assert (first.is_over, first.numbered[0][1], b"retry: 500\n" in first.body) == (
            True,
            "",
            True,
        )
        assert heard.events == [RESULT]


@pytest.mark.parametrize("last", ["x", "http-99/0", "standalone/9", "http-1/99999999999999999999"])
async def test_an_event_that_is_not_kept_is_said_to_be_so(
    autojump_clock: object, last: str
) -> None:
    async with fronted() as front:
        named = await front.initialized()

        heard = await front.connect().ask("GET", headers={**named, "last-event-id": last})

        assert heard.status == 400


async def test_versions_before_the_primed_one_get_no_event_without_data(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        named = await front.initialized(protocolVersion="2025-06-18")

        heard = await front.connect().ask("POST", CALL, {**named, **ACCEPT_EVENTS})

        assert [data for _, data in heard.numbered] == [
            '{"jsonrpc":"2.0","id":7,"result":{"content":[ ]}}'
        ]


async def test_two_requests_of_one_id_get_an_answer_each(autojump_clock: object) -> None:
    async with fronted() as front:
        front.script = says_first
        named = await front.initialized()
        visitors = [front.connect(), front.connect()]
        for visitor in visitors:
            await visitor.ask("POST", CALL, named)
        await trio.sleep(1)

        heard = [await visitor.hear() for visitor in visitors]

        assert [each.events[-1] for each in heard] == [RESULT, RESULT]


async def test_a_lost_connection_cancels_nothing(autojump_clock: object) -> None:
    async with fronted() as front:
        front.script = takes_long
        named = await front.initialized()
        visitor = front.connect()
        await visitor.ask("POST", CALL, named)

        await visitor.stream.aclose()

        await trio.sleep(5)
        assert "cancelled" not in front.talks[0].journal


async def test_a_cancelled_request_is_cancelled_under_the_clients_own_id(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        front.script = takes_long
        named = await front.initialized()
        visitor = front.connect()
        await visitor.ask("POST", CALL, named)
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 7}}

        await front.connect().ask("POST", {"jsonrpc": "2.0", **cancel}, named)

        heard = await visitor.hear()
        assert (front.talks[0].journal[-1], heard.is_over, heard.events) == ("cancelled", True, [])


async def test_an_ended_session_is_not_found_any_more(autojump_clock: object) -> None:
    async with fronted() as front:
        named = await front.initialized()

        ended = await front.connect().ask("DELETE", headers=named)

        assert ended.status == 204
        assert front.upstreams[0].is_goodbye
        assert (await front.connect().ask("POST", CALL, named)).status == 404


async def test_a_session_that_nobody_uses_ends_and_one_with_a_stream_stays(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        idle = await front.initialized()
        watched = await front.initialized()
        await front.connect().ask("GET", headers=watched)

        await trio.sleep(4000)

        statuses = [(await front.connect().ask("POST", CALL, n)).status for n in (idle, watched)]
        assert statuses == [404, 200]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),
        ({"mcp-session-id": "guessed"}, 404),
        ({"mcp-protocol-version": "2025-11-25"}, 200),
        ({"mcp-protocol-version": "1999-01-01"}, 400),
        ({"accept": "text/html"}, 406),
        ({"accept": "*/*"}, 200),
    ],
)
async def test_a_request_has_to_name_its_session_and_a_version_that_is_one(
    autojump_clock: object, headers: dict[str, str], status: int
) -> None:
    async with fronted() as front:
        named = await front.initialized() if headers else {}

        heard = await front.connect().ask("POST", CALL, {**named, **headers})

        assert heard.status == status


async def test_an_answer_has_the_id_of_its_request_as_written(autojump_clock: object) -> None:
    async with fronted() as front:
        named = await front.initialized()
        body = b'{"jsonrpc":"2.0","id":1.50,"method":"ping"}'

        heard = await front.connect().ask("POST", body, named)

        assert heard.body == b'{"jsonrpc":"2.0","id":1.50,"result":{}}'


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"capd":"goodbye"}', -32600),
        (b"\xff", -32700),
        (b"[" * 5000, -32700),
    ],
)
async def test_a_body_that_is_no_message_is_answered_as_such(
    autojump_clock: object, body: bytes, code: int
) -> None:
    async with fronted() as front:
        named = await front.initialized()

        heard = await front.connect().ask("POST", body, named)

        assert (heard.status, heard.json["error"]["code"]) == (400, code)


async def test_no_body_is_taken_for_a_frame_of_the_unix_socket(autojump_clock: object) -> None:
    async with fronted() as front:
        named = await front.initialized()
        sneaky = b'{"capd":"env","env":{"A":"b"},"jsonrpc":"2.0","method":"notifications/x"}'

        await front.connect().ask("POST", sneaky, named)

        assert front.talks[0].journal == [MET, "prepared"]
        assert not front.upstreams[0].is_goodbye


async def test_a_body_of_many_lines_reaches_a_server_as_one(autojump_clock: object) -> None:
    async with fronted() as front:
        seen: list[bytes] = []

        async def run(request: Request) -> bytes:
            await trio.lowlevel.checkpoint()
            seen.append(bytes(request.members["arguments"]))
            return b"{}"

        def script(talk: Talk) -> None:
            talk.run = run

        front.script = script
        named = await front.initialized()
        body = b'{"jsonrpc":"2.0",\n"id":7,"method":"tools/call","params":{\r\n"name":"t",'

        await front.connect().ask("POST", body + b'"arguments":{\n"a":"\\n"}}}', named)

        assert seen == [b'{ "a":"\\n"}']


async def test_a_body_over_the_limit_is_refused_and_the_connection_ends(
    autojump_clock: object,
) -> None:
    async with fronted() as front:
        named = await front.initialized()
        visitor = front.connect()
        heads: dict[str, Any] = {**named, "content-length": str(2 << 20)}

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_much, visitor, heads)
            answer = bytes(await visitor.stream.receive_some())
            nursery.cancel_scope.cancel()

        assert answer.startswith(b"HTTP/1.1 413 ")


async def _send_much(visitor: Visitor, headers: dict[str, str]) -> None:
    try:
        await visitor.ask("POST", b"x" * (2 << 20), headers)
    except (trio.BrokenResourceError, trio.BusyResourceError):
        return


@pytest.mark.parametrize(
    "head",
    [
        b"POST /mcp HTTP/1.1\r\nx: " + b"y" * 40_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
async def test_what_is_no_request_costs_its_own_connection_alone(
    autojump_clock: object, head: bytes
) -> None:
    async with fronted() as front:
        named = await front.initialized()
        broken = front.connect()
        await broken.stream.send_all(head)

        answer = bytes(await broken.stream.receive_some())

        assert answer[:10] == b"HTTP/1.1 4"
        assert (await front.connect().ask("POST", CALL, named)).status == 200


async def test_a_peer_that_says_nothing_is_given_up(autojump_clock: object) -> None:
    async with fronted() as front:
        visitor = front.connect()
        await visitor.stream.send_all(b"POST /mcp HT")

        answer = await visitor.stream.receive_some()

        assert answer == b""


async def test_one_connection_carries_one_request_after_another(autojump_clock: object) -> None:
    async with fronted() as front:
        named = await front.initialized()
        visitor = front.connect()

        heard = [await visitor.ask("POST", CALL, named) for _ in range(3)]

        assert [each.json for each in heard] == [RESULT] * 3


async def test_sessions_that_are_being_opened_count_towards_the_most(
    autojump_clock: object,
) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
    found: list[int] = []
    async with fronted() as front, trio.open_nursery() as nursery:
        front.gate = trio.Event()

        async def opened() -> None:
            visitor = front.connect()
            heard = await visitor.ask("POST", rpc("initialize", params))
            await front.gate.wait()
            found.append((heard if heard.is_over else await visitor.hear()).status)

        for _ in range(MOST_SESSIONS + 2):
            nursery.start_soon(opened)
        await trio.sleep(1)
        front.gate.set()

    assert Counter(found) == {200: MOST_SESSIONS, 503: 2}
