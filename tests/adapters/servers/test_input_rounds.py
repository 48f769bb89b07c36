"""A stateless server's questions to a handshake client, as rounds of one request."""

import json
from collections.abc import Iterable

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from capd.adapters.servers.input_rounds import MOST_ROUNDS, answer_rounds
from capd.core.protocol.generations import Members, members_of
from capd.core.protocol.outcomes import OutcomeUnknownError, RefusedError, ServerError
from line_server import Editor, Json

REQUEST = members_of(b'{"name":"t","arguments":{ "a":1.0 },"_meta":{}}')
DONE = b'{"resultType":"complete","content":[ ]}'


def asking(state: bytes = b'"s"', **requests: tuple[str, Json]) -> bytes:
    wanted = {
        key: {"method": method, "params": params} for key, (method, params) in requests.items()
    }
    return b'{"resultType":"input_required","inputRequests":%s,"requestState":%s}' % (
        json.dumps(wanted).encode(),
        state,
    )


class Server:
    """Returns scripted results one after another, and records the requests."""

    def __init__(self, results: Iterable[bytes | Exception]) -> None:
        self.requests: list[Members] = []
        self._results = list(results)

    async def relay(self, members: Members) -> bytes:
        await trio.lowlevel.checkpoint()
        self.requests.append(members)
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, Exception):
            raise result
        return result


FORM = ("elicitation/create", {"message": "who?"})


async def test_a_result_that_asks_nothing_is_the_result(autojump_clock: MockClock) -> None:
    server = Server([DONE])

    assert await answer_rounds(server.relay, REQUEST, Editor()) == DONE
    assert server.requests == [REQUEST]


async def test_the_answers_and_the_state_go_with_the_same_request(
    autojump_clock: MockClock,
) -> None:
    server, editor = Server([asking(a=FORM, b=("roots/list", {})), DONE]), Editor()

    result = await answer_rounds(server.relay, REQUEST, editor)

    assert result == DONE
    first, second = server.requests
    answers = {"a": {"action": "accept"}, "b": {"action": "accept"}}
    assert first == REQUEST
    assert json.loads(bytes(second["inputResponses"])) == answers
    kept = {key: second[key] for key in second if key != "inputResponses"}
    assert kept == {**REQUEST, "requestState": msgspec.Raw(b'"s"')}
    assert sorted(editor.asked) == [
        ("elicitation/create", b'{"message": "who?"}'),
        ("roots/list", b"{}"),
    ]


@given(st.text(), st.booleans())
def test_the_state_comes_back_byte_for_byte(state: str, ascii_only: bool) -> None:
    try:
        written = json.dumps(state, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        written = json.dumps(state).encode()
    server = Server([asking(written, a=FORM), DONE])

    trio.run(answer_rounds, server.relay, REQUEST, Editor())

    assert bytes(server.requests[1]["requestState"]) == written


async def test_the_second_round_has_nothing_of_the_first(autojump_clock: MockClock) -> None:
    without_state = b'{"resultType":"input_required","inputRequests":{"b":{"method":"roots/list"}}}'
    server = Server([asking(b'"1"', a=FORM), without_state, DONE])

    await answer_rounds(server.relay, REQUEST, Editor())

    last = server.requests[2]
    assert "requestState" not in last
    assert json.loads(bytes(last["inputResponses"])) == {"b": {"action": "accept"}}


async def test_a_state_alone_is_sent_back_after_a_pause(autojump_clock: MockClock) -> None:
    state_alone = b'{"resultType":"input_required","requestState":"later"}'
    server, started_at = Server([state_alone, state_alone, DONE]), trio.current_time()

    await answer_rounds(server.relay, REQUEST, Editor())

    assert [sorted(each.keys() - REQUEST.keys()) for each in server.requests] == [
        [],
        ["requestState"],
        ["requestState"],
    ]
    assert trio.current_time() - started_at == pytest.approx(0.15)


async def test_an_elicitation_by_url_has_an_id_for_its_client(autojump_clock: MockClock) -> None:
    by_url = ("elicitation/create", {"mode": "url", "message": "go", "url": "https://e.org"})
    server, editor = Server([asking(a=by_url), DONE]), Editor()

    await answer_rounds(server.relay, REQUEST, editor)

    asked = json.loads(editor.asked[0][1])
    assert asked == {**by_url[1], "elicitationId": asked["elicitationId"]}


@pytest.mark.parametrize(
    ("question", "capabilities"),
    [
        (("sampling/createMessage", {}), b'{"elicitation":{}}'),
        (("elicitation/create", {"mode": "url"}), b'{"elicitation":{}}'),
    ],
)
async def test_what_the_client_does_not_offer_is_not_asked(
    autojump_clock: MockClock, question: tuple[str, Json], capabilities: bytes
) -> None:
    server, editor = Server([asking(a=FORM, b=question)]), Editor("s", capabilities)

    with pytest.raises(RefusedError, match=question[0]):
        await answer_rounds(server.relay, REQUEST, editor)

    assert (editor.asked, len(server.requests)) == ([], 1)


@pytest.mark.parametrize("error", [ServerError(b"{}"), RefusedError("gone")])
async def test_a_client_that_does_not_answer_ends_the_request(
    autojump_clock: MockClock, error: Exception
) -> None:
    server, editor = Server([asking(a=FORM)]), Editor()
    editor.result = error

    with pytest.raises(type(error)) as caught:
        await answer_rounds(server.relay, REQUEST, editor)

    assert caught.value is error


async def test_a_server_that_is_lost_between_two_rounds_is_told_of(
    autojump_clock: MockClock,
) -> None:
    server = Server([asking(a=FORM), OutcomeUnknownError("gone")])

    with pytest.raises(OutcomeUnknownError):
        await answer_rounds(server.relay, REQUEST, Editor())


async def test_a_server_that_asks_without_end_is_refused(autojump_clock: MockClock) -> None:
    server = Server([asking(a=FORM)])

    with pytest.raises(RefusedError, match="20 times"):
        await answer_rounds(server.relay, REQUEST, Editor())

    assert len(server.requests) == MOST_ROUNDS
