"""The parent process of one server. It ends the server's whole process tree, even if capd dies.

Run as `python -I -S guard.py FD LIMIT [OPTION...]`, with the server's stdin, stdout and stderr as
0, 1, 2, the server's directory as its own, and one end of a socket pair as FD. Because there is one
guard for every server, it imports only modules written in C: it starts 1 ms later than an empty
Python program, and takes 9 MB, of which 3 MB are not shared. The guard adopts orphans (Linux: child
subreaper), so a double-forked daemon is still its descendant. It ignores SIGINT, SIGTERM and
SIGHUP: only capd's commands and capd's death end a server. Capd's death also wakes a guard that was
stopped.

LIMIT, a hard limit of file locks, and a variable in the guard's environment mark the guard and
everything that it starts as this daemon's (capd_protos/tree_marks.py), so that the daemon finds
them even if the guard is killed. If LIMIT is 0, no limit is set.

The options confine the guard, and the server with it (confine.py). Options that begin with
`--finally=` are the words of a command to run after the tree is gone, such as one that removes a
container: it runs until it succeeds, at most three times. After a success the guard reports
`removed`.

    READING --whole spec--> STARTING --posix_spawn--> WATCHING --T--> WATCHING
       |                       |                       |   |         (SIGTERM to all)
       | capd died             | errno          K, or  |   | the server ended:
       v                       v              capd died|   | `exit N`
      end             `failed ERRNO`, end              v   v
                                             KILLING (SIGKILL to all, until none is left)
                                                         |
                                                         v
                                                        end

From capd: four bytes of length, then items that each end in NUL (path, number of arguments,
arguments, KEY=VALUE...), then the commands `T` (send SIGTERM) and `K` (kill). This keeps secrets
out of argv and out of the guard's environment. To capd: `ready` and which options are in force,
after which capd checks once more what is about to run; then `pid N` or `failed ERRNO`, and `exit N`
(negative: the signal).
"""

import _signal  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
import posix
import select
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
RLIMIT_LOCKS = 10
MORE_OOM_SCORE = 300
FINALLY = "--finally="
FINAL_TRIES = 3
FINAL_MS = 10_000


def descendants(root: int) -> list[int]:
    """Return every process below `root`, each after its parent; empty if there is no /proc."""
    children: dict[int, list[int]] = {}
    try:
        names = posix.listdir("/proc")
    except OSError:
        return []
    for name in filter(str.isdigit, names):
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                fields = file.read(1024)
        except OSError:
            continue
        # The command name is in parentheses, and may itself contain spaces and parentheses.
        parent = int(fields.rpartition(b")")[2].split()[1])
        children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found[1:]


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant, if the system supports that.

    Also have the kernel send SIGCONT when capd dies, which wakes a stopped guard. The kernel sends
    the signal also when only the thread that started the guard ends. SIGCONT does nothing then.
    """
    if sys.platform == "linux":
        try:
            import _ctypes  # noqa: PLC0415  # an interpreter may lack it
        except ImportError:
            return
        itself = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        prctl = _ctypes.dlsym(itself, "prctl")
        _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
        _ctypes.call_function(prctl, (PR_SET_PDEATHSIG, int(_signal.SIGCONT), 0, 0, 0))


def mark_tree(limit: int) -> None:
    """Set the hard limit of file locks that marks this process and its descendants.

    An ordinary user cannot raise it again. A limit of 0 sets no mark.
    """
    if limit:
        try:
            import resource  # noqa: PLC0415  # an interpreter may lack it

            resource.setrlimit(RLIMIT_LOCKS, (limit, limit))
        except (ImportError, OSError, ValueError):
            pass


def offer_to_the_oom_killer() -> None:
    """Let the kernel end this tree before capd and the editors if memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "rb", buffering=0) as file:
            score = int(file.read(16))
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(b"%d" % min(1000, score + MORE_OOM_SCORE))
    except (OSError, ValueError):
        pass


def receive(control: int, size_bytes: int) -> bytes:
    """Return up to `size_bytes` bytes from the socket to capd; empty if capd is gone.

    A peer that closes with unread bytes shows up as ECONNRESET, not as end of file.
    """
    try:
        return posix.read(control, size_bytes)
    except OSError:
        return b""


def receive_exactly(control: int, size_bytes: int) -> bytes:
    """Return `size_bytes` bytes from the socket to capd; end this guard if capd is gone."""
    data = b""
    while len(data) < size_bytes:
        chunk = receive(control, size_bytes - len(data))
        if not chunk:
            raise SystemExit
        data += chunk
    return data


def report(control: int, line: bytes) -> None:
    """Send capd a line over the socket. If capd is gone, do nothing: the next read notices that."""
    try:  # noqa: SIM105  # contextlib costs 4 of 11 ms at start
        posix.write(control, line)
    except OSError:
        pass


def send_signal(pid: int, number: int) -> None:
    """Send the signal `number` to a process, or to a group if `pid` is negative.

    Do nothing if it is gone.
    """
    try:  # noqa: SIM105
        posix.kill(pid, number)
    except OSError:
        pass


def is_bwrap(pid: int) -> bool:
    """Tell whether a process is still bubblewrap, and has not executed the server yet."""
    try:
        with open(f"/proc/{pid}/comm", "rb", buffering=0) as file:
            return file.read(32) == b"bwrap\n"
    except OSError:
        return False


