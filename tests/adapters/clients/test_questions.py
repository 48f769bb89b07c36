"""Each question to a client gets one answer, or the client learns that nobody waits for it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.clients.questions import LONGEST_WAIT, Questions
from capd.core.protocol.outcomes import RefusedError, ServerError
from capd_protos.codec import MalformedError

Json = dict[str, Any]


class Asked:
    """A question in a task of its own, what the client was sent, and how it ended."""

    def __init__(self, params: bytes = b"{}") -> None:
        self.questions = Questions()
        self.lines: list[Json] = []
        self.steps: list[Json] = []
        self.ends: list[bytes | Exception] = []
        self.scope = trio.CancelScope()
        self._params = params

    async def run(self) -> None:
        with self.scope:
            try:
                self.ends.append(
                    await self.questions.ask("roots/list", self._params, self._write, self._step)
                )
            except (RefusedError, ServerError) as error:
                self.ends.append(error)

    def _write(self, line: bytes) -> None:
        self.lines.append(json.loads(line))

    def _step(self, params: bytes) -> None:
        self.steps.append(json.loads(params))


@asynccontextmanager
async def asked(params: bytes = b"{}") -> AsyncIterator[Asked]:
    question = Asked(params)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(question.run)
        await wait_all_tasks_blocked()
        yield question
        nursery.cancel_scope.cancel()


WITHDRAWN = {
    "jsonrpc": "2.0",
    "method": "notifications/cancelled",
    "params": {"requestId": "capd-1", "reason": "nobody waits for the answer"},
}


async def test_an_answer_is_taken_byte_for_byte_and_once(autojump_clock: MockClock) -> None:
    async with asked() as question:
        question.questions.on_answer("capd-1", b'{"roots":[ ]}', b"")
        question.questions.on_answer("capd-1", b'{"roots":["other"]}', b"")
        await wait_all_tasks_blocked()

        assert question.ends == [b'{"roots":[ ]}']
        assert question.lines == [
            {"jsonrpc": "2.0", "id": "capd-1", "method": "roots/list", "params": {}}
        ]


async def test_a_clients_error_is_passed_on_as_it_is(autojump_clock: MockClock) -> None:
    async with asked() as question:
        question.questions.on_answer("capd-1", b"", b'{"code":-1,"x": 2}')
        await wait_all_tasks_blocked()

        error = question.ends[0]
        assert isinstance(error, ServerError)
        assert error.error == b'{"code":-1,"x": 2}'


@pytest.mark.parametrize("foreign", ["capd-2", "1", 1, None, "", ["capd-1"]])
async def test_an_answer_to_what_was_not_asked_is_dropped(
    autojump_clock: MockClock, foreign: object
) -> None:
    async with asked() as question:
        question.questions.on_answer(foreign, b"{}", b"")
        await wait_all_tasks_blocked()

        assert question.ends == []


async def test_a_withdrawn_question_is_withdrawn_at_the_client(autojump_clock: MockClock) -> None:
    async with asked() as question:
        question.scope.cancel()
        await wait_all_tasks_blocked()

        assert (question.lines[1:], question.ends) == ([WITHDRAWN], [])


async def test_nobody_waits_for_a_person_for_ever(autojump_clock: MockClock) -> None:
    async with asked() as question:
        await trio.sleep(LONGEST_WAIT + 1)

        assert isinstance(question.ends[0], RefusedError)
        assert question.lines[1:] == [WITHDRAWN]


async def test_a_client_that_goes_has_answered_nothing(autojump_clock: MockClock) -> None:
    async with asked() as question:
        question.questions.close()
        await wait_all_tasks_blocked()

        assert isinstance(question.ends[0], RefusedError)
        with pytest.raises(RefusedError):
            await question.questions.ask("roots/list", b"{}", lambda _: None, lambda _: None)


async def test_progress_of_an_answer_goes_back_under_the_servers_own_token(
    autojump_clock: MockClock,
) -> None:
    async with asked(b'{"_meta":{"progressToken":"mine","a":1}}') as question:
        told = question.lines[0]["params"]["_meta"]
        question.questions.on_progress(b'{"progressToken":"capd-1","progress":1,"x":2}')
        question.questions.on_progress(b'{"progressToken":"capd-9","progress":1}')
        question.questions.on_progress(b"[]")

        assert told == {"progressToken": "capd-1", "a": 1}
        assert question.steps == [{"progressToken": "mine", "progress": 1, "x": 2}]


async def test_params_that_are_none_are_not_asked(autojump_clock: MockClock) -> None:
    question = Asked()

    with pytest.raises(MalformedError):
        await question.questions.ask(
            "roots/list", b'["progressToken"]', question._write, question._step
        )

    assert question.lines == []
