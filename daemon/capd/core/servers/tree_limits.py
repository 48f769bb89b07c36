"""Decides when a server's process tree uses too much of the machine (docs/design/processes.md).

The limits are far above what an ordinary server uses, even a browser with many tabs. They stop a
server that would otherwise make the whole machine unusable. The caller takes the samples and passes
the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")

MIB = 1 << 20
MOST_PROCESSES = 1000
MOST_MIB = 6144
SHARE_OF_MEMORY = 0.5

USUAL_PAUSE = 2.0
"""Seconds between two samples; one costs 20 µs for each thread of a server."""
SHORT_PAUSE = 0.25
"""Seconds between two samples while a tree grows fast. A loop that fills pages takes 0.3 to 2 GiB a
second."""
FAST_BYTES = 64 * MIB
"""A tree that grows by more bytes of memory a second grows fast."""
FAST_PROCESSES = 25
"""A tree that grows by more processes a second grows fast."""
SPAN = 2.0
"""Seconds over which growth is measured. On a busy machine memory grows in bursts."""
SHARE_IN_HASTE = 0.5
"""A tree that grows fast may take only this share of the memory limit, unless the user has set the
limit. Filling 6 GiB takes 3 s on an idle machine, and took 28 s on a busy one, in which every other
program had to wait."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The memory and the number of processes of a server's process tree.

    The guard, the process that capd puts above the server, is not counted.
    """

    processes: int
    size_bytes: int
    """Anonymous memory. Memory shared with files is not counted."""


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """The limits of one server's process tree; 0 means no limit."""

    processes: int = MOST_PROCESSES
    size_bytes: int = MOST_MIB * MIB
    in_haste_bytes: int = 0
    """The memory limit for a tree that is growing fast."""

    def excess(self, tree: Tree, growth: float = 0.0) -> str:
        """Return which limit `tree` exceeds, as the end of a sentence; empty if none.

        `growth` is the growth of its memory in bytes a second.
        """
        if self.processes and tree.processes > self.processes:
            return (
                f"was ended: it had {tree.processes} processes, and {self.processes} are the most"
                " ([servers] most_processes)"
            )
        if self.size_bytes and tree.size_bytes > self.size_bytes:
            return (
                f"was ended: it took {tree.size_bytes // MIB} MiB of memory, and"
                f" {self.size_bytes // MIB} are the most ([servers] most_memory_mib)"
            )
        if 0 < self.in_haste_bytes < tree.size_bytes and growth > FAST_BYTES:
            return (
                f"was ended: it took {tree.size_bytes // MIB} MiB of memory and"
                f" {int(growth) // MIB} more each second, and {self.in_haste_bytes // MIB} are the"
                " most for one that grows so fast, unless you allow it more"
                " ([servers] most_memory_mib)"
            )
        return ""


def usual_limits(processes: int, memory_mib: int | None, machine_bytes: int) -> TreeLimits:
    """Return the limits of each server's process tree on this machine.

    `processes` and `memory_mib` are the user's limits; `memory_mib` is None for the default: half
    of the machine's memory, and at most 6 GiB. `machine_bytes` is the machine's memory, 0 if
    unknown.
    """
    if memory_mib is not None:
        return TreeLimits(processes, memory_mib * MIB)
    share = int(machine_bytes * SHARE_OF_MEMORY)
    most = min(share, MOST_MIB * MIB) if share else MOST_MIB * MIB
    return TreeLimits(processes, most, int(most * SHARE_IN_HASTE))


class TreeLooks(Generic[K]):
    """Keeps recent samples of each process tree, and decides how long to wait for the next."""

    def __init__(self, limits: TreeLimits) -> None:
        self._limits = limits
        self._seen: dict[K, tuple[tuple[float, Tree], ...]] = {}
        self._looked_at: float | None = None
        self.pause = USUAL_PAUSE
        """Seconds until the next sample."""

    def look(self, trees: Mapping[K, Tree], now: float) -> dict[K, str]:
        """Store the samples of all trees at `now`; return the trees that exceed a limit.

        Each comes with the text of `TreeLimits.excess`.
        """
        self._seen = {key: (*self._lately(key, now), (now, tree)) for key, tree in trees.items()}
        self._looked_at = now
        growths = {key: self._growth(key) for key in trees}
        is_fast = any(
            size > FAST_BYTES or processes > FAST_PROCESSES for size, processes in growths.values()
        )
        self.pause = SHORT_PAUSE if is_fast else USUAL_PAUSE
        found = {key: self._limits.excess(tree, growths[key][0]) for key, tree in trees.items()}
        return {key: excess for key, excess in found.items() if excess}

    def _lately(self, key: K, now: float) -> tuple[tuple[float, Tree], ...]:
        """Return a tree's samples of the last `SPAN` seconds, and the last one before them."""
        # A new tree has grown from zero.
        before = now - USUAL_PAUSE if self._looked_at is None else self._looked_at
        seen = self._seen.get(key, ((before, Tree(0, 0)),))
        first = max((n for n, (at, _) in enumerate(seen) if at <= now - SPAN), default=0)
        return seen[first:]

    def _growth(self, key: K) -> tuple[float, float]:
        """Return the recent growth of a tree in bytes a second and in processes a second."""
        (since, first), (now, last) = self._seen[key][0], self._seen[key][-1]
        span = max(now - since, SHORT_PAUSE)
        return (
            (last.size_bytes - first.size_bytes) / span,
            (last.processes - first.processes) / span,
        )
