"""Linux: which process is at the other end of a connection, and its parents.

A process is held by a pidfd if the kernel supports that (SO_PEERPIDFD: 6.5), because its pid may be
reused. The parent comes from the kernel (PIDFD_GET_INFO: 6.13), or from /proc.
"""

import errno
import fcntl
import os
import select
import socket
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path

from capd.adapters.platform.credentials import NO_DESCRIPTORS, SocketOptions
from capd.core.servers.ancestry import Missing, Process

_SO_PEERPIDFD = 77
_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, struct pidfd_info), in its first size
_INFO = struct.Struct("QQ11Ii")
_ASKED = 1  # PIDFD_INFO_PID: the pids, including the parent's
_HAS_NONE = {errno.ENOPROTOOPT, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENODATA}
_UNIT = "capd.service"
_LARGEST_READ = 1 << 16


def peer_pidfd(connection: SocketOptions) -> int | None:
    """Return a pidfd of the process that connected; None if the kernel gives none.

    Raises:
        ProcessLookupError: the process has ended, and its pid may have been reused.
        OSError: there are no descriptors left, for example.
    """
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
    except OSError as error:
        if error.errno in _HAS_NONE:
            return None
        # Kernels before 6.16 give no pidfd for a process that was waited for.
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from None
        raise
    return int(struct.unpack("i", raw)[0])


def has_ended(pidfd: int) -> bool:
    """Tell whether the process of a pidfd has ended, even if its parent has yet to wait for it."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def look_at(pid: int) -> Process | Missing:
    """Return the process `pid` with its parent, or why it cannot be read."""
    if not _gives_info():
        return _from_proc(pid)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return "gone"
    except OSError as error:
        return "no_descriptors" if error.errno in NO_DESCRIPTORS else _from_proc(pid)
    try:
        parent = _parent(pidfd)
        if parent is None:
            # The process is gone, or its parent is in another pid namespace; /proc shows which.
            return _from_proc(pid)
        return Process(pid, f"pidfs:{os.fstat(pidfd).st_ino}", parent)
    finally:
        os.close(pidfd)


def is_in_own_unit(pid: int) -> bool:
    """Tell whether a process is in the control group of this daemon's unit, if there is one.

    The daemon has started every process in that group. The converse is not true: a process that the
    daemon started may have moved to another group.
    """
    unit = _own_unit()
    return bool(unit) and any(path == unit or path.startswith(f"{unit}/") for path in _cgroups(pid))


@cache
def _own_unit() -> str:
    for path in _cgroups(os.getpid()):
        before, found, _ = f"{path}/".partition(f"/{_UNIT}/")
        if found:
            return f"{before}/{_UNIT}"
    return ""


def _cgroups(pid: int) -> list[str]:
    """Return the control groups of a process, in the hierarchies that systemd uses."""
    try:
        with Path(f"/proc/{pid}/cgroup").open("rb") as file:
            lines = file.read(_LARGEST_READ).decode(errors="replace").splitlines()
    except OSError:
        return []
    rows = [line.split(":", 2) for line in lines]
    return [row[2] for row in rows if len(row) == 3 and row[1] in {"", "name=systemd"}]  # noqa: PLR2004


def _from_proc(pid: int) -> Process | Missing:
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError as error:
        return "no_descriptors" if error.errno in NO_DESCRIPTORS else _unseen(pid)
    # The command name is in parentheses, and may itself contain spaces and parentheses.
    fields = raw.rpartition(b")")[2].split()
    return Process(pid, f"started:{fields[19].decode()}", int(fields[1]))


def _unseen(pid: int) -> Missing:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except OSError:
        pass
    return "hidden"


def _parent(pidfd: int) -> int | None:
    """Return the parent's pid; None if the kernel does not report it."""
    buffer = bytearray(_INFO.size)
    struct.pack_into("Q", buffer, 0, _ASKED)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    _mask, _cgroup, _pid, _tgid, parent, *_rest = _INFO.unpack(buffer)
    return int(parent)


@cache
def _gives_info() -> bool:
    """Tell whether a pidfd reports the parent, and has an inode of its own for each process."""
    with suppress(OSError, AttributeError):
        first = os.pidfd_open(os.getpid())
        try:
            second = os.pidfd_open(1)
            try:
                # Before Linux 6.9, all pidfds share one inode.
                are_told_apart = os.fstat(first).st_ino != os.fstat(second).st_ino
                return are_told_apart and _parent(first) is not None
            finally:
                os.close(second)
        finally:
            os.close(first)
    return False
