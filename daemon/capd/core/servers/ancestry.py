"""Decides whether capd started the process at a connection, from facts, without I/O.

The parents of the process are followed upwards, until process 1, the daemon, or a process that
cannot be seen. A server can change this chain while it is read: its processes end, their children
get other parents, and pids are reused. So the chain is read twice, and is used only if both
readings agree:

    both readings                                          verdict
    the kernel says that the process has ended             gone
    it is in one of capd's cgroups, or has a server's mark descendant
    the daemon is in one of them                           descendant
    the same, up to process 1                              person
    a lookup failed because no descriptor was left         no_descriptors
    anything else                                          unknown

Two equal readings suffice because the daemon is a child subreaper. Whoever is below it stays below
it: an orphan's new parent is always one that was above it before, and never lies above the daemon.
So the parent of a process below the daemon is the daemon, or is below it too. A wrong answer could
only come from a pid that was reused between two lookups. The second lookup of the child excludes
that: as long as it names the same parent, that parent has not ended.

A process is also `unknown` if the two readings differ, which happens when a process ends by chance.
So an honest client is checked again; a server gains nothing from that.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["person", "outside", "descendant", "gone", "no_descriptors", "unknown"]
"""`person`: not started by this daemon. `outside`: in a pid namespace that the daemon cannot see
into. What the daemon starts always has a pid that it can see, so such a process is no child of it.
`no_descriptors`: the daemon has no free file descriptor to look with, which says nothing of the
process."""

ADMITTED: frozenset[Verdict] = frozenset({"person", "outside"})

MOST_LINKS = 512
"""Limit of one chain. A person's has 5 to 30; reading 512 takes 10 ms."""

INIT = 1


@dataclass(frozen=True, slots=True)
class Process:
    """One process, as it was read."""

    pid: int
    identity: str
    """With `pid`, unique for ever."""
    parent: int
    """0 if the parent is outside of this pid namespace."""


Missing = Literal["gone", "hidden", "no_descriptors"]
"""`hidden`: it exists, and the system does not show its parent."""

End = Literal["top", "daemon", "gone", "hidden", "no_descriptors", "too_deep"]


@dataclass(frozen=True, slots=True)
class Chain:
    """A process and those above it, the nearest first, and why the chain ends."""

    processes: tuple[Process, ...]
    end: End


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """What is known about the process at a connection."""

    pid: int
    """Its pid; 0 if it is in a pid namespace that is not visible from here."""
    is_gone: bool
    """Whether it has ended, seen after both readings."""
    chains: tuple[Chain, Chain]
    is_marked: bool = False
    """Whether it is in a server's cgroup, or has a server's mark."""


def walk(pid: int, daemon: int, most: int = MOST_LINKS) -> Generator[int, Process | Missing, Chain]:
    """Follow the parents of `pid`: yield each process to look up, and return the chain."""
    found: list[Process] = []
    while len(found) < most:
        if pid == daemon:
            return Chain(tuple(found), "daemon")
        seen = yield pid
        if not isinstance(seen, Process):
            return Chain(tuple(found), seen)
        found.append(seen)
        if pid == INIT or seen.parent == 0:
            return Chain(tuple(found), "top")
        pid = seen.parent
    return Chain(tuple(found), "too_deep")


def judge(facts: PeerFacts) -> Verdict:
    """Return the verdict."""
    if facts.pid <= 0:
        return "outside"
    first, second = facts.chains
    # Whether it has ended may be asked with a descriptor as well.
    is_blind = "no_descriptors" in (first.end, second.end)
    if facts.is_gone:
        return "no_descriptors" if is_blind else "gone"
    if facts.is_marked or "daemon" in (first.end, second.end):
        return "descendant"
    if is_blind:
        return "no_descriptors"
    return "person" if first == second and first.end == "top" else "unknown"
