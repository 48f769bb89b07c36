"""Which connection has to go when too many wait to say who they are."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(slots=True)
class Waiting(Generic[K]):
    """A connection that is not let in yet."""

    key: K
    owner: int = 0
    """The process at its other end; 0 where that is not known."""
    rank: int = 0
    """Those of the lowest rank go first: what is known to be refused is below what is silent, and
    that is below what has shown a token and is being looked at."""


def one_too_many(waiting: Sequence[Waiting[K]], most: int) -> K | None:
    """Return which of those waiting, the oldest first, has to go; None while there is room.

    Of the lowest rank it is the oldest one of the process that has most connections there: a
    client's own is one among few, and it waits for milliseconds.
    """
    if len(waiting) <= most:
        return None
    lowest = min(each.rank for each in waiting)
    low = [each for each in waiting if each.rank == lowest]
    counts = Counter(each.owner for each in low)
    return max(low, key=lambda each: counts[each.owner]).key
