"""Calls of a stateless-era client that wait for its answers to a server's questions.

    running ──a server asks──> asking: the client has its result ──it repeats the call──> running
       │                          │ ten minutes
       v outcome                  v
      over                       over, cancelled

A handshake-era server asks while a call is under way; such a client can only be asked by the
call's own result. The call goes on waiting here, under a state that nobody can guess, that is
good once, for this session, and for the same request (80, E8).
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable

import msgspec
import trio

from capd.adapters.servers.callers import Caller
from capd.core.eras import (
    INVALID_PARAMS,
    EnvelopeError,
    InputRequest,
    Members,
    asking_result,
    joined,
)
from capd.core.outcomes import CallFailedError, ServerError
from capd_protos.codec import MalformedError
from capd_protos.types import ClientFacts, SessionKey

PREFIX = "capd-asked-"
LONGEST_WAIT = 600.0
MOST_SUSPENDED = 64
_OF_THE_RETRY = ("_meta", "inputResponses", "requestState")


class _Question:
    def __init__(self, method: str, params: bytes) -> None:
        self.request = InputRequest(method, msgspec.Raw(params))
        self.done = trio.Event()
        self.answer = b""
        self.is_told = False


class SuspendableCall:
    """A call that can return to its client with a question; a `Caller` to the lane."""

    def __init__(self, caller: Caller, run: Callable[[Caller], Awaitable[bytes]]) -> None:
        self.caller = caller
        """Whoever waits for it now: each repetition is another request."""
        self._run = run
        self._scope = trio.CancelScope()
        self._news = trio.Event()
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self._result: bytes | None = None
        self._error: Exception | None = None

    @property
    def session(self) -> SessionKey:
        """Whose call it is."""
        return self.caller.session

    @property
    def client(self) -> ClientFacts:
        """What the client said of itself with the request."""
        return self.caller.client

    @property
    def log_level(self) -> str:
        """From which level on the client wants log messages."""
        return self.caller.log_level

    async def dispatched(self) -> None:
        """Tell the client that it may have run from here on."""
        await self.caller.dispatched()

    def progress(self, params: bytes) -> None:
        """Tell whoever waits."""
        self.caller.progress(params)

    def tell(self, method: str, params: bytes) -> None:
        """Tell whoever waits."""
        self.caller.tell(method, params)

    async def ask(self, method: str, params: bytes) -> bytes:
        """Have the call return with a question, and wait for the client to repeat it."""
        self._asked += 1
        key = f"input-{self._asked}"
        question = self._questions[key] = _Question(method, params)
        self._news.set()
        try:
            await question.done.wait()
        finally:
            self._questions.pop(key, None)
        return question.answer

    async def run(self) -> None:
        """Be the call, until its outcome; in a task that outlives the request."""
        try:
            with self._scope:
                self._result = await self._run(self)
        except (CallFailedError, ServerError, MalformedError) as error:
            self._error = error
        self._news.set()

    async def result(self, suspend: Callable[["SuspendableCall"], str]) -> bytes:
        """Return the outcome, or the questions under the state that `suspend` gives them.

        Raises:
            CallFailedError, ServerError: the outcome is that.
        """
        self._scope.deadline = float("inf")
        try:
            await self._news.wait()
        except trio.Cancelled:
            self._scope.cancel()
            raise
        if self._error is not None:
            raise self._error
        if self._result is not None:
            return self._result
        self._news = trio.Event()
        asked = {key: each for key, each in self._questions.items() if not each.is_told}
        if not asked:
            self._scope.cancel()
            raise EnvelopeError(INVALID_PARAMS, "the server has withdrawn what it asked")
        for question in asked.values():
            question.is_told = True
        self._scope.deadline = trio.current_time() + LONGEST_WAIT
        return asking_result({k: q.request for k, q in asked.items()}, suspend(self))

    def give_up(self) -> None:
        """End it: nobody waits for it any more."""
        self._scope.cancel()

    def answer(self, responses: Members) -> None:
        """Take the client's answers; what it left out is asked again."""
        for key, question in self._questions.items():
            response = responses.get(key)
            if response is not None:
                question.answer = bytes(response)
                question.done.set()
            else:
                question.is_told = False
                self._news.set()


class SuspendedCalls:
    """The calls of one connection that wait for their repetition."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[SuspendableCall, bytes]] = {}

    def put(self, call: SuspendableCall, members: Members) -> str:
        """Keep `call`; return the state that a repetition must bring.

        The oldest one is given up where there are too many.
        """
        if len(self._calls) >= MOST_SUSPENDED:
            oldest, _ = self._calls.pop(next(iter(self._calls)))
            oldest.give_up()
        state = PREFIX + secrets.token_urlsafe(24)
        self._calls[state] = (call, _digest(members))
        return state

    def take(self, members: Members) -> SuspendableCall | None:
        """Return the call that a request repeats, None where it repeats none of ours.

        Raises:
            EnvelopeError: its state was ours, and is not good for this request.
        """
        state = _text(members.get("requestState"))
        if not state.startswith(PREFIX):
            return None
        call, digest = self._calls.pop(state, (None, b""))
        if call is None or not secrets.compare_digest(digest, _digest(members)):
            text = "requestState is not of this request, was used already, or is too old"
            raise EnvelopeError(INVALID_PARAMS, text)
        return call


def _digest(members: Members) -> bytes:
    same = {key: value for key, value in members.items() if key not in _OF_THE_RETRY}
    return hashlib.sha256(joined(dict(sorted(same.items())))).digest()


def _text(value: msgspec.Raw | None) -> str:
    try:
        return msgspec.json.decode(value, type=str) if value is not None else ""
    except msgspec.MsgspecError:
        return ""
