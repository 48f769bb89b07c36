"""Chooses which memories to deliver within a token limit.

Corrective memories, which describe a mistake, come first, and then the others by priority x
confidence / tokens. If one does not fit, later ones may. The token counts are upper bounds, so a
text never exceeds the limit.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from capd.core.memories.wording import HEAD
from capd_protos.types import MemorySpec

HEAD_TOKENS = len(HEAD)
"""An upper bound of the tokens of the heading: every token has at least one byte."""
SEAM_TOKENS = 1
"""The tokens that joining two texts may add."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A memory with its cost in tokens."""

    memory: MemorySpec
    tokens: int

    @property
    def cost(self) -> int:
        """The tokens that the memory adds to a text."""
        return self.tokens + SEAM_TOKENS

    @property
    def worth(self) -> float:
        """Priority times confidence, divided by the tokens."""
        return self.memory.priority * self.memory.confidence / max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class ChosenMemories:
    """The memories to deliver, in order, and those for which there is no room."""

    delivered: tuple[Priced, ...] = ()
    left_out: tuple[Priced, ...] = ()

    @property
    def tokens(self) -> int:
        """The tokens of the text with the memories to deliver, heading included."""
        return HEAD_TOKENS + sum(each.cost for each in self.delivered) if self.delivered else 0


def ordered(memories: Iterable[Priced]) -> list[Priced]:
    """Return memories in the order of delivery. Equal ones are ordered by tap and name."""
    return sorted(
        memories,
        key=lambda each: (
            each.memory.kind != "corrective",
            -each.worth,
            each.memory.tap,
            each.memory.name,
        ),
    )


def chosen(memories: Iterable[Priced], room: int) -> ChosenMemories:
    """Return which of `memories` to deliver in a text of at most `room` tokens."""
    delivered: list[Priced] = []
    left_out: list[Priced] = []
    left = room - HEAD_TOKENS
    for each in ordered(memories):
        if each.cost <= left:
            delivered.append(each)
            left -= each.cost
        else:
            left_out.append(each)
    return ChosenMemories(tuple(delivered), tuple(left_out))
