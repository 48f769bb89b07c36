"""A request to a server that waits for its one completion."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from capd.adapters.servers.callers import Caller
from capd.core.results.large_results import Result


class Patience(Protocol):
    """Until when a request is waited for: a cancel scope, or a clock's entry."""

    deadline: float


@dataclass(slots=True, eq=False)
class Pending:
    """One request under way."""

    method: str
    caller: Caller
    timeout: float
    """Seconds without a reply or progress after which it is given up."""
    on_done: Callable[["Pending"], None]
    """Hears once that there is an outcome."""
    message_id: int = 0
    """What the server knows it by."""
    over_at: float = float("inf")
    """When it is given up whatever its progress; a question to a person takes no part in that."""
    is_done: bool = False
    is_sent: bool = False
    result: Result | None = None
    error: Exception | None = None
    patience: Patience | None = None
    _questions: int = 0

    def complete(self, *, result: Result | None = None, error: Exception | None = None) -> None:
        """Give it its outcome; a second one changes nothing."""
        if not self.is_done:
            self.is_done = True
            self.result, self.error = result, error
            self.on_done(self)

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
