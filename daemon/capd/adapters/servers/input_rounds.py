"""Answers a stateless server's questions on behalf of a handshake client.

A handshake client does not understand a result that asks a question. So capd sends the client the
question as a request of its own generation. Then capd sends the call again, with the answers and
the server's unchanged state, until the server returns a result without questions.
"""

import uuid
from collections.abc import Awaitable, Callable

import msgspec
import trio

from capd.adapters.servers.callers import Caller
from capd.core.protocol.generations import (
    InputRequest,
    InputRequired,
    Members,
    input_required,
    joined,
    offers,
    question_for_handshake,
)
from capd.core.protocol.outcomes import CallFailedError, RefusedError, ServerError
from capd.core.results.large_results import Result
from capd_protos.codec import MalformedError

MOST_ROUNDS = 20
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

Relay = Callable[[Members], Awaitable[Result]]


async def answer_rounds(relay: Relay, members: Members, caller: Caller) -> Result:
    """Send a request with `relay` until the result asks for nothing; return that result.

    `members` are the request's params. Questions in a result are put to `caller`'s client.

    Raises:
        RefusedError: the server asks for something that the client does not support, or has asked
            `MOST_ROUNDS` times.
        ServerError: the client, or the server, answered with an error.
        NotSentError, OutcomeUnknownError: as `relay`.
    """
    pause = _FIRST_PAUSE
    for _ in range(MOST_ROUNDS):
        result = await relay(members)
        wanted = input_required(result)
        if wanted is None:
            return result
        if wanted.inputRequests:
            pause = _FIRST_PAUSE
        else:
            await trio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        members = await _with_answers(members, wanted, caller)
    raise RefusedError(f"the server asked for more input {MOST_ROUNDS} times in a row")


async def _with_answers(members: Members, wanted: InputRequired, caller: Caller) -> Members:
    answers: dict[str, msgspec.Raw] = {}

    async def ask(key: str, request: InputRequest) -> None:
        # The id is made up here: a stateless server does not announce that an elicitation by URL
        # is completed, so nothing refers to it later.
        params = question_for_handshake(request.method, bytes(request.params), uuid.uuid4().hex)
        answers[key] = msgspec.Raw(await caller.ask(request.method, params, lambda _: None))

    for request in wanted.inputRequests.values():
        if not offers(caller.client, request.method, bytes(request.params)):
            raise RefusedError(f"the server wants {request.method}, which the client cannot do")
    problems: list[Exception] = []

    async def contained(key: str, request: InputRequest, scope: trio.CancelScope) -> None:
        try:
            await ask(key, request)
        except MalformedError as error:
            problems.append(RefusedError(f"the server asks {request.method} wrongly: {error}"))
            scope.cancel()
        except (CallFailedError, ServerError) as error:
            problems.append(error)
            scope.cancel()

    async with trio.open_nursery() as nursery:
        for key, request in wanted.inputRequests.items():
            nursery.start_soon(contained, key, request, nursery.cancel_scope)
    if problems:
        raise problems[0]
    again = {k: v for k, v in members.items() if k not in {"inputResponses", "requestState"}}
    if wanted.inputRequests:
        again["inputResponses"] = msgspec.Raw(joined(answers))
    if len(wanted.requestState):
        again["requestState"] = wanted.requestState
    return again
