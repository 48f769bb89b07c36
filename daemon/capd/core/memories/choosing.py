"""Which memories are told where not all have room: corrective first, then the most for a token.

What is most for a token is priority x confidence / tokens. A memory that has no room leaves it to
those behind it. The room is never exceeded: a text costs at most the sum of its parts as they are
counted here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from capd.core.memories.wording import HEAD
from capd_protos.types import MemorySpec

HEAD_TOKENS = len(HEAD)
"""No token is shorter than a byte."""
SEAM_TOKENS = 1
"""What a text may take more than its parts, at each seam of two."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A memory, and what it costs to be told."""

    memory: MemorySpec
    tokens: int

    @property
    def cost(self) -> int:
        """Return the tokens of its entry, in a text of several."""
        return self.tokens + SEAM_TOKENS

    @property
    def worth(self) -> float:
        """Return what it is worth, for each of its tokens."""
        return self.memory.priority * self.memory.confidence / max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is told, in its order, and what has no room."""

    told: tuple[Priced, ...] = ()
    left_out: tuple[Priced, ...] = ()

    @property
    def tokens(self) -> int:
        """Return what is told costs, its head included."""
        return HEAD_TOKENS + sum(each.cost for each in self.told) if self.told else 0


def ordered(memories: Iterable[Priced]) -> list[Priced]:
    """Return memories as they are told, the first ones first; the same ones always alike."""
    return sorted(
        memories,
        key=lambda each: (
            each.memory.kind != "corrective",
            -each.worth,
            each.memory.tap,
            each.memory.name,
        ),
    )


def chosen(memories: Iterable[Priced], room: int) -> Chosen:
    """Return which of `memories` are told within `room` tokens."""
    told: list[Priced] = []
    left_out: list[Priced] = []
    left = room - HEAD_TOKENS
    for each in ordered(memories):
        if each.cost <= left:
            told.append(each)
            left -= each.cost
        else:
            left_out.append(each)
    return Chosen(tuple(told), tuple(left_out))
