"""Decides whether the process at the other end of a connection was started by this daemon.

Processes that capd starts, such as servers, may not use the daemon's socket as a person does. The
parents of the process are followed upwards, until process 1, the daemon, or a process that cannot
be read. A server can change this chain while it is read: its processes end, their children get
other parents, and pids are reused. So the chain is read twice, and both readings decide:

    found by both readings                                      verdict
    the process is in a pid namespace not visible from here     outside
    the kernel says that the process has ended                  gone
    it is in one of capd's cgroups, or has a server's mark      descendant
    the daemon is in one of the two chains                      descendant
    both chains are equal, and end at process 1                 person
    a lookup failed because no descriptor was left              no_descriptors
    anything else                                               unknown

Two equal readings suffice because the daemon is a child subreaper (prctl(2)): a process below it
stays below it. An orphan's new parent is one of its former ancestors, and never lies above the
daemon. So only a pid that was reused between two lookups could give a wrong answer. The second
lookup of the child excludes that: as long as it names the same parent, that parent has not ended.

If the readings differ, the verdict is `unknown`, and the caller checks again. This happens to an
honest client when a process ends by chance. A server gains nothing from being checked again.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["person", "outside", "descendant", "gone", "no_descriptors", "unknown"]
"""`person`: not started by this daemon. `outside`: the process has no pid here, because it is in
another pid namespace; what the daemon starts always has one. `descendant`: started by this daemon.
`no_descriptors`: the daemon has no free file descriptor to read `/proc` with."""

ADMITTED: frozenset[Verdict] = frozenset({"person", "outside"})

MOST_LINKS = 512
"""The longest chain that is read. A person's process has 5 to 30 ancestors; 512 take 10 ms."""

INIT = 1


@dataclass(frozen=True, slots=True)
class Process:
    """One process: what identifies it, and its parent."""

    pid: int
    identity: str
    """A value, such as the start time, that no later process with the same pid has."""
    parent: int
    """The parent's pid; 0 if the parent is outside of this pid namespace."""


Missing = Literal["gone", "hidden", "no_descriptors"]
"""Why a process could not be read. `hidden`: it exists, but the system does not show its parent."""

End = Literal["top", "daemon", "gone", "hidden", "no_descriptors", "too_deep"]


@dataclass(frozen=True, slots=True)
class Chain:
    """A process and its ancestors, the nearest first, and why the reading ended."""

    processes: tuple[Process, ...]
    end: End


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """What is known about the process at the other end of a connection."""

    pid: int
    """Its pid; 0 if it is in a pid namespace that is not visible from here."""
    is_gone: bool
    """Whether the process had ended when both readings were done."""
    chains: tuple[Chain, Chain]
    is_marked: bool = False
    """Whether it is in a server's cgroup, or has a server's mark."""


def walk(pid: int, daemon: int, most: int = MOST_LINKS) -> Generator[int, Process | Missing, Chain]:
    """Follow the parents of `pid` up to the pid `daemon`, or process 1, and return the chain.

    This generator does no I/O: it yields each pid to look up, and is sent the result.
    """
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
    """Return whether the process with these facts was started by this daemon.

    See `Verdict` for the values.
    """
    if facts.pid <= 0:
        return "outside"
    first, second = facts.chains
    # Finding out whether the process has ended may need a file descriptor as well.
    is_blind = "no_descriptors" in (first.end, second.end)
    if facts.is_gone:
        return "no_descriptors" if is_blind else "gone"
    if facts.is_marked or "daemon" in (first.end, second.end):
        return "descendant"
    if is_blind:
        return "no_descriptors"
    return "person" if first == second and first.end == "top" else "unknown"
