"""Calls of a stateless client that wait for its answers to a server's questions.

    running ──a server asks──> asking: the client has the question ──it repeats the call──> running
       │                          │ ten minutes, or the connection ends
       v outcome                  v
      over                       over, cancelled

A handshake server asks during a call, but a stateless client can only be asked in the result of its
call. So the call waits here. The client names it by a state, a text that cannot be guessed. The
state is valid once, on this connection, and for the same request (docs/design/hostile-servers.md).
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import msgspec
import trio

from capd.adapters.clients.conversation import Conversation, Request
from capd.adapters.servers.callers import Caller, OnProgress
from capd.core.protocol.generations import (
    INVALID_PARAMS,
    MAY_ASK,
    EnvelopeError,
    InputRequest,
    Members,
    asking_result,
    joined,
    members_of,
    offers_anything,
    text_of,
)
from capd.core.protocol.outcomes import RefusedError
from capd.core.results.large_results import Result
from capd_protos.types import ClientFacts, SessionKey

PREFIX = "capd-asked-"
LONGEST_WAIT = 600.0
MOST_SUSPENDED = 64
_OF_THE_RETRY = ("_meta", "inputResponses", "requestState")
_TOO_LATE = "requestState is not of this request, was used already, or is too old"


class _Question:
    def __init__(self, method: str, params: bytes) -> None:
        members_of(params)
        self.request = InputRequest(method, msgspec.Raw(params or b"{}"))
        self.done = trio.Event()
        self.answer = b""
        self.is_asked = False


class SuspendableCall:
    """A call that may return to its client with a question. A server sees it as a `Caller`."""

    def __init__(self, caller: Caller, run: Callable[[Caller], Awaitable[Result]]) -> None:
        self.caller = caller
        """The request that waits for the call now, or waited last. Each repetition is another
        request."""
        self._run = run
        self._scope = trio.CancelScope()
        self._news = trio.Event()
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self._is_awaited = False
        self._is_over = False
        self._result: Result | None = None
        self._error: Exception | None = None

    @property
    def session(self) -> SessionKey:
        """The session of the call."""
        return self.caller.session

    @property
    def client(self) -> ClientFacts:
        """The client info that came with the request."""
        return self.caller.client

    @property
    def log_level(self) -> str:
        """The lowest level of log messages that the client wants."""
        return self.caller.log_level

    async def dispatched(self) -> None:
        """Tell the client that the call may run from now on."""
        await self.caller.dispatched()

    def progress(self, params: bytes) -> None:
        """Send a progress notification to the client, for the request that waits at the moment."""
        if self._is_awaited:
            self.caller.progress(params)

    def tell(self, method: str, params: bytes) -> None:
        """Send a notification to the client, for the request that waits at the moment."""
        if self._is_awaited:
            self.caller.tell(method, params)

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Send the client a question as the call's result; return the answer in its repeated call.

        Raises:
            RefusedError: the call ends before the answer comes.
            MalformedError: the params are not an object.
        """
        # In this generation, a client does not report progress with an answer.
        del on_progress
        if self._is_over:
            raise RefusedError("the client's request has ended")
        question = _Question(method, params)
        self._asked += 1
        key = f"input-{self._asked}"
        self._questions[key] = question
        self._news.set()
        try:
            await question.done.wait()
        finally:
            self._questions.pop(key, None)
        if not question.answer:
            raise RefusedError("the client's request has ended")
        return question.answer

    async def run(self) -> None:
        """Run the call until its outcome is known and no question is open."""
        try:
            with self._scope:
                await self._run_to_end()
        finally:
            self._end()

    async def _run_to_end(self) -> None:
        try:
            self._result = await self._run(self)
        except Exception as error:  # noqa: BLE001 - the request that waits gets it, and its outcome
            self._error = error
        self._news.set()
        # A question that this call carries may belong to another call of the session.
        for question in list(self._questions.values()):
            await question.done.wait()

    async def result(self, suspend: Callable[["SuspendableCall"], str]) -> Result:
        """Return the outcome, or the open questions with the state that `suspend` returns.

        Raises:
            CallFailedError, ServerError, UnknownNameError, MalformedError: this error is the
            outcome of the call.
            EnvelopeError: the call ended without an outcome.
        """
        self._scope.deadline = float("inf")
        self._is_awaited = True
        try:
            while True:
                await self._news.wait()
                asked = {key: each for key, each in self._questions.items() if not each.is_asked}
                if self._has_outcome or asked or self._is_over:
                    break
                # The question was withdrawn meanwhile.
                self._news = trio.Event()
        except trio.Cancelled:
            self.give_up()
            raise
        finally:
            self._is_awaited = False
        if self._has_outcome or self._is_over:
            return self._outcome()
        self._news = trio.Event()
        for question in asked.values():
            question.is_asked = True
        self._scope.deadline = trio.current_time() + LONGEST_WAIT
        return asking_result({k: q.request for k, q in asked.items()}, suspend(self))

    def give_up(self) -> None:
        """End the call, because its client no longer waits for it."""
        self._scope.cancel()

    async def resume(self, caller: Caller, responses: Members) -> None:
        """Continue the call for `caller`, which repeats its request.

        `responses` are the client's answers to the questions.
        """
        self.caller = caller
        try:
            # The call itself was dispatched with its first request.
            await caller.dispatched()
        except BaseException:
            self.give_up()
            raise
        self.answer(responses)

    def answer(self, responses: Members) -> None:
        """Note the client's answers. Questions without an answer are asked again."""
        for key, question in self._questions.items():
            response = responses.get(key)
            if response is not None:
                question.answer = bytes(response)
                question.done.set()
            else:
                question.is_asked = False
                self._news.set()

    @property
    def _has_outcome(self) -> bool:
        return self._result is not None or self._error is not None

    def _outcome(self) -> Result:
        self._end()
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise EnvelopeError(INVALID_PARAMS, _TOO_LATE)
        return self._result

    def _end(self) -> None:
        """Fail all open questions, because no answers will come."""
        self._is_over = True
        for question in self._questions.values():
            question.done.set()
        self._news.set()


