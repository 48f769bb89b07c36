"""Chooses which unauthenticated connection to close when there are too many."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Waiting(Generic[K]):
    """A connection that is not admitted yet."""

    key: K
    owner: int = 0
    """The pid at its other end; 0 if unknown."""


def one_too_many(waiting: Sequence[Waiting[K]], most: int) -> K | None:
    """Return which of the waiting connections, oldest first, to close; None if there is room.

    It is the oldest one of the process that has most connections here: an honest client has few,
    and they wait for milliseconds.
    """
    if len(waiting) <= most:
        return None
    counts = Counter(each.owner for each in waiting)
    return max(waiting, key=lambda each: counts[each.owner]).key
