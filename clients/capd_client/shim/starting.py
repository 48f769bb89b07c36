"""Finds the daemon's socket, and starts the daemon if none is running."""

import _socket
import errno
import posix
import select
import sys
import time

from capd_client.shim.json_lines import encode, parse, text_of
from capd_client.shim.login_environment import clean_environment, working_folders

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Mapping
else:
    import _signal

_START_TIMEOUT = 30.0
_START_AGAIN = 60.0
"""Seconds after which this shim tries again to start a daemon that failed to start."""
_SUCCESSOR_GRACE = 1.0
_FAILURE_VALID = 10.0
"""Seconds for which other shims, which waited for a start that failed, do not try it themselves."""
_STDERR_LINES = 10
_STDERR_BYTES = 8192
_SERVING_POLL_MS = 20
_POLL = 0.05
_OWN_POLL = 0.01


def _is_dir(path: str) -> bool:
    try:
        return posix.stat(path).st_mode & 0o170000 == 0o040000
    except (OSError, ValueError):
        return False


def socket_path(
    env: "Mapping[str, str]", uid: int, is_dir: "Callable[[str], bool]" = _is_dir
) -> str:
    """Return the path of the socket, as `capd_protos.places.socket_path` does."""
    if env.get("CAPD_SOCKET"):
        return absolute(env["CAPD_SOCKET"])
    if env.get("CAPD_HOME"):
        return join(absolute(env["CAPD_HOME"]), "run/capd.sock")
    if env.get("XDG_RUNTIME_DIR", "").startswith("/"):
        return join(env["XDG_RUNTIME_DIR"], "capd/capd.sock")
    if is_dir(f"/run/user/{uid}"):
        return f"/run/user/{uid}/capd/capd.sock"
    return join(_home(env), ".local/state/capd/run/capd.sock")


def join(folder: str, rest: str) -> str:
    """Return the path `rest` in the folder `folder`, as `os.path.join` does."""
    return folder + rest if folder.endswith("/") else f"{folder}/{rest}"


def absolute(path: str) -> str:
    """Return the absolute form of a path, as `os.path.abspath` does."""
    if not path.startswith("/"):
        path = join(posix.getcwd(), path)
    # In POSIX two leading slashes may have a meaning of their own; three are the same as one.
    root = "//" if path.startswith("//") and not path.startswith("///") else "/"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return root + "/".join(parts)


def _home(env: "Mapping[str, str]") -> str:
    home = env.get("HOME")
    if home:
        return home
    own = posix.environ.get(b"HOME")
    if own is None:
        import pwd

        try:
            return pwd.getpwuid(posix.getuid()).pw_dir.rstrip("/") or "/"
        except KeyError:
            return "~"
    return own.decode("utf-8", "surrogateescape").rstrip("/") or "/"


def state_folder(env: "Mapping[str, str]") -> str:
    """Return the state folder, with the daemon's log, as `capd_protos.places` does."""
    if env.get("CAPD_HOME"):
        return join(absolute(env["CAPD_HOME"]), "state")
    state = env.get("XDG_STATE_HOME", "")
    return join(state if state.startswith("/") else join(_home(env), ".local/state"), "capd")


def _make_folder(path: str) -> None:
    try:
        posix.mkdir(path, 0o700)
    except FileExistsError:
        # Another shim was faster.
        return


def make_folders(path: str) -> None:
    """Create `path` and missing parents with mode 0700. An existing path keeps its mode.

    Raises:
        OSError: it cannot be created, is not a folder, or belongs to another user.
    """
    if not _is_dir(path):
        above = path.rpartition("/")[0]
        if above and not _is_dir(above):
            make_folders(above)
        _make_folder(path)
    status = posix.lstat(path)
    if status.st_mode & 0o170000 != 0o040000 or status.st_uid != posix.getuid():
        raise OSError(errno.EPERM, "it is not a folder of yours", path)


