"""Control groups (version 2), if systemd delegates a part of the tree to the daemon.

    capd.service/          Delegate=yes; no process is in it
      daemon/              the daemon, its helpers and its watcher
      servers/1, 2, ...    one for each server's process tree, with its guard (guard.py)

A forked process stays in its group, and `cgroup.kill` ends a whole group at once. A process that
may write to another group of its user can move there, so capd also finds the members of a tree in
other ways.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

_MARK = "user.delegate"
"""An attribute that some versions of systemd set on delegated groups."""
_ANSWER_TIMEOUT = 5.0
_PAUSE = 0.01


class ServerGroups:
    """The control groups of one daemon's servers, one for each process tree."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count(1)

    def enter(self, pid: int) -> Path | None:
        """Put the process `pid` into a new group; return its folder, or None if that is refused."""
        folder = self._folder / str(next(self._numbers))
        try:
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
        except OSError:
            with suppress(OSError):
                folder.rmdir()
            return None
        return folder

    def end_earlier(self, timeout: float) -> int:
        """Kill what an earlier daemon left in its groups; return how many groups there were.

        Each group gets up to `timeout` seconds.
        """
        earlier = _groups_in(self._folder)
        for folder in earlier:
            end_group(folder, timeout)
        return len(earlier)


def delegated_groups(own: Path | None = None) -> ServerGroups | None:
    """Move this process into the group `daemon`; return the groups for servers.

    Return None if systemd delegates no group to this process.

    `own` is the group of this process; by default it is looked up.
    """
    folder = own if own is not None else _own_group()
    if folder is None or not _is_delegated(folder):
        return None
    servers = folder / "servers"
    try:
        # In version 2, a group with subgroups that have controllers may not contain processes.
        (folder / "daemon").mkdir(exist_ok=True)
        (folder / "daemon/cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        servers.mkdir(exist_ok=True)
    except OSError:
        return None
    return ServerGroups(servers)


def end_group(folder: Path, timeout: float) -> bool:
    """Kill every process of the group `folder` and remove the group.

    Return whether that worked within `timeout` seconds.
    """
    give_up_at = time.monotonic() + timeout
    while time.monotonic() < give_up_at:
        if not _is_populated(folder):
            for each in sorted([*_groups_below(folder)], reverse=True):
                with suppress(OSError):
                    each.rmdir()
            with suppress(OSError):
                folder.rmdir()
            if not folder.exists():
                return True
        _kill(folder)
        time.sleep(_PAUSE)
    return False


def _kill(folder: Path) -> None:
    try:
        (folder / "cgroup.kill").write_text("1", encoding="ascii")
    except OSError:
        # Linux before 5.14 has no `cgroup.kill`. Processes that are forked meanwhile are found in
        # the next round.
        for each in (folder, *_groups_below(folder)):
            with suppress(OSError):
                for pid in (each / "cgroup.procs").read_text(encoding="ascii").split():
                    with suppress(OSError):
                        os.kill(int(pid), signal.SIGKILL)


def _is_populated(folder: Path) -> bool:
    try:
        return "populated 1" in (folder / "cgroup.events").read_text(encoding="ascii")
    except OSError:
        return False


def _groups_in(folder: Path) -> list[Path]:
    try:
        return [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError:
        return []


def _groups_below(folder: Path) -> Iterator[Path]:
    for each in _groups_in(folder):
        yield each
        yield from _groups_below(each)


def _is_delegated(folder: Path) -> bool:
    """Tell whether systemd delegates the control group `folder` to its unit.

    In other groups only systemd may create groups.
    """
    try:
        return os.getxattr(folder, _MARK) == b"1"
    except OSError:
        pass
    systemctl = shutil.which("systemctl")
    if systemctl is None:
        return False
    command = [systemctl, "--user", "show", "--property=Delegate", "--value", "--", folder.name]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == b"yes"


def _own_group() -> Path | None:
    """Return the folder of this process's control group (version 2); None if there is none."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    own = next((line[3:] for line in lines if line.startswith("0::/")), "")
    for line in mounts:
        before, _dash, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            root, mount = before.split()[3:5]
            if own and (root in {"/", own} or own.startswith(root + "/")):
                return Path(mount, own.removeprefix(root).lstrip("/"))
    return None
