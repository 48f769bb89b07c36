"""Counts how often each memory was delivered, refused a call, and was followed by success.

The counts are by tap and name, so a memory keeps them when its text is edited.
"""

from dataclasses import dataclass, field

import msgspec

from capd_protos.types import MemorySpec

MOST = 5000
"""The most memories with counts. Those whose counts changed longest ago are dropped."""


class MemoryOutcome(msgspec.Struct, frozen=True, array_like=True):
    """How often one memory was delivered, refused a call, and was followed by success."""

    delivered: int = 0
    refused: int = 0
    worked: int = 0
    """How often the next call of the memory's tool or capability succeeded after the memory was
    delivered or refused a call."""


@dataclass(slots=True)
class Outcomes:
    """How often each memory was delivered, refused a call, and helped, by `tap/name`."""

    by_name: dict[str, MemoryOutcome] = field(default_factory=dict)

    def of(self, memory: MemorySpec) -> tuple[int, int, int]:
        """Return the counts of a memory: delivered, refused, worked."""
        found = self.by_name.get(_name(memory), MemoryOutcome())
        return found.delivered, found.refused, found.worked

    def add(
        self, memory: MemorySpec, *, delivered: int = 0, refused: int = 0, worked: int = 0
    ) -> None:
        """Add to the counts of a memory: delivered, refused a call, helped."""
        name = _name(memory)
        old = self.by_name.pop(name, MemoryOutcome())
        self.by_name[name] = MemoryOutcome(
            old.delivered + delivered, old.refused + refused, old.worked + worked
        )
        while len(self.by_name) > MOST:
            del self.by_name[next(iter(self.by_name))]


def _name(memory: MemorySpec) -> str:
    return f"{memory.tap}/{memory.name}"
