"""What came of each memory: how often it was told, what it refused, and what worked then.

Counted by (tap, name), whatever its words are by now: a memory that is edited goes on with what it
was learned from.
"""

from dataclasses import dataclass, field

import msgspec

from capd_protos.types import MemorySpec

MOST = 5000
"""Memories; those that were of use the longest ago go first."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What came of one memory."""

    told: int = 0
    refused: int = 0
    worked: int = 0
    """Next calls, after it was told or refused one, that worked."""


@dataclass(slots=True)
class Outcomes:
    """What came of all of them, by `tap/name`."""

    by_name: dict[str, Outcome] = field(default_factory=dict)

    def of(self, memory: MemorySpec) -> tuple[int, int, int]:
        """Return how often a memory was told, how often it refused, and what worked then."""
        found = self.by_name.get(_name(memory), Outcome())
        return found.told, found.refused, found.worked

    def add(self, memory: MemorySpec, *, told: int = 0, refused: int = 0, worked: int = 0) -> None:
        """Count what came of a memory."""
        name = _name(memory)
        old = self.by_name.pop(name, Outcome())
        self.by_name[name] = Outcome(old.told + told, old.refused + refused, old.worked + worked)
        while len(self.by_name) > MOST:
            del self.by_name[next(iter(self.by_name))]


def _name(memory: MemorySpec) -> str:
    return f"{memory.tap}/{memory.name}"
