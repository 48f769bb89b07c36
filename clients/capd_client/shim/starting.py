"""Where the daemon is, and how it is started where none runs."""

import errno
import posix
import sys
import time

from capd_client.shim.json_lines import encode, parse, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Mapping
else:
    import _signal

_START_TIMEOUT = 30.0
_START_AGAIN = 60.0
"""A daemon that could not start is not started again at once, by this shim or another."""
_HANDOVER_GRACE = 1.0
_FAILURE_VALID = 10.0
"""How long the shims that waited for a daemon in vain need not try the same."""
_STDERR_LINES = 10
_STDERR_BYTES = 8192
_CLIENT_VARIABLES = (
    b"CAPD_CLIENT",
    b"CAPD_SESSION",
    b"CAPD_PARENT_SESSION",
    b"CAPD_PROJECT",
    b"CAPD_NO_START",
    b"CAPD_ACP",
    b"CAPD_ACP_TREE",
    b"CAPD_INSTANCE",
    b"NOTIFY_SOCKET",
    b"LISTEN_FDS",
    b"LISTEN_PID",
    b"LISTEN_FDNAMES",
    b"WATCHDOG_PID",
    b"WATCHDOG_USEC",
)
"""What speaks of this client, or of the service that it may run in, and of no other."""


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
    if env.get("XDG_RUNTIME_DIR"):
        return join(env["XDG_RUNTIME_DIR"], "capd/capd.sock")
    if is_dir(f"/run/user/{uid}"):
        return f"/run/user/{uid}/capd/capd.sock"
    return join(_home(env), ".local/state/capd/run/capd.sock")


def join(folder: str, rest: str) -> str:
    """Return the path of `rest` in `folder`, as `os.path.join` does."""
    return folder + rest if folder.endswith("/") else f"{folder}/{rest}"


def absolute(path: str) -> str:
    """Return what `os.path.abspath` would."""
    if not path.startswith("/"):
        path = join(posix.getcwd(), path)
    # POSIX leaves two leading slashes to the implementation; three are one.
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
    """Return the folder of the daemon's log, as `capd_protos.places` has it."""
    if env.get("CAPD_HOME"):
        return join(absolute(env["CAPD_HOME"]), "state")
    return join(env.get("XDG_STATE_HOME") or join(_home(env), ".local/state"), "capd")


def _make_folder(path: str) -> None:
    try:
        posix.mkdir(path, 0o700)
    except FileExistsError:
        # Another shim was faster.
        return


