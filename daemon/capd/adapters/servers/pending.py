"""Requests that wait for a server's answer, and the clock that gives up late ones.

If the server ends, `ServerConnection.close` fails all of its requests.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import trio

from capd.adapters.servers.callers import Caller
from capd.core.results.large_results import Result

LONGEST_PAUSE = 600.0
"""Seconds for which a call waits for a person, for all questions of its server together."""


class Patience(Protocol):
    """The time limit of a request: a cancel scope, or a `CallDeadline`."""

    @property
    def deadline(self) -> float:
        """The time at which the limit is reached."""
        ...

    @deadline.setter
    def deadline(self, at: float, /) -> None: ...


class Pending:
    """One request in progress at a server. A subclass handles the outcome in its `on_outcome`."""

    __slots__ = (
        *("_questions", "caller", "error", "is_done", "is_sent", "message_id", "method"),
        *("_paused_at", "_pause_left", "over_at", "patience", "result", "timeout"),
    )

    def __init__(self, method: str, caller: Caller, timeout: float) -> None:
        self.method = method
        self.caller = caller
        self.timeout = timeout
        """Seconds without a reply or progress after which the request ends."""
        self.message_id = 0
        """The id of the request at the server."""
        self.over_at = float("inf")
        """When the request ends despite progress, by trio's clock. Pauses move it."""
        self.is_done = False
        self.is_sent = False
        self.result: Result | None = None
        self.error: Exception | None = None
        self.patience: Patience | None = None
        self._questions = 0
        self._paused_at = 0.0
        self._pause_left = LONGEST_PAUSE

    def on_outcome(self) -> None:
        """Handle the outcome, which is in `result` or `error`. This is called once."""
        raise NotImplementedError

    def complete(self, *, result: Result | None = None, error: Exception | None = None) -> None:
        """Set the outcome, which is `result` or `error`; a second outcome is ignored."""
        if not self.is_done:
            self.is_done = True
            self.result, self.error = result, error
            self.on_outcome()

    def extend(self) -> None:
        """Restart the timeout, unless it is paused."""
        if self.patience is not None and not self._questions:
            self.patience.deadline = min(trio.current_time() + self.timeout, self.over_at)

    def pause(self) -> None:
        """Stop the timeout, because a person is being asked on behalf of this request.

        The rest of the timeout is kept. `LONGEST_PAUSE` applies meanwhile, so that an unanswered
        question neither ends a call early nor keeps it for ever.
        """
        self._questions += 1
        if self._questions > 1:
            return
        self._paused_at = trio.current_time()
        if self.patience is not None:
            self.patience.deadline += self._pause_left
            self.over_at += self._pause_left

    @property
    def timeout_reason(self) -> str:
        """Why the request timed out, in words that follow the server's name."""
        if self._questions:
            return f"waits for an answer that the client has not given for {LONGEST_PAUSE:g} s"
        return f"did not answer within {self.timeout:g} s"

    def go_on(self, *, is_answered: bool) -> None:
        """End one `pause`. If the person answered, the timeout starts again, as after progress."""
        self._questions -= 1
        if self._questions:
            return
        waited = min(trio.current_time() - self._paused_at, self._pause_left)
        unused = self._pause_left - waited
        if self.patience is not None:
            self.patience.deadline -= unused
            self.over_at -= unused
        self._pause_left = unused
        if is_answered:
            self.extend()


class Awaited(Pending):
    """A request whose outcome a task waits for."""

    __slots__ = ("done",)

    def __init__(self, method: str, caller: Caller, timeout: float) -> None:
        super().__init__(method, caller, timeout)
        self.done = trio.Event()

    def on_outcome(self) -> None:
        """Wake the waiting task."""
        self.done.set()


class CallDeadline:
    """The deadline of one call, which each progress notification moves."""

    __slots__ = ("_clock", "_deadline")

    def __init__(self, clock: "CallClock") -> None:
        self._clock = clock
        self._deadline = float("inf")

    @property
    def deadline(self) -> float:
        """The time at which the call is given up."""
        return self._deadline

    @deadline.setter
    def deadline(self, at: float) -> None:
        self._deadline = at
        self._clock.look_by(at)


class CallClock:
    """Gives up calls whose deadline has passed; `run` it in a task of its own."""

    def __init__(self) -> None:
        # The scheduler knows only the nearest deadline: most calls end long before theirs.
        self._sleep = trio.CancelScope()

    def start(self, call: Pending, longest: float) -> None:
        """Watch a call's deadline: `call.timeout` seconds after its start or last progress.

        Without pauses, the deadline is never more than `longest` seconds from now; 0 for no such
        limit.
        """
        if longest:
            call.over_at = trio.current_time() + longest
        call.patience = entry = CallDeadline(self)
        entry.deadline = min(trio.current_time() + call.timeout, call.over_at)

    def look_by(self, at: float) -> None:
        """Make sure that the deadlines of calls are checked at the time `at` at the latest."""
        self._sleep.deadline = min(self._sleep.deadline, at)

    async def run(self, calls: Mapping[int, Pending], give_up: Callable[[Pending], None]) -> None:
        """Pass each of `calls` to `give_up` when its deadline has passed."""
        while True:
            with self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            for call in [each for each in calls.values() if _deadline(each) <= now]:
                give_up(call)
            self._sleep = trio.CancelScope(deadline=_nearest(calls.values()))


def _deadline(call: Pending) -> float:
    return call.patience.deadline if isinstance(call.patience, CallDeadline) else float("inf")


def _nearest(calls: Iterable[Pending]) -> float:
    return min((_deadline(each) for each in calls), default=float("inf"))
