"""Chooses which connection to close when too many have not sent a valid hello yet."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Waiting(Generic[K]):
    """A connection whose hello has not been accepted yet."""

    key: K
    owner: int = 0
    """The pid of the process at its other end; 0 if unknown."""


def connection_to_close(waiting: Sequence[Waiting[K]], most: int) -> K | None:
    """Return the key of the connection to close; None if at most `most` are waiting.

    `waiting` is in the order of arrival. The connection is the oldest one of the process that has
    the most: an honest client has few, and each waits for milliseconds.
    """
    if len(waiting) <= most:
        return None
    counts = Counter(each.owner for each in waiting)
    return max(waiting, key=lambda each: counts[each.owner]).key
