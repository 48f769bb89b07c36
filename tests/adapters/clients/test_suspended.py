"""A call suspended by a question resumes once, for the same request, or not at all."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.clients.conversation import UnknownNameError
from capd.adapters.clients.suspended import (
    LONGEST_WAIT,
    MOST_SUSPENDED,
    PREFIX,
    SuspendableCall,
    SuspendedCalls,
)
from capd.adapters.servers.callers import Caller
from capd.core.protocol.generations import EnvelopeError, Members, members_of
from capd.core.protocol.outcomes import (
    CallFailedError,
    OutcomeUnknownError,
    RefusedError,
    ServerError,
)
from capd_protos.codec import MalformedError
from line_server import Editor

REQUEST = members_of(b'{"name":"t","arguments":{"a":1,"b":[1.0]},"_meta":{"x":1}}')


class Server:
    """A scripted server behind the call."""

    def __init__(self) -> None:
        self.told, self._orders = trio.open_memory_channel[Callable[[], Any]](10)
        self.caller: Caller = Editor()
        self.answers: list[bytes | Exception] = []
        self.is_cancelled = False

    async def run(self, caller: Caller) -> bytes:
        self.caller = caller
        try:
            async for order in self._orders:
                result = order()
                if isinstance(result, Exception):
                    raise result
                return bytes(result)
        except trio.Cancelled:
            self.is_cancelled = True
            raise
        raise AssertionError

    async def ask(self, params: bytes = b'{"message":"who?"}') -> None:
        try:
            self.answers.append(await self.caller.ask("elicitation/create", params, lambda _: None))
        except (RefusedError, MalformedError) as error:
            self.answers.append(error)

    def end(self, result: bytes | Exception = b'{"content":[ ]}') -> None:
        self.told.send_nowait(lambda: result)


class Stage:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.calls = SuspendedCalls()
        self.server = Server()
        self.editor = Editor()
        self.call = SuspendableCall(self.editor, self.server.run)
        self.nursery = nursery
        self.ends: list[Any] = []

    async def wait(self, call: SuspendableCall) -> None:
        try:
            result = await call.result(lambda each: self.calls.put(each, REQUEST))
        except (CallFailedError, EnvelopeError, ServerError, UnknownNameError) as error:
            self.ends.append(error)
        else:
            assert isinstance(result, bytes)
            self.ends.append(json.loads(result))

    async def ask(self, params: bytes = b'{"message":"who?"}') -> None:
        self.nursery.start_soon(self.server.ask, params)
        await wait_all_tasks_blocked()

    def repeated(self, **answers: Any) -> Members:
        """Return the request as the client sends it again."""
        state = json.dumps(self.ends[-1]["requestState"]).encode()
        responses = json.dumps(answers).encode()
        return {
            **REQUEST,
            **members_of(b'{"requestState":%s,"inputResponses":%s}' % (state, responses)),
        }

    async def repeat(self, **answers: Any) -> None:
        request = self.repeated(**answers)
        call = self.calls.take(request)
        assert call is self.call
        await self.call.resume(self.editor, members_of(request["inputResponses"]))
        self.nursery.start_soon(self.wait, self.call)
        await wait_all_tasks_blocked()


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    async with trio.open_nursery() as nursery:
        stage = Stage(nursery)
        nursery.start_soon(stage.call.run)
        nursery.start_soon(stage.wait, stage.call)
        await wait_all_tasks_blocked()
        yield stage
        nursery.cancel_scope.cancel()


def question(state: str, *keys: str) -> dict[str, Any]:
    asked = {"method": "elicitation/create", "params": {"message": "who?"}}
    return {
        "resultType": "input_required",
        "inputRequests": dict.fromkeys(keys, asked),
        "requestState": state,
    }


async def test_a_call_that_asks_nothing_has_its_own_result(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        stage.server.end()
        await wait_all_tasks_blocked()

        assert stage.ends == [{"content": []}]


@pytest.mark.parametrize(
    "error",
    [UnknownNameError("no"), OutcomeUnknownError("gone"), ServerError(b"{}"), RefusedError("no")],
)
async def test_however_a_call_fails_its_waiter_hears_of_it(
    autojump_clock: MockClock, error: Exception
) -> None:
    async with staged() as stage:
        stage.server.end(error)
        await wait_all_tasks_blocked()

        assert stage.ends == [error]


async def test_a_question_is_a_result_and_the_repetition_brings_the_answer(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        await stage.ask()
        state = stage.ends[0]["requestState"]
        await stage.repeat(**{"input-1": {"action": "accept"}})
        stage.server.end()
        await wait_all_tasks_blocked()

        assert state.startswith(PREFIX)
        assert stage.ends == [question(state, "input-1"), {"content": []}]
        assert stage.server.answers == [b'{"action": "accept"}']


async def test_what_a_client_leaves_unanswered_is_asked_again(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        stage.nursery.start_soon(stage.server.ask)
        await stage.ask()
        await stage.repeat(**{"input-1": {"n": 1}})
        again = stage.ends[-1]
        await stage.repeat(**{"input-2": {"n": 2}})
        stage.server.end()
        await wait_all_tasks_blocked()

        assert list(again["inputRequests"]) == ["input-2"]
        assert stage.server.answers == [b'{"n": 1}', b'{"n": 2}']
        assert stage.ends[-1] == {"content": []}


async def test_a_question_that_comes_while_the_client_thinks_is_asked_with_the_next_result(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        await stage.ask()
        await stage.ask()
        await stage.repeat(**{"input-1": {}})

        assert list(stage.ends[-1]["inputRequests"]) == ["input-2"]


async def test_a_question_that_is_withdrawn_again_is_not_asked(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.ask()
        with trio.move_on_after(1):
            await stage.server.caller.ask("roots/list", b"{}", lambda _: None)
        await stage.repeat(**{"input-1": {}})
        before = len(stage.ends)
        stage.server.end()
        await wait_all_tasks_blocked()

        assert (before, stage.ends[1:]) == (1, [{"content": []}])


async def test_a_result_that_comes_while_the_client_thinks_is_kept_for_its_repetition(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        await stage.ask()
        stage.server.end()
        await wait_all_tasks_blocked()
        await stage.repeat(**{"input-1": {"late": True}})

        assert stage.ends[-1] == {"content": []}
        # It was another call's question, on the session's newest call.
        assert stage.server.answers == [b'{"late": true}']


async def test_a_question_is_refused_where_the_result_left_without_it(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        stage.server.end()
        await wait_all_tasks_blocked()

        await stage.ask()

        assert [str(each) for each in stage.server.answers] == ["the client's request has ended"]


async def test_params_that_are_none_are_not_asked(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.ask(b"[]")

        assert isinstance(stage.server.answers[0], MalformedError)
        assert stage.ends == []


async def test_a_client_that_does_not_come_back_is_waited_for_ten_minutes(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        await stage.ask()
        await trio.sleep(LONGEST_WAIT + 1)
        was_cancelled = stage.server.is_cancelled
        await stage.repeat(**{"input-1": {}})

        assert was_cancelled
        assert isinstance(stage.ends[-1], EnvelopeError)
        assert [str(each) for each in stage.server.answers] == ["the client's request has ended"]


async def test_cancelling_a_waiter_cancels_the_call(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.ask()
        with trio.CancelScope() as scope:
            scope.cancel()
            await stage.call.result(lambda _: "")
        await wait_all_tasks_blocked()

        assert stage.server.is_cancelled


async def test_a_client_that_goes_while_it_repeats_its_request_ends_the_call(
    autojump_clock: MockClock,
) -> None:
    class Gone(Editor):
        async def dispatched(self) -> None:
            raise RefusedError("the client's connection is gone")

    async with staged() as stage:
        await stage.ask()
        with pytest.raises(RefusedError):
            await stage.call.resume(Gone(), {})
        await wait_all_tasks_blocked()

        assert stage.server.is_cancelled


async def test_a_connection_that_is_lost_leaves_no_question_open(
    autojump_clock: MockClock,
) -> None:
    server = Server()
    async with trio.open_nursery() as server_connection:
        async with trio.open_nursery() as connection:
            call = SuspendableCall(Editor(), server.run)
            connection.start_soon(call.run)
            await wait_all_tasks_blocked()
            server_connection.start_soon(server.ask)
            await wait_all_tasks_blocked()
            connection.cancel_scope.cancel()
        await wait_all_tasks_blocked()

        assert [str(each) for each in server.answers] == ["the client's request has ended"]


async def test_nothing_is_told_of_a_call_that_nobody_waits_for(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        stage.server.caller.progress(b"1")
        stage.server.caller.tell("m", b"{}")
        await stage.ask()
        stage.server.caller.progress(b"2")
        stage.server.caller.tell("n", b"{}")

        assert (stage.editor.steps, stage.editor.told) == ([b"1"], [("m", b"{}")])


# The state


async def test_a_state_is_good_once(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.ask()
        request = stage.repeated()
        stage.calls.take(request)

        with pytest.raises(EnvelopeError, match="was used already"):
            stage.calls.take(request)


async def test_a_state_with_any_bit_flipped_is_refused(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.ask()
        state = stage.ends[0]["requestState"]
        flipped = [
            state[:at] + chr(ord(state[at]) ^ 1) + state[at + 1 :]
            for at in range(len(PREFIX), len(state))
        ]

        for each in flipped:
            with pytest.raises(EnvelopeError):
                stage.calls.take(
                    {**REQUEST, **members_of(json.dumps({"requestState": each}).encode())}
                )
        assert stage.calls.take(stage.repeated()) is stage.call


@pytest.mark.parametrize(
    "other",
    [
        b'{"name":"u","arguments":{"a":1,"b":[1.0]}}',
        b'{"name":"t","arguments":{"a":2,"b":[1.0]}}',
        b'{"name":"t"}',
    ],
)
async def test_a_state_is_good_for_its_own_request_alone(
    autojump_clock: MockClock, other: bytes
) -> None:
    async with staged() as stage:
        await stage.ask()
        state = stage.repeated()["requestState"]

        with pytest.raises(EnvelopeError):
            stage.calls.take({**members_of(other), "requestState": state})
        assert stage.calls.take(stage.repeated()) is stage.call


async def test_a_request_is_the_same_in_whatever_order_it_is_written(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        await stage.ask()
        state = stage.repeated()["requestState"]
        same = members_of(b'{ "arguments" : {"b":[1.0],"a":1}, "name":"t" , "_meta":{"x":2}}')

        assert stage.calls.take({**same, "requestState": state}) is stage.call


async def test_a_state_of_another_connection_is_refused(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.ask()

        with pytest.raises(EnvelopeError):
            SuspendedCalls().take(stage.repeated())


@pytest.mark.parametrize("state", [b'"a server\'s own"', b"null", b"5", b'"\\ud800"'])
def test_a_servers_own_state_is_none_of_ours(state: bytes) -> None:
    assert SuspendedCalls().take({"requestState": msgspec.Raw(state)}) is None


async def test_the_oldest_of_too_many_is_given_up(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.ask()
        for _ in range(MOST_SUSPENDED):
            stage.calls.put(SuspendableCall(Editor(), stage.server.run), REQUEST)
        await wait_all_tasks_blocked()

        assert stage.server.is_cancelled
        with pytest.raises(EnvelopeError):
            stage.calls.take(stage.repeated())
