"""Chooses memories if not all fit: corrective ones first, then the best per token.

The order is by priority x confidence / tokens. If a memory does not fit, later ones may. The limit
is never exceeded: a text has at most as many tokens as its parts are counted here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from capd.core.memories.wording import HEAD
from capd_protos.types import MemorySpec

HEAD_TOKENS = len(HEAD)
"""An upper bound: every token has at least one byte."""
SEAM_TOKENS = 1
"""Tokens that joining two parts may add."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A memory and its cost in tokens."""

    memory: MemorySpec
    tokens: int

    @property
    def cost(self) -> int:
        """Return the tokens of its entry in a text with several entries."""
        return self.tokens + SEAM_TOKENS

    @property
    def worth(self) -> float:
        """Return priority times confidence, divided by the tokens."""
        return self.memory.priority * self.memory.confidence / max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is delivered, in order, and what does not fit."""

    delivered: tuple[Priced, ...] = ()
    left_out: tuple[Priced, ...] = ()

    @property
    def tokens(self) -> int:
        """Return the tokens of what is delivered, heading included."""
        return HEAD_TOKENS + sum(each.cost for each in self.delivered) if self.delivered else 0


def ordered(memories: Iterable[Priced]) -> list[Priced]:
    """Return memories in the order of delivery; the order is deterministic."""
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
    """Return which of `memories` are delivered within `room` tokens."""
    delivered: list[Priced] = []
    left_out: list[Priced] = []
    left = room - HEAD_TOKENS
    for each in ordered(memories):
        if each.cost <= left:
            delivered.append(each)
            left -= each.cost
        else:
            left_out.append(each)
    return Chosen(tuple(delivered), tuple(left_out))
