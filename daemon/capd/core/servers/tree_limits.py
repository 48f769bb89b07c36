"""When a server's tree of processes takes too much of the machine (80, C13 and C14).

The bounds are far above what an ordinary server takes, a browser with its tabs included: they are
for the one that would take the whole machine with it. Clock-free; whoever looks brings the facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K")

MIB = 1 << 20
MOST_PROCESSES = 1000
MOST_MIB = 6144
SHARE_OF_MEMORY = 0.5

USUAL_PAUSE = 2.0
"""Seconds between two looks; one costs 20 µs for each thread of a server."""
SHORT_PAUSE = 0.25
"""The same while some tree grows fast: a loop that fills pages takes 1 to 2 GiB a second."""
FAST_BYTES = 128 * MIB
FAST_PROCESSES = 50


@dataclass(frozen=True, slots=True)
class Tree:
    """What a server and everything below its guard takes."""

    processes: int
    size_bytes: int
    """Anonymous memory: what is shared with files is counted for nobody."""


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """The most that one tree may take; 0 for no bound."""

    processes: int = MOST_PROCESSES
    size_bytes: int = MOST_MIB * MIB

    def excess(self, tree: Tree) -> str:
        """Return what is too much, to follow `the server`; empty where nothing is."""
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
        return ""


def usual_limits(processes: int, memory_mib: int | None, machine_bytes: int) -> TreeLimits:
    """Return the limits of a machine with so much memory; None for what suits it."""
    if memory_mib is not None:
        return TreeLimits(processes, memory_mib * MIB)
    share = int(machine_bytes * SHARE_OF_MEMORY)
    return TreeLimits(processes, min(share, MOST_MIB * MIB) if share else MOST_MIB * MIB)


def pause(before: Mapping[K, Tree], after: Mapping[K, Tree]) -> float:
    """Return after how many seconds to look again; a tree that was not there grew from nothing."""
    nothing = Tree(0, 0)
    for key, tree in after.items():
        was = before.get(key, nothing)
        if (
            tree.size_bytes - was.size_bytes > FAST_BYTES
            or tree.processes - was.processes > FAST_PROCESSES
        ):
            return SHORT_PAUSE
    return USUAL_PAUSE
