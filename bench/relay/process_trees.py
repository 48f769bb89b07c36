"""Processes with all their descendants: their memory, their CPU time, and how to end them.

The driver adopts the processes that its children leave behind, so that none outlives a run.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_FIRST_ASK = 5.0


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of some processes. PSS counts a page that n processes share as 1/n in each."""

    pss_mb: float = 0.0
    rss_mb: float = 0.0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.pss_mb + other.pss_mb, self.rss_mb + other.rss_mb)


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def tree(roots: Iterable[int]) -> list[int]:
    """Return those of `roots` that are alive, and every process below them."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The name, in brackets, may hold anything; the parent is the second word after it.
                after = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if after[0] != "Z":
                    children.setdefault(int(after[1]), []).append(int(folder.name))
    alive = {pid for pids in children.values() for pid in pids}
    found = [pid for pid in roots if pid in alive]
    for pid in found:
        found += [child for child in children.get(pid, []) if child not in found]
    return found


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def memory(pids: Iterable[int]) -> Memory:
    """Return the memory of the processes together, in MB of 10^6 bytes."""
    total = Memory()
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
            kib = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
            total += Memory(kib["Pss"] * 1024 / 1e6, kib["Rss"] * 1024 / 1e6)
    return total


def peak_mb(pid: int) -> float:
    """Return the most that a process ever had resident, in MB of 10^6 bytes; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the time that the living threads of the processes were on a CPU."""
    nanoseconds = 0
    for pid in pids:
        for task in _tasks(pid):
            with contextlib.suppress(OSError):
                nanoseconds += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return nanoseconds / 1e9


def voluntary_switches(pid: int) -> int:
    """Return how often the threads of a process went to sleep of their own accord."""
    switches = 0
    for task in _tasks(pid):
        with contextlib.suppress(OSError):
            for line in (task / "status").read_text(errors="replace").splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    switches += int(line.split()[1])
    return switches


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def end_trees(roots: Iterable[int]) -> None:
    """Ask the roots to end, and after five seconds kill what is left of their trees."""
    pids = tree(roots)
    for pid in roots:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    give_up_at = time.monotonic() + _FIRST_ASK
    while _alive(pids) and time.monotonic() < give_up_at:
        time.sleep(0.02)
    for pid in _alive(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _reap()


def end_everything() -> None:
    """End every descendant of this process, including adopted ones."""
    give_up_at = time.monotonic() + _FIRST_ASK
    while (left := tree([os.getpid()])[1:]) and time.monotonic() < give_up_at:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        _reap()


def _alive(pids: Iterable[int]) -> list[int]:
    _reap()
    return tree(pids)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _tasks(pid: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{pid}/task").iterdir())
    return []
