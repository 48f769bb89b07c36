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
    is_refused: bool = False
    """Whether it is known that it will be refused: those go first."""


def one_too_many(waiting: Sequence[Waiting[K]], most: int) -> K | None:
    """Return which of those waiting, the oldest first, has to go; None while there is room.

    Else it is the oldest one of the process that has most connections here: a client's own is one
    among few, and it waits for milliseconds.
    """
    if len(waiting) <= most:
        return None
    first = [each for each in waiting if each.is_refused] or waiting
    counts = Counter(each.owner for each in first)
    return max(first, key=lambda each: counts[each.owner]).key
