"""The pool of connections that are not let in yet: a bound, a deadline, and who has to go.

Those that were let in are no part of it, so that nobody who only connects can cost one of them
its place.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import trio

from capd.core.sessions.crowd import Waiting, one_too_many


class WaitingPlace:
    """One connection's place in the pool, which holds until `leave`."""

    def __init__(self, pool: "WaitingPool", waiting: Waiting[int], scope: trio.CancelScope) -> None:
        self._pool = pool
        self._waiting = waiting
        self._scope = scope

    def rank(self, rank: int, within: float) -> None:
        """Give this connection another rank, and so many seconds from here on."""
        self._waiting.rank = rank
        self._scope.deadline = trio.current_time() + within

    def leave(self) -> None:
        """Take the connection out of the pool: it was let in."""
        self._pool.remove(self._waiting.key)
        self._scope.deadline = float("inf")


class WaitingPool:
    """At most `most` connections, each for at most `patience` seconds."""

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience
        self._waiting: dict[int, tuple[Waiting[int], trio.CancelScope]] = {}
        self._numbers = count()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    @contextmanager
    def place(self, owner: int = 0) -> Iterator[WaitingPlace]:
        """Have a place for the length of a block, which ends early when another needs it."""
        number = next(self._numbers)
        with trio.CancelScope(deadline=trio.current_time() + self._patience) as scope:
            waiting = Waiting(number, owner)
            self._waiting[number] = (waiting, scope)
            try:
                self._make_room()
                yield WaitingPlace(self, waiting, scope)
            finally:
                self.remove(number)

    def remove(self, number: int) -> None:
        """Forget a connection, if it is still here."""
        self._waiting.pop(number, None)

    def _make_room(self) -> None:
        goes = one_too_many([waiting for waiting, _ in self._waiting.values()], self._most)
        if goes is not None:
            _, scope = self._waiting.pop(goes)
            scope.cancel()
