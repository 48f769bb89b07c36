"""Deadlines of the calls of one server connection, which a single task watches."""

from collections.abc import Callable, Iterable, Mapping

import trio

from capd.adapters.servers.pending import Pending


class Entry:
    """The deadline of one call. Progress moves it."""

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

        `longest`: seconds from now after which progress moves it no more; 0 for no such limit.
        """
        if longest:
            call.over_at = trio.current_time() + longest
        call.patience = entry = Entry(self)
        entry.deadline = min(trio.current_time() + call.timeout, call.over_at)

    def look_by(self, at: float) -> None:
        """Check the calls at `at` at the latest."""
        self._sleep.deadline = min(self._sleep.deadline, at)

    async def run(self, calls: Mapping[int, Pending], give_up: Callable[[Pending], None]) -> None:
        """Pass each call to `give_up` when its deadline has passed."""
        while True:
            with self._sleep:
                await trio.sleep_forever()
            now = trio.current_time()
            for call in [each for each in calls.values() if _deadline(each) <= now]:
                give_up(call)
            self._sleep = trio.CancelScope(deadline=_nearest(calls.values()))


def _deadline(call: Pending) -> float:
    return call.patience.deadline if isinstance(call.patience, Entry) else float("inf")


def _nearest(calls: Iterable[Pending]) -> float:
    return min((_deadline(each) for each in calls), default=float("inf"))