def make_folders(path: str) -> None:
    """Create `path` and what is above it, for this user alone.

    Raises:
        OSError: it cannot be created, or is not this user's.
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
    """Starts the daemon, and of many shims at once lets one do it."""

    def __init__(self, socket: str, env: "Mapping[str, str]", *, is_named: bool) -> None:
        self._socket = socket
        self._env = env
        self._is_named = is_named
        """Whether the socket was chosen by an argument, of which the daemon cannot know."""
        self._folder = socket.rpartition("/")[0] or "/"
        # Absolute from here on: the shim leaves its folder before it starts the daemon.
        self._home = absolute(env["CAPD_HOME"]) if env.get("CAPD_HOME") else ""
        self._log_path = join(state_folder(env), "capd.log")
        self._log = -1
        self._log_start = 0
        self._lock = -1
        self._has_lock = False
        self._is_checked = False
        self._pid = 0
        self._has_answered = False
        self._failure = ""
        self._failure_at = 0.0
        self._deadline = 0.0
        self._again_at = 0.0
        self.stderr_tail: list[str] = []
        """The last lines that the daemon which could not start wrote to stderr."""

    @property
    def is_busy(self) -> bool:
        """Whether somebody is starting the daemon, so that it may be there any moment."""
        return self._deadline > 0

    def step(self) -> str:
        """Do what comes next where nobody answers; return why it is hopeless, else nothing."""
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
        """Let others start the daemon: it answers, or it will not."""
        self._deadline = 0.0
        self._is_checked = False
        self._failure = ""
        if self._lock >= 0:
            posix.close(self._lock)
            self._lock = -1
            self._has_lock = False

    def on_answer(self) -> None:
        """Note that the daemon works: if it ends from here on, it may be started again."""
        self._has_answered = True

    def on_loss(self) -> None:
        """Leave no zombie of a daemon that worked; one that never did is asked why later."""
        if self._has_answered:
            self._exit_code()

    def _exit_code(self) -> int | None:
        """Return the exit code of the daemon that this shim started, once, when it ended."""
        if not self._pid:
            return None
        pid, status = posix.waitpid(self._pid, posix.WNOHANG)
        if not pid:
            return None
        self._pid = 0
        return posix.waitstatus_to_exitcode(status)

    def _start_or_watch(self) -> str:
        if self._pid or self._failure:
            return self._watch()
        if not self._take_lock():
            return ""
        if not self._is_checked:
            # Whoever held the lock may have started it: look once more before.
            self._is_checked = True
            return self._read_failure()
        self._spawn()
        return ""

    def _watch(self) -> str:
        """Look after the daemon that was started; return why it is hopeless, else nothing."""
        if self._pid:
            code = self._exit_code()
            if code is None or self._has_answered:
                return ""
            self.stderr_tail = self._read_stderr_tail()
            self._failure = (
                f"it ended with {f'exit code {code}' if code >= 0 else f'signal {-code}'}"
            )
            self._failure_at = time.monotonic()
        # It may have made way for another one, which does not listen yet.
        if time.monotonic() < self._failure_at + _HANDOVER_GRACE:
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
        """Tell the shims that wait for the lock: each would try the same in turn."""
        if self._has_lock:
            word = {"at": time.monotonic(), "why": why, "last_words": self.stderr_tail}
            posix.ftruncate(self._lock, 0)
            posix.pwrite(self._lock, encode(word), 0)

    def _read_failure(self) -> str:
        word = parse(posix.pread(self._lock, 4 * _STDERR_BYTES, 0))
        at = (word or {}).get("at")
        # The clock starts anew with the machine: an older record lies in its future.
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
        self._has_answered = False
        self._open_log()
        actions: list[tuple[int, int, str, int, int] | tuple[int, int, int] | tuple[int, int]] = [
            (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
            (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0),
        ]
        if self._log >= 0:
            actions.append((posix.POSIX_SPAWN_DUP2, self._log, 2))
        else:
            actions.append((posix.POSIX_SPAWN_OPEN, 2, "/dev/null", posix.O_WRONLY, 0))
        actions.extend((posix.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable())
        # -P: a folder `capd` in the project of the editor is not the daemon.
        command = [sys.executable, "-P", "-m", "capd", "daemon", "run"]
        # A daemon shall not keep the project's folder in use.
        posix.chdir("/")
        self._pid = posix.posix_spawn(
            sys.executable,
            command,
            self._child_environment(),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[_signal.SIGPIPE, _signal.SIGINT, _signal.SIGHUP, _signal.SIGTERM],
        )

    def _child_environment(self) -> "dict[bytes, bytes]":
        # What PYTHON* says is for the Python of one project: a `secrets.py` on its PYTHONPATH would
        # end the daemon of all. As in daemon_process.py, which the shim cannot import.
        env = {
            key: value
            for key, value in posix.environ.items()
            if key not in _CLIENT_VARIABLES
            and (not key.startswith(b"PYTHON") or key == b"PYTHON_KEYRING_BACKEND")
        }
        env[b"PYTHONMALLOC"] = b"malloc"
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
            self._log_start = posix.fstat(self._log).st_size
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


def _inheritable() -> "list[int]":
    """Return descriptors that the host left open for its children, and the daemon must not keep."""
    found = []
    try:
        names = posix.listdir("/dev/fd")
    except OSError:
        return []
    for name in names:
        try:
            if int(name) > 2 and posix.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


def printable(text: str) -> str:
    """Return `text` with escapes for what a terminal would act on."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def write_stderr(text: str) -> None:
    """Write a line for a person; a host that has closed stderr loses it."""
    try:
        posix.write(2, text.encode("utf-8", "replace") + b"\n")
    except OSError:
        return
