"""Limits how many connections may wait to be let in, and for how long.

A connection waits until the daemon has accepted its hello or its first request. Then it leaves the
pool, so a process that connects and says nothing displaces only others that wait.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

import trio

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Waiting(Generic[K]):
    """A connection whose hello has not been accepted yet."""

    key: K
    owner: int = 0
    """The pid of the process at its other end; 0 if unknown."""


def connection_to_close(waiting: Sequence[Waiting[K]], most: int) -> K | None:
    """Return the key of the connection to close; None if at most `most` are waiting.

    `waiting` is in the order of arrival. The connection to close is the oldest one of the process
    that has the most connections waiting. An honest client has few, and each of them waits for
    milliseconds.
    """
    if len(waiting) <= most:
        return None
    counts = Counter(each.owner for each in waiting)
    return max(waiting, key=lambda each: counts[each.owner]).key


class WaitingPlace:
    """The place of one connection in a pool of waiting connections, until `leave`."""

    def __init__(self, pool: "WaitingPool", waiting: Waiting[int], scope: trio.CancelScope) -> None:
        self._pool = pool
        self._waiting = waiting
        self._scope = scope

    def move(self, pool: "WaitingPool") -> None:
        """Move this connection to another pool, with that pool's time limit."""
        self.leave()
        self._pool = pool
        pool.add(self._waiting, self._scope)

    def leave(self) -> None:
        """Take the connection out of its pool, because it was accepted or has ended."""
        self._pool.remove(self._waiting)
        self._scope.deadline = float("inf")


class WaitingPool:
    """At most `most` connections that wait to be accepted, each for at most `patience` seconds."""

    def __init__(self, most: int, patience: float) -> None:
        self._most = most
        self._patience = patience
        self._waiting: dict[int, tuple[Waiting[int], trio.CancelScope]] = {}

    def __len__(self) -> int:
        """Return the number of waiting connections."""
        return len(self._waiting)

    @contextmanager
    def place(self, owner: int = 0) -> Iterator[WaitingPlace]:
        """Hold a place in the pool while the block runs; `owner` is the connecting process's pid.

        The block is cancelled if another connection needs the place, or after the pool's patience.
        """
        with trio.CancelScope() as scope:
            waiting = Waiting(next(_NUMBERS), owner)
            place = WaitingPlace(self, waiting, scope)
            try:
                self.add(waiting, scope)
                yield place
            finally:
                place.leave()

    def add(self, waiting: Waiting[int], scope: trio.CancelScope) -> None:
        """Add a connection, for as long as the pool's patience.

        Then, or if the connection must make room for another, `scope` is cancelled.
        """
        scope.deadline = trio.current_time() + self._patience
        self._waiting[waiting.key] = (waiting, scope)
        goes = connection_to_close([each for each, _ in self._waiting.values()], self._most)
        if goes is not None:
            _, doomed = self._waiting.pop(goes)
            doomed.cancel()

    def remove(self, waiting: Waiting[int]) -> None:
        """Forget a waiting connection, if it is still in the pool."""
        self._waiting.pop(waiting.key, None)


_NUMBERS = count()
