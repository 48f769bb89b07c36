"""A process that outlives the daemon, and ends the servers that their guards could not end.

A guard is the parent process of one server, and ends the server's process tree (guard.py).

Run as `python -I -S watcher.py FD LOW HIGH PREFIX`, one for each daemon, with FD as the reading end
of a pipe that the daemon alone holds open. The pipe closes when the daemon ends, for whatever
reason. The guards then end their trees, unless they were killed together with the daemon, or are
stopped. So the watcher waits briefly, and then kills every process that still has the mark of this
run of the daemon (capd_protos/tree_marks.py), and the descendants of each. LOW, HIGH and PREFIX are
the mark, as for `marked`.

It imports only modules written in C, as guard.py does, and takes 9 MB, of which 3 MB are not
shared.
"""

import _signal  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
import posix
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_LINE = b"Max file locks"
VARIABLE = b"CAPD_INSTANCE="
GRACE_MS = 1500
PAUSE_MS = 100
MOST_LOOKS = 600
NO_SUCH_CALL = 38
"""ENOSYS: the kernel is older than 5.3."""
_LARGEST_READ = 1 << 22


def marked(low: int, high: int, prefix: bytes) -> list[int]:
    """Return this user's processes that have one of the two marks.

    One mark is a hard limit of file locks from `low` to `high`, the other a variable CAPD_INSTANCE
    whose value begins with `prefix`. Zombies, this process and its ancestors are left out.
    """
    own = posix.getuid()
    spared = _line_above(posix.getpid())
    found = []
    try:
        names = posix.listdir("/proc")
    except OSError:
        return []
    for name in filter(str.isdigit, names):
        pid = int(name)
        try:
            # The owner of the folder is the process's user, even if the process hides its details.
            if posix.stat(f"/proc/{name}").st_uid != own or pid in spared:
                continue
        except OSError:
            continue
        if is_marked(pid, low, high, prefix) and not _is_dead(pid):
            found.append(pid)
    return found


def is_marked(pid: int, low: int, high: int, prefix: bytes) -> bool:
    """Tell whether the process `pid` has one of the two marks of a server's process tree.

    The marks are the same as for `marked`.
    """
    limit = hard_limit(pid)
    if limit is not None and low <= limit <= high:
        return True
    return marking_value(pid).startswith(prefix)


def hard_limit(pid: int) -> int | None:
    """Return a process's hard limit of file locks, which may mark a tree; None if there is none."""
    for line in _content(f"/proc/{pid}/limits").splitlines():
        if line.startswith(LIMIT_LINE):
            value = line.split()[-2]
            return int(value) if value.isdigit() else None
    return None


def marking_value(pid: int) -> bytes:
    """Return the value of the variable that marks a tree; empty if the process has none.

    A process that hides its environment may have the variable as an argument instead.
    """
    content = b"\0" + (_content(f"/proc/{pid}/environ") or _content(f"/proc/{pid}/cmdline"))
    _before, found, after = content.partition(b"\0" + VARIABLE)
    return after.partition(b"\0")[0] if found else b""


def end(pids: list[int], is_meant: "Callable[[int], bool]") -> None:
    """Kill each process of `pids` for which `is_meant` still returns True.

    A pid may have been given to another process since it was found. So each process is first held
    by a descriptor, and then checked again.
    """
    for pid in pids:
        try:
            fd = posix.pidfd_open(pid)
        except OSError as error:
            if error.errno == NO_SUCH_CALL and is_meant(pid):
                send_signal(pid, _signal.SIGKILL)
            continue
        try:
            if is_meant(pid):
                _signal.pidfd_send_signal(fd, _signal.SIGKILL)
        except OSError:
            pass
        finally:
            posix.close(fd)


def end_marked(low: int, high: int, prefix: bytes) -> bool:
    """Kill every marked process and its descendants; return whether there was one.

    The marks are the same as for `marked`.
    """
    found = marked(low, high, prefix)
    if not found:
        return False
    spared = _line_above(posix.getpid())
    # Listed before anything is killed: children of a killed parent would get another parent.
    below = [pid for pid in _below(found) if pid not in spared]
    doomed = {*found, *below}
    end(below, lambda pid: _parent(pid) in doomed)
    end(found, lambda pid: is_marked(pid, low, high, prefix))
    return True


def resume(pids: list[int]) -> None:
    """Let the processes with these pids continue, if they were stopped."""
    for pid in pids:
        send_signal(pid, _signal.SIGCONT)


def send_signal(pid: int, number: int) -> None:
    """Send the signal `number` to the process `pid`; do nothing if it is gone."""
    try:  # noqa: SIM105  # as in guard.py
        posix.kill(pid, number)
    except OSError:
        pass


def _content(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            content = b""
            while len(content) < _LARGEST_READ:
                more = file.read(1 << 16)
                if not more:
                    break
                content += more
            return content
    except OSError:
        return b""


def _fields(pid: int) -> list[bytes]:
    # The command name is in parentheses, and may itself contain spaces and parentheses.
    return _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


def _is_dead(pid: int) -> bool:
    fields = _fields(pid)
    return not fields or fields[0] in {b"Z", b"X"}


def _line_above(pid: int) -> list[int]:
    """Return the pids of the process `pid` and its ancestors."""
    line = [pid]
    while parent := _parent(line[-1]):
        if parent in line:
            break
        line.append(parent)
    return line


def _below(roots: list[int]) -> list[int]:
    """Return every process below `roots`, without `roots` themselves, children first."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, posix.listdir("/proc")):
        children.setdefault(_parent(int(name)), []).append(int(name))
    found = list(roots)
    for pid in found:
        found += [each for each in children.get(pid, ()) if each not in found]
    return found[len(roots) :][::-1]


def main(life: int, low: int, high: int, prefix: bytes) -> None:
    """Wait until the daemon has ended, then end its servers by their marks.

    `life` is a descriptor that reaches its end when the daemon ends. `low`, `high` and `prefix` are
    the marks, as for `marked`.
    """
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)
    while True:
        try:
            if not posix.read(life, 64):
                break
        except OSError:
            break
    poller = select.poll()
    for waited_ms in range(0, GRACE_MS, PAUSE_MS):
        found = marked(low, high, prefix)
        if not found:
            return
        if waited_ms == 0:
            resume(found)
        poller.poll(PAUSE_MS)
    for _ in range(MOST_LOOKS):
        if not end_marked(low, high, prefix):
            return
        poller.poll(PAUSE_MS)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode())
