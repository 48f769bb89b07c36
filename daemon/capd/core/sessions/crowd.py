"""Which connection has to go when too many wait to say who they are."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Waiting(Generic[K]):
    """A connection that is not let in yet."""

    key: K
    owner: int = 0
    """The process at its other end; 0 where that is not known."""


def one_too_many(waiting: Sequence[Waiting[K]], most: int) -> K | None:
    """Return which of those waiting, the oldest first, has to go; None while there is room.

    It is the oldest one of the process that has most connections here: a client's own is one among
    few, and it waits for milliseconds.
    """
    if len(waiting) <= most:
        return None
    counts = Counter(each.owner for each in waiting)
    return max(waiting, key=lambda each: counts[each.owner]).key
