"""The effect of each memory: how often it was delivered, refused a call, and helped.

Counts are kept by (tap, name) and not by text, so an edited memory keeps its counts.
"""

from dataclasses import dataclass, field

import msgspec

from capd_protos.types import MemorySpec

MOST = 5000
"""Number of memories; the least recently used are removed first."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The counts of one memory."""

    delivered: int = 0
    refused: int = 0
    worked: int = 0
    """Successful next calls after it was delivered or refused a call."""


@dataclass(slots=True)
class Outcomes:
    """The counts of all memories, by `tap/name`."""

    by_name: dict[str, Outcome] = field(default_factory=dict)

    def of(self, memory: MemorySpec) -> tuple[int, int, int]:
        """Return the counts of a memory."""
        found = self.by_name.get(_name(memory), Outcome())
        return found.delivered, found.refused, found.worked

    def add(
        self, memory: MemorySpec, *, delivered: int = 0, refused: int = 0, worked: int = 0
    ) -> None:
        """Count an effect of a memory."""
        name = _name(memory)
        old = self.by_name.pop(name, Outcome())
        self.by_name[name] = Outcome(
            old.delivered + delivered, old.refused + refused, old.worked + worked
        )
        while len(self.by_name) > MOST:
            del self.by_name[next(iter(self.by_name))]


def _name(memory: MemorySpec) -> str:
    return f"{memory.tap}/{memory.name}"
