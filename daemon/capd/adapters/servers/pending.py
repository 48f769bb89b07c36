"""A request to a server that waits for its one completion."""

from typing import Protocol

import trio

from capd.adapters.servers.callers import Caller
from capd.core.results.large_results import Result


class Patience(Protocol):
    """Until when a request is waited for: a cancel scope, or a clock's entry."""

    @property
    def deadline(self) -> float:
        """When it is over."""
        ...

    @deadline.setter
    def deadline(self, at: float, /) -> None: ...


class Pending:
    """One request under way. Who waits for it is a subclass: so no cycle is left behind."""

    __slots__ = (
        *("_questions", "caller", "error", "is_done", "is_sent", "message_id", "method"),
        *("over_at", "patience", "result", "timeout"),
    )

    def __init__(self, method: str, caller: Caller, timeout: float) -> None:
        self.method = method
        self.caller = caller
        self.timeout = timeout
        """Seconds without a reply or progress after which it is given up."""
        self.message_id = 0
        """What the server knows it by."""
        self.over_at = float("inf")
        """When it is given up whatever its progress; a question to a person takes no part in
        that."""
        self.is_done = False
        self.is_sent = False
        self.result: Result | None = None
        self.error: Exception | None = None
        self.patience: Patience | None = None
        self._questions = 0

    def settled(self) -> None:
        """Hear, once, that there is an outcome."""
        raise NotImplementedError

    def complete(self, *, result: Result | None = None, error: Exception | None = None) -> None:
        """Give it its outcome; a second one changes nothing."""
        if not self.is_done:
            self.is_done = True
            self.result, self.error = result, error
            self.settled()

    def extend(self) -> None:
        """Start its patience anew."""
        if self.patience is not None and not self._questions:
            self.patience.deadline = min(trio.current_time() + self.timeout, self.over_at)

    def pause(self) -> None:
        """Wait without end: a person is asked something on behalf of this request."""
        self._questions += 1
        if self.patience is not None:
            self.patience.deadline = float("inf")

    def go_on(self) -> None:
        """End one `pause`."""
        self._questions -= 1
        self.extend()


class Awaited(Pending):
    """A request that a task waits for."""

    __slots__ = ("done",)

    def __init__(self, method: str, caller: Caller, timeout: float) -> None:
        super().__init__(method, caller, timeout)
        self.done = trio.Event()

    def settled(self) -> None:
        """Wake the task."""
        self.done.set()