class Starter:
    """Starts the daemon. If several shims try, only the one that gets a file lock starts it."""

    def __init__(self, socket: str, env: "Mapping[str, str]", *, is_named: bool) -> None:
        self._socket = socket
        self._env = env
        self._is_named = is_named
        """Whether the socket was given as an argument, so that the daemon needs CAPD_SOCKET."""
        self._folder = socket.rpartition("/")[0] or "/"
        # Absolute, because the shim changes its folder before it starts the daemon.
        self._home = absolute(env["CAPD_HOME"]) if env.get("CAPD_HOME") else ""
        self._working_folders = working_folders(posix.environ)
        self._log_path = join(state_folder(env), "capd.log")
        self._log = -1
        self._log_start = 0
        self._lock = -1
        self._has_lock = False
        self._is_checked = False
        self._parent: _socket.socket | None = None
        """The socket to the process that has started the daemon. That process reports if the daemon
        ends, and ends when this socket is closed."""
        self._failure = ""
        self._failure_at = 0.0
        self._deadline = 0.0
        self._again_at = 0.0
        self.stderr_tail: list[str] = []
        """The last lines on stderr of a daemon that failed to start."""

    @property
    def is_busy(self) -> bool:
        """Whether a process is starting the daemon, so that it may answer soon."""
        return self._deadline > 0

    @property
    def pause(self) -> float:
        """Seconds until the shim tries to connect again, while `is_busy`.

        The shim that starts the daemon tries more often than others that wait for it.
        """
        if not self._has_lock:
            return _POLL
        is_started = self._parent is not None or bool(self._failure)
        return _OWN_POLL if is_started else 0.0

    def step(self) -> str:
        """Continue the start of the daemon; return why it has failed, or an empty text.

        The shim calls it each time that no daemon answers at the socket.
        """
        now = time.monotonic()
        if now < self._again_at:
            return ""
        if not self._deadline:
            self._deadline = now + _START_TIMEOUT
        try:
            why = self._start_or_watch()
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            why = f"{where}{error.strerror}"
        if not why and now >= self._deadline:
            why = f"it does not answer within {_START_TIMEOUT:.0f} s"
        if why:
            self._again_at = now + _START_AGAIN
            self.release()
        return why

    def release(self) -> None:
        """Release the start lock, so that other shims may start the daemon."""
        self._deadline = 0.0
        self._is_checked = False
        self._failure = ""
        if self._lock >= 0:
            posix.close(self._lock)
            self._lock = -1
            self._has_lock = False

    def on_answer(self) -> None:
        """Stop watching the daemon that was started, because it answers."""
        self._leave()

    def _leave(self) -> None:
        """Close the socket to the process that starts the daemon, which ends that process."""
        if self._parent is not None:
            self._parent.close()
            self._parent = None

    def _ended(self) -> str:
        """Return how the daemon that was started has ended; empty if it is running."""
        if self._parent is None:
            return ""
        try:
            word = self._parent.recv(_STDERR_BYTES)
        except (BlockingIOError, InterruptedError):
            return ""
        except OSError:
            word = b""
        if word:
            self._leave()
        # If the socket was closed without a report, the process at the other end was killed. The
        # daemon may still run: connecting will show it.
        return word.decode("utf-8", "replace")

    def _start_or_watch(self) -> str:
        if self._parent is not None or self._failure:
            return self._watch()
        if not self._take_lock():
            return ""
        if not self._is_checked:
            # The former owner of the lock may have started the daemon, so try to connect once more.
            self._is_checked = True
            return self._read_failure()
        self._spawn()
        return ""

    def _watch(self) -> str:
        """Check the daemon that was started; return why it has failed, or an empty text."""
        if self._parent is not None:
            why = self._ended()
            if not why:
                return ""
            self.stderr_tail = self._read_stderr_tail()
            self._failure = why
            self._failure_at = time.monotonic()
        # The daemon may have ended because another one is starting, which does not listen yet.
        if time.monotonic() < self._failure_at + _SUCCESSOR_GRACE:
            return ""
        self._record_failure(self._failure)
        return self._failure

    def _take_lock(self) -> bool:
        import fcntl

        if self._has_lock:
            return True
        if self._lock < 0:
            make_folders(self._folder)
            flags = posix.O_RDWR | posix.O_CREAT | posix.O_NOFOLLOW
            self._lock = posix.open(join(self._folder, "start.lock"), flags, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._has_lock = True
        return True

    def _record_failure(self, why: str) -> None:
        """Write why the start failed into the lock file, so that waiting shims do not repeat it."""
        if self._has_lock:
            word = {"at": time.monotonic(), "why": why, "last_words": self.stderr_tail}
            posix.ftruncate(self._lock, 0)
            posix.pwrite(self._lock, encode(word), 0)

    def _read_failure(self) -> str:
        word = parse(posix.pread(self._lock, 4 * _STDERR_BYTES, 0))
        at = (word or {}).get("at")
        # The clock begins at 0 when the machine starts, so an older record may be in its future.
        if (
            word is None
            or not isinstance(at, float)
            or not 0 <= time.monotonic() - at < _FAILURE_VALID
        ):
            return ""
        lines = word.get("last_words")
        self.stderr_tail = [str(each) for each in lines] if isinstance(lines, list) else []
        return text_of(word, "why")

    def _spawn(self) -> None:
        posix.ftruncate(self._lock, 0)
        self._open_log()
        # So that the daemon does not keep the project's folder in use.
        posix.chdir("/")
        # opencode and Copilot kill every process below them when they quit. The process in between
        # ends at once, so that the next one, and with it the daemon, is below no client.
        ours, theirs = _socket.socketpair()
        pid = posix.fork()
        if pid == 0:
            try:
                posix.setsid()
                if posix.fork() == 0:
                    ours.close()
                    self._serve_as_parent(theirs)
            finally:
                posix._exit(0)
        theirs.close()
        try:  # noqa: SIM105 - contextlib costs a start more than all of this
            posix.waitpid(pid, 0)
        except ChildProcessError:
            # The client ignores SIGCHLD, which the shim inherits: the kernel has reaped the child.
            pass
        ours.setblocking(False)
        self._parent = ours

    def _serve_as_parent(self, shim: _socket.socket) -> None:
        """Start the daemon in this process, which becomes the daemon's parent.

        If the daemon ends before the socket `shim` is closed, report that over the socket.
        """
        # SIGCHLD as well: if a client ignores it, the daemon's exit code would be lost.
        for number in (_signal.SIGINT, _signal.SIGHUP, _signal.SIGTERM, _signal.SIGCHLD):
            _signal.signal(number, _signal.SIG_DFL)
        _signal.set_wakeup_fd(-1)
        # A client waits until every copy of the shim's stdout is closed.
        nowhere = posix.open("/dev/null", posix.O_RDWR)
        for fd in range(3):
            posix.dup2(nowhere, fd)
        for fd in _open_descriptors():
            if fd > 2 and fd not in {shim.fileno(), self._log}:
                _close(fd)
        try:
            daemon = self._spawn_daemon()
        except OSError as error:
            shim.sendall((error.strerror or str(error)).encode())
            return
        if self._log >= 0:
            posix.close(self._log)
        poll = select.poll()
        poll.register(shim.fileno(), select.POLLIN)
        while not poll.poll(_SERVING_POLL_MS):
            pid, status = posix.waitpid(daemon, posix.WNOHANG)
            if pid:
                code = posix.waitstatus_to_exitcode(status)
                how = f"exit code {code}" if code >= 0 else f"signal {-code}"
                shim.sendall(f"it ended with {how}".encode())
                return

    def _spawn_daemon(self) -> int:
        actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
            (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
            (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0),
        ]
        if self._log >= 0:
            actions.append((posix.POSIX_SPAWN_DUP2, self._log, 2))
        else:
            actions.append((posix.POSIX_SPAWN_OPEN, 2, "/dev/null", posix.O_WRONLY, 0))
        # -P, so that a folder `capd` in the editor's project is not imported as the daemon.
        command = [sys.executable, "-P", "-m", "capd", "daemon", "run"]
        return posix.posix_spawn(
            sys.executable,
            command,
            self._child_environment(),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            # The daemon needs default signal handling, whatever the client ignores: it waits for
            # its children.
            setsigdef=_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP},
        )

    def _child_environment(self) -> "dict[bytes, bytes]":
        env = clean_environment(posix.environ, self._working_folders)
        if self._is_named or self._env.get("CAPD_SOCKET"):
            env[b"CAPD_SOCKET"] = self._socket.encode("utf-8", "surrogateescape")
        if self._home:
            env[b"CAPD_HOME"] = self._home.encode("utf-8", "surrogateescape")
        return env

    def _open_log(self) -> None:
        if self._log >= 0:
            posix.close(self._log)
        try:
            make_folders(self._log_path.rpartition("/")[0])
            flags = posix.O_RDWR | posix.O_CREAT | posix.O_APPEND | posix.O_NOFOLLOW
            self._log = posix.open(self._log_path, flags, 0o600)
            status = posix.fstat(self._log)
            if status.st_mode & 0o170000 != 0o100000:
                # Nobody may read a named pipe, and the daemon would wait when it is full.
                posix.close(self._log)
                self._log = -1
                return
            self._log_start = status.st_size
        except OSError:
            self._log = -1

    def _read_stderr_tail(self) -> "list[str]":
        if self._log < 0:
            return []
        size = posix.fstat(self._log).st_size
        start = max(self._log_start, size - _STDERR_BYTES)
        text = posix.pread(self._log, _STDERR_BYTES, start).decode("utf-8", "replace")
        posix.close(self._log)
        self._log = -1
        lines = [printable(line)[:500] for line in text.splitlines() if line.strip()]
        return lines[-_STDERR_LINES:]


def _open_descriptors() -> "list[int]":
    """Return all open descriptors: the client may have passed some on."""
    try:
        return [int(name) for name in posix.listdir("/dev/fd")]
    except OSError:
        return []


def _close(fd: int) -> None:
    try:
        posix.close(fd)
    except OSError:
        # The descriptor by which the folder was listed is closed already.
        return


def printable(text: str) -> str:
    """Return `text` with escapes for control characters."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def write_stderr(text: str) -> None:
    """Write a line for a person to standard error; it is lost if the host has closed that."""
    try:
        posix.write(2, text.encode("utf-8", "replace") + b"\n")
    except OSError:
        return
