"""Systems other than Linux: what POSIX, `ps` and the BSD socket options give; the rest is nothing.

Without a subreaper a server's tree is its process group, so a double-forked daemon escapes.
"""

import os
import shutil
import struct
import subprocess

from capd.adapters.platform.credentials import PeerCredentials, SocketOptions

_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1
_LOCAL_PEERPID = 2
_XUCRED = struct.Struct("IIh2xI")  # version, uid, number of groups, the first group of 16
_XUCRED_SIZE_BYTES = 76


def peer_credentials(connection: SocketOptions) -> PeerCredentials:
    """Return who connected this Unix socket."""
    raw = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE_BYTES)
    _version, uid, _groups, gid = _XUCRED.unpack_from(raw)
    return PeerCredentials(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID), uid, gid)


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, or None if it is gone."""
    kibibytes = _ps(pid, "rss")
    return None if kibibytes is None else int(kibibytes) * 1024


def available_memory_bytes() -> int | None:
    """Return None: there is no common way to ask."""
    return None


def proc_pid() -> int | None:
    """Return this process: nothing here needs /proc."""
    return os.getpid()


def parent_pid(pid: int) -> int | None:
    """Return the parent of a process, or None if it is gone."""
    parent = _ps(pid, "ppid")
    return None if parent is None else int(parent)


def has_terminal(pid: int) -> bool:
    """Tell whether a process has a terminal."""
    return (_ps(pid, "tty") or "?").strip("?-") != ""


def process_start_time(pid: int) -> str | None:
    """Return a text that, with `pid`, names one process for ever; None if it is gone."""
    state = _ps(pid, "state")
    return None if state is None or state.startswith("Z") else _ps(pid, "lstart")


def trim_memory() -> None:
    """Do nothing: only glibc keeps freed memory in a way worth trimming."""


def keep_large_blocks_apart() -> None:
    """Do nothing: as above."""


def machine_bytes() -> int:
    """Return the memory of the machine, 0 where it is not told."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0


def tree_use(root: int) -> tuple[int, int]:
    """Return how many processes are below `root`, and their resident memory in bytes."""
    ps = shutil.which("ps") or "/bin/ps"
    answer = subprocess.run(
        [ps, "-axo", "pid=,ppid=,rss="],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C"},
    )
    rows = [tuple(map(int, line.split())) for line in answer.stdout.splitlines()]
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
    """Return nothing: without a subreaper nobody is adopted."""
    del pid
    return []


def tree_below(pid: int, /) -> list[int]:
    """Return nothing: what a process has started is not looked up here."""
    del pid
    return []


def has_controlling_terminal() -> bool:
    """Tell whether this process has a terminal that could be closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def hard_limit(pid: int, /) -> int | None:
    """Return None: there is no such limit here."""
    del pid
    return None


def marking_value(pid: int, /) -> bytes:
    """Return nothing: the environment of others is not read here."""
    del pid
    return b""


def marked(low: int, high: int, prefix: bytes) -> list[int]:
    """Return nothing: as above."""
    del low, high, prefix
    return []


def end_marked(low: int, high: int, prefix: bytes) -> bool:
    """Do nothing: as above."""
    del low, high, prefix
    return False


def set_dumpable(is_dumpable: bool, /) -> None:
    """Do nothing: the systems at hand do not let processes of a user read each other's memory."""


def become_subreaper() -> None:
    """Do nothing: there is no such thing here."""


def _ps(pid: int, column: str) -> str | None:
    return tell(pid, f"{column}=")


def tell(pid: int, columns: str) -> str | None:
    """Return what `ps` says of a process, None if it is gone."""
    ps = shutil.which("ps") or "/bin/ps"
    command = [ps, "-o", columns, "-p", str(pid)]
    # A fixed locale and zone, so that a start time compares equal between two runs of capd.
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"LC_ALL": "C", "TZ": "UTC"}
    )
    return answer.stdout.strip() or None