class SuspendedCalls:
    """The calls of one connection that wait until their client repeats them."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[SuspendableCall, bytes]] = {}

    async def relay(
        self, request: Request, conversation: Conversation, nursery: trio.Nursery
    ) -> Result:
        """Answer a stateless request: return the server's result, or questions to the client.

        A call with questions waits, with its task in `nursery`, until the client repeats it.

        Raises:
            EnvelopeError: the request repeats one that cannot be repeated. Other errors: as
                `Conversation.relay`.
        """
        members = request.members
        responses = members_of(members.get("inputResponses", msgspec.Raw(b"")))
        resumed = self.take(members)
        if resumed is not None:
            await resumed.resume(request.caller, responses)
        elif request.method not in MAY_ASK or not offers_anything(request.caller.client):
            # This request cannot return a question, so it need not be suspended.
            return await conversation.relay(request)
        else:
            resumed = SuspendableCall(
                request.caller, lambda caller: conversation.relay(replace(request, caller=caller))
            )
            nursery.start_soon(resumed.run)
        return await resumed.result(lambda suspended: self.put(suspended, members))

    def put(self, call: SuspendableCall, members: Members) -> str:
        """Keep `call` until its client repeats it; return the state that the client must send.

        `members` are the params of the request. If there are too many calls, the oldest is given
        up.
        """
        if len(self._calls) >= MOST_SUSPENDED:
            oldest, _ = self._calls.pop(next(iter(self._calls)))
            oldest.give_up()
        state = PREFIX + secrets.token_urlsafe(24)
        self._calls[state] = (call, _digest(members))
        return state

    def take(self, members: Members) -> SuspendableCall | None:
        """Return the call that a request with the params `members` repeats; None if there is none.

        Raises:
            EnvelopeError: the request's state is capd's, but is not valid for this request.
        """
        state = text_of(members.get("requestState"))
        if not state.startswith(PREFIX):
            return None
        call, digest = self._calls.get(state, (None, b""))
        if call is None or not secrets.compare_digest(digest, _digest(members)):
            raise EnvelopeError(INVALID_PARAMS, _TOO_LATE)
        del self._calls[state]
        return call


def _digest(members: Members) -> bytes:
    """Return a digest of the params that a repeated request has in common with the first.

    The order of the params does not matter.
    """
    same = {key: value for key, value in members.items() if key not in _OF_THE_RETRY}
    written = joined(dict(sorted(same.items())))
    # If a number cannot be decoded, the request is compared byte by byte.
    with suppress(msgspec.MsgspecError, RecursionError):
        written = msgspec.json.encode(msgspec.json.decode(written), order="deterministic")
    return hashlib.sha256(written).digest()
