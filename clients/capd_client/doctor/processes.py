"""Checks for processes of servers that outlived the daemon which started them.

A process of a server has two marks that it inherits from the daemon (`capd_protos.tree_marks`): a
resource limit and an environment variable.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding, Level
from capd_protos.tree_marks import LIMIT_LINE, VARIABLE, MarkPattern, any_life, home_mark

_MOST_NAMED = 10
_WAYS = {
    "namespace": "a namespace of its own for each server",
    "cgroup": "a control group for each server",
    "sweep": "guards, a watcher, and marks that processes inherit",
    "group": "process groups alone: what a server detaches is not found",
}


def check_processes(seen: CheckContext, proc: Path = Path("/proc")) -> Iterator[Finding]:
    """Report processes of servers that are left over from earlier daemons of this state folder.

    A process is found by its marks, and counts as left over if the present daemon is not among its
    ancestors. Report also how the present daemon recognises its servers' processes.

    `proc` replaces `/proc` in tests.
    """
    daemon = int(seen.daemon.get("pid") or 0)
    wanted = any_life(home_mark(seen.places.state))
    left = [
        pid
        for pid in _marked(proc, wanted, seen.uid)
        # `_is_dead` is checked last, because a process that ends meanwhile has no ancestors either.
        if not _is_below(proc, pid, daemon) and not _is_dead(proc, pid)
    ]
    if left:
        named = ", ".join(map(str, left[:_MOST_NAMED]))
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        yield Finding(
            "processes",
            "warning",
            f"processes of servers are still running without a daemon: {named}{more}",
            "the daemon, its watcher and their guards were killed together",
            "capd daemon restart (a daemon that starts ends them)",
        )
    way = str((seen.status.get("daemon") or {}).get("membership") or "")
    if way:
        level: Level = "note" if way == "group" else "ok"
        what = _WAYS.get(way, way)
        yield Finding("processes", level, f"the daemon knows its servers' processes by {what}")


def _marked(proc: Path, wanted: MarkPattern, uid: int) -> list[int]:
    spared = [os.getpid(), *_above(proc, os.getpid())]
    found = []
    for folder in proc.glob("[0-9]*"):
        try:
            is_own = folder.stat().st_uid == uid
        except OSError:
            continue
        pid = int(folder.name)
        if is_own and pid not in spared and wanted.matches(_limit(folder), _value(folder)):
            found.append(pid)
    return sorted(found)


def _limit(folder: Path) -> int | None:
    for line in _content(folder / "limits").splitlines():
        if line.startswith(LIMIT_LINE):
            value = line.split()[-2]
            return int(value) if value.isdigit() else None
    return None


def _value(folder: Path) -> str:
    start = f"{VARIABLE}=".encode()
    entries = _content(folder / "environ").split(b"\0")
    value = next((each.removeprefix(start) for each in entries if each.startswith(start)), b"")
    return value.decode(errors="replace")


def _is_below(proc: Path, pid: int, daemon: int) -> bool:
    return bool(daemon) and daemon in _above(proc, pid)


def _is_dead(proc: Path, pid: int) -> bool:
    """Tell whether the process `pid` is gone, or is a zombie."""
    fields = _fields(proc, pid)
    return not fields or fields[0] in {b"Z", b"X"}


def _fields(proc: Path, pid: int) -> list[bytes]:
    return _content(proc / str(pid) / "stat").rpartition(b")")[2].split()


def _above(proc: Path, pid: int) -> list[int]:
    found: list[int] = []
    while True:
        fields = _fields(proc, pid)
        parent = int(fields[1]) if fields else 0
        if not parent or parent in found:
            return found
        found.append(parent)
        pid = parent


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
