"""Systems other than Linux: what POSIX, `ps` and the BSD socket options support.

A function that these systems do not support returns an empty value. Without a subreaper a server's
tree is its process group, so a double-forked daemon escapes.
"""

import os
import shutil
import struct
import subprocess

from capd.adapters.platform.credentials import PeerCredentials, SocketOptions
from capd.adapters.platform.readiness import ReadinessQueue

READABLE = 1
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1
_LOCAL_PEERPID = 2
_XUCRED = struct.Struct("IIh2xI")  # version, uid, number of groups, the first group of 16
_XUCRED_SIZE_BYTES = 76


def peer_credentials(connection: SocketOptions) -> PeerCredentials:
    """Return the credentials of the process that connected this Unix socket."""
    raw = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE_BYTES)
    _version, uid, _groups, gid = _XUCRED.unpack_from(raw)
    return PeerCredentials(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID), uid, gid)


def readiness_queue() -> ReadinessQueue | None:
    """Return None: these systems have no epoll."""
    return None


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, or None if it is gone."""
    kibibytes = _ps(pid, "rss")
    return None if kibibytes is None else int(kibibytes) * 1024


def available_memory_bytes() -> int | None:
    """Return None: there is no common way to ask."""
    return None


def proc_pid() -> int | None:
    """Return this process's pid, although there is no /proc."""
    return os.getpid()


def parent_pid(pid: int) -> int | None:
    """Return the pid of a process's parent; None if the process is gone."""
    parent = _ps(pid, "ppid")
    return None if parent is None else int(parent)


def ancestors(pid: int) -> list[int]:
    """Return the ancestors of a process, the parent first, up to process 1."""
    parents = {row[0]: row[1] for row in _processes("pid=,ppid=")}
    found: list[int] = []
    while (parent := parents.get(pid)) and parent not in found:
        found.append(parent)
        pid = parent
    return found


def has_terminal(pid: int) -> bool:
    """Tell whether a process has a terminal."""
    return (_ps(pid, "tty") or "?").strip("?-") != ""


def process_start_time(pid: int) -> str | None:
    """Return a text that identifies one process together with `pid`; None if it is gone."""
    state = _ps(pid, "state")
    return None if state is None or state.startswith("Z") else _ps(pid, "lstart")


def trim_memory() -> None:
    """Do nothing: returning freed memory is only worthwhile with glibc."""


def keep_large_blocks_apart(size_bytes: int) -> None:
    """Do nothing: only glibc needs this."""
    del size_bytes


def share_one_heap() -> None:
    """Do nothing: only glibc needs this."""


def machine_bytes() -> int:
    """Return how much memory the machine has, in bytes; 0 if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0


def tree_use(root: int) -> tuple[int, int]:
    """Return how many processes are below `root`, and their resident memory in bytes."""
    rows = _processes("pid=,ppid=,rss=")
    below, waiting, kibibytes = 0, [root], 0
    while waiting:
        parent = waiting.pop()
        for pid, above, size in rows:
            if above == parent and pid != parent:
                waiting.append(pid)
                below += 1
                kibibytes += size
    return below, kibibytes * 1024


def children(pid: int, /) -> list[int]:
    """Return no children: without a subreaper no process is adopted."""
    del pid
    return []


def tree_below(pid: int, /) -> list[int]:
    """Return no processes: descendants are not looked up on these systems."""
    del pid
    return []


def has_controlling_terminal() -> bool:
    """Tell whether this process has a terminal, which its user could close."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def hard_limit(pid: int, /) -> int | None:
    """Return None: on these systems capd does not mark processes by a limit."""
    del pid
    return None


def marking_value(pid: int, /) -> bytes:
    """Return an empty value: these systems do not show the environment of other processes."""
    del pid
    return b""


def marked(low: int, high: int, prefix: bytes) -> list[int]:
    """Return no processes: on these systems capd does not mark processes."""
    del low, high, prefix
    return []


def end_marked(low: int, high: int, prefix: bytes) -> bool:
    """Return False, and kill nothing: on these systems capd does not mark processes."""
    del low, high, prefix
    return False


def set_dumpable(is_dumpable: bool, /) -> None:
    """Do nothing: these systems do not let processes of a user read each other's memory."""


def become_subreaper() -> None:
    """Do nothing: these systems have no subreapers."""


def _processes(columns: str) -> list[tuple[int, ...]]:
    """Return these `ps` columns of every process, as numbers."""
    ps = shutil.which("ps") or "/bin/ps"
    answer = subprocess.run(
        [ps, "-axo", columns], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
    )
    return [tuple(map(int, line.split())) for line in answer.stdout.splitlines()]


def _ps(pid: int, column: str) -> str | None:
    return tell(pid, f"{column}=")


def tell(pid: int, columns: str) -> str | None:
    """Return what `ps` prints in the given columns for the process `pid`; None if it has ended."""
    ps = shutil.which("ps") or "/bin/ps"
    command = [ps, "-o", columns, "-p", str(pid)]
    # A fixed locale and zone, so that a start time compares equal between two runs of capd.
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"LC_ALL": "C", "TZ": "UTC"}
    )
    return answer.stdout.strip() or None