class Guard:
    """Watches one server's process tree, until it has to be killed."""

    def __init__(self, control: int, wake: int, server: int, *, is_wrapped: bool) -> None:
        """Create the guard of the process with the pid `server`.

        `control` is the descriptor of the socket to capd. `wake` is one that becomes readable when
        a child has ended. `is_wrapped` says that bubblewrap is the parent of the server itself.
        """
        self._is_wrapped = is_wrapped
        self._control = control
        self._wake = wake
        self._server = server
        self._is_server_ended = False
        self._is_final = False
        self._code = -1

    def watch(self) -> None:
        """Wait until the tree must be killed: capd commands it, or capd or the server has ended."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        while not self._is_server_ended:
            ready = [fd for fd, _ in poller.poll()]
            if self._wake in ready:
                posix.read(self._wake, 4096)
                self._reap()
            if self._control in ready:
                command = receive(self._control, 1)
                if command == b"T":
                    self._terminate()
                else:
                    return

    def kill(self) -> None:
        """Kill the tree; return when no descendant is left."""
        # The group first: the kernel signals it at once, so a fork bomb cannot outrun it. Only
        # here: later the number may belong to another group.
        send_signal(-self._server, _signal.SIGKILL)
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        pause_ms = 5
        while not self._reap():
            for pid in descendants(posix.getpid()):
                send_signal(pid, _signal.SIGKILL)
            if poller.poll(pause_ms):
                posix.read(self._wake, 4096)
            pause_ms = min(pause_ms * 2, 500)

    def finish(self, words: list[str], environment: dict[bytes, bytes]) -> None:
        """Run the command `words` until it succeeds, at most three times.

        Report its success to capd. `environment` is the command's environment.
        """
        for _ in range(FINAL_TRIES):
            try:
                pid = posix.posix_spawn(
                    words[0],
                    words,
                    environment,
                    setpgroup=0,
                    setsigmask=(),
                    setsigdef=_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP},
                )
            except OSError:
                return
            self._server, self._is_server_ended = pid, False
            self._is_final = True
            self._wait_for_end(FINAL_MS)
            self.kill()
            if self._code == 0:
                report(self._control, b"removed\n")
                return

    def _wait_for_end(self, limit_ms: int) -> None:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        waited_ms = 0
        # The poll returns early for each child that ends, so only quiet time is counted.
        while not self._reap() and not self._is_server_ended and waited_ms < limit_ms:
            if poller.poll(100):
                posix.read(self._wake, 4096)
            else:
                waited_ms += 100

    def _terminate(self) -> None:
        # Never both the group and its members: many programs take a second SIGTERM as "at once".
        for pid in descendants(posix.getpid()) or [-self._server]:
            # bubblewrap would die of SIGTERM, and take the server with it at once.
            if not (self._is_wrapped and is_bwrap(pid)):
                send_signal(pid, _signal.SIGTERM)

    def _reap(self) -> bool:
        """Reap dead children, and report the server's end; return whether no child is left."""
        while True:
            try:
                pid, status = posix.waitpid(-1, posix.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._server:
                self._is_server_ended = True
                self._code = posix.waitstatus_to_exitcode(status)
                if not self._is_final:
                    report(self._control, b"exit %d\n" % self._code)


def confined_by(options: list[str]) -> list[bytes]:
    """Confine this process, and all that it starts, by `options`; return which are in force."""
    # Isolated mode leaves this file's folder out of `sys.path`.
    sys.path.insert(0, __file__.rpartition("/")[0])
    import confine  # type: ignore[import-not-found]  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    del sys.path[0]
    held = confine.confine(options)
    return [each.encode() for each in held]


def main(control: int, limit: int, options: list[str]) -> None:
    """Guard one server from its start to the end of its last descendant.

    `control` is the descriptor of the socket to capd. `limit` marks the tree; 0 for no mark.
    `options` confine the guard, or begin with `--finally=`.
    """
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)
    posix.set_inheritable(control, False)
    adopt_orphans()
    offer_to_the_oom_killer()
    finally_words = [each.removeprefix(FINALLY) for each in options if each.startswith(FINALLY)]
    held = confined_by([each for each in options if not each.startswith(FINALLY)])
    report(control, b" ".join([b"ready", *held]) + b"\n")
    length = int.from_bytes(receive_exactly(control, 4), "big")
    # Only after capd has registered this guard: it treats an unknown marked child as an orphan.
    mark_tree(limit)
    path, count, *items = receive_exactly(control, length).split(b"\0")[:-1]
    arguments = items[: int(count)]
    environment = dict(item.split(b"=", 1) for item in items[int(count) :])
    wake, wake_writer = posix.pipe()
    posix.set_blocking(wake_writer, False)
    _signal.set_wakeup_fd(wake_writer)
    _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)
    try:
        server = posix.posix_spawn(
            path,
            arguments,
            environment,
            setpgroup=0,
            setsigmask=(),
            setsigdef=_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP},
        )
    except OSError as error:
        report(control, b"failed %d\n" % (error.errno or 0))
        return
    report(control, b"pid %d\n" % server)
    # Close the server's pipes and leave its directory, so that they are not in use after its end.
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd in range(3):
        posix.dup2(null, fd)
    posix.chdir("/")
    guard = Guard(control, wake, server, is_wrapped=path.rpartition(b"/")[2] == b"bwrap")
    guard.watch()
    guard.kill()
    if finally_words:
        guard.finish(finally_words, environment)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
