"""Linux: /proc, SO_PEERCRED, prctl and glibc's malloc_trim."""

import ctypes
import os
import select
import socket
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path

from capd.adapters.platform.credentials import PeerCredentials, SocketOptions
from capd.adapters.platform.guard import descendants
from capd.adapters.platform.readiness import ReadinessQueue

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_UCRED = struct.Struct("3i")
READABLE = select.EPOLLIN
"""The event that a socket can be read, or is broken."""
_SO_PEERCRED = 17  # socket.SO_PEERCRED, which type checkers know on Linux only


def peer_credentials(connection: SocketOptions) -> PeerCredentials:
    """Return the credentials of the process that connected this Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, _UCRED.size)
    return PeerCredentials(*_UCRED.unpack(raw))


def readiness_queue() -> ReadinessQueue | None:
    """Return an epoll object. Its descriptor is readable while one of its sockets is."""
    return select.epoll()


def rss_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, or None if it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def available_memory_bytes() -> int | None:
    """Return the memory that is available without swapping; None if it is not known."""
    try:
        with Path("/proc/meminfo").open("rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def proc_pid() -> int | None:
    """Return the pid of this process in /proc; None if there is no /proc."""
    try:
        return int(Path("/proc/self/stat").read_bytes().split(b" ", 1)[0])
    except (OSError, ValueError):
        return None


def parent_pid(pid: int) -> int | None:
    """Return the pid of a process's parent; None if the process is gone."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[1])


def ancestors(pid: int) -> list[int]:
    """Return the ancestors of a process, the parent first, up to process 1."""
    found: list[int] = []
    parent = parent_pid(pid)
    while parent and parent not in found:
        found.append(parent)
        parent = parent_pid(parent)
    return found


def has_terminal(pid: int) -> bool:
    """Tell whether a process has a terminal and reads from it."""
    fields = _stat_fields(pid)
    if fields is None or int(fields[4]) == 0:
        return False
    try:
        return str(Path(f"/proc/{pid}/fd/0").readlink()).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False


def process_start_time(pid: int) -> str | None:
    """Return a text that identifies a process together with its pid; None if it is gone.

    It has the boot id and the start time. A later process with the same pid has another text.
    A zombie counts as gone.
    """
    fields = _stat_fields(pid)
    if fields is None or fields[0] in {b"Z", b"X"}:
        return None
    return f"{_boot_id()}/{fields[19].decode()}"


def trim_memory() -> None:
    """Return freed memory to the system, if the C library can do that."""
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def keep_large_blocks_apart(size_bytes: int) -> None:
    """Have the C library return each block of `size_bytes` or more to the system when it is freed.

    By default, glibc raises this threshold whenever a larger block is freed, and a model's
    temporary arrays then stay in the heap for ever: 226 MB instead of 169 after a batch.
    """
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, size_bytes)
        # The first call also stops glibc from raising this second threshold. At its default, memory
        # at the end of the heap would be returned to the system too often.
        mallopt(_M_TRIM_THRESHOLD, 2 * size_bytes)


def share_one_heap() -> None:
    """Have all threads allocate from one heap; call it before the first thread.

    By default, glibc gives each thread a heap of its own, and memory that one thread frees is not
    used by the others: 18 MB in a daemon with routing. Python's threads gain nothing from that,
    because they wait for the interpreter's lock.
    """
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def machine_bytes() -> int:
    """Return how much memory the machine has, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def tree_use(root: int) -> tuple[int, int]:
    """Return how many processes are below `root`, and their anonymous memory in bytes.

    The tree is followed from `root`, because reading every process of the machine took 18 ms for
    112 processes.
    """
    waiting, count, pages = [root], 0, 0
    while waiting:
        pid = waiting.pop()
        children = _children(pid)
        waiting += children
        if pid != root:
            count += 1
            pages += _anonymous_pages(pid)
    return count, pages * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """Return the children of a process, including adopted and dead ones."""
    if Path(f"/proc/{pid}/task/{pid}/children").exists():
        return _children(pid)
    # A kernel without CONFIG_PROC_CHILDREN: look at the parent of every process.
    names = [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]
    return [int(name) for name in names if parent_pid(int(name)) == pid]


def tree_below(pid: int) -> list[int]:
    """Return every process below `pid`, each before its parent.

    If the kernel lists the children of a process, /proc is read for processes of that tree only.
    """
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        return descendants(pid)[::-1]
    found = [pid]
    for each in found:
        found += _children(each)
    return found[:0:-1]


def has_controlling_terminal() -> bool:
    """Tell whether this process has a terminal, which its user could close."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _children(pid: int) -> list[int]:
    """Return the children of every thread of `pid`; empty if it is gone."""
    found: list[int] = []
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return found
    for thread in threads:
        with suppress(OSError):
            found += map(int, (thread / "children").read_bytes().split())
    return found


def _anonymous_pages(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
    except OSError:
        return 0
    return max(0, int(fields[1]) - int(fields[2]))


def set_dumpable(is_dumpable: bool, /) -> None:
    """Allow or forbid other processes of this user to read this one's memory and environment."""
    _prctl(_PR_SET_DUMPABLE, int(is_dumpable))


def become_subreaper() -> None:
    """Become the parent of every orphaned descendant."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _stat_fields(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the state on; None if the process is gone."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return raw.rpartition(b")")[2].split()


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    arguments = (ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if _libc().prctl(option, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
