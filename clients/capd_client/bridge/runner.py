"""Runs servers on the far side of a bridge, where the project's files are.

    Supervisor (in `hold`) ───pipe──> Runner ──fork──> one guard for each server ──> the server
                                        │                      │
                                        └──idle connection─────┴──> the bridge's socket

The runner keeps one idle connection at the bridge's socket. When the daemon sends an order on it,
the runner forks a guard, which takes over this connection, and opens the next idle one. The order
is one line of JSON: `argv`, `env`, and the folder `cwd`. After that both sides send frames of one
letter, four bytes of length, and the payload:

    to the guard    i  data for the server's standard input     c  close the server's standard input
                    t  send SIGTERM to its processes            k  kill its processes
    to the daemon   s  the server runs                          f  it cannot start, with the reason
                    o  its standard output                      e  its standard error
                    x  its exit code, or minus the signal       g  none of its processes is left

No server outlives its connection, its guard, the runner or `hold`. The guard, the runner and `hold`
each adopt orphans (Linux: child subreaper), and kill what the process below them has left. The
runner needs Python 3.8 and its standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

HEAD = struct.Struct(">cI")
MOST_PAYLOAD_BYTES = 65536
MOST_ORDER_BYTES = 1 << 20
MOST_UNREAD_BYTES = 16 << 20
"""The most bytes of input that wait for a server. A server that reads too slowly for this is ended.
"""
MOST_SERVERS = 64
_PAUSE_BYTES = 1 << 18
"""While this many bytes wait for the connection, the server's output is not read."""
_PROTOCOL = 1
_HELLO_TIMEOUT = 30.0
_RETRY = 1.0
_KILL_TIMEOUT = 5.0
_LAST_OUTPUT = 0.5
_LOOK = 5.0
"""Seconds after which a guard checks whether its server lives, if nothing else has woken it."""
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_INHERITED = frozenset(
    (
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
        *("XDG_STATE_HOME", "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy"),
        *("https_proxy", "http_proxy", "no_proxy", "SSL_CERT_DIR", "SSL_CERT_FILE"),
    )
)
_OWN_FOLDERS = ("~/.local/bin", "~/bin", "/usr/local/bin")
"""Folders with a user's programs. In a shell without a terminal they are often missing on PATH."""


def environment(own: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, str]:
    """Return a server's environment: known variables of `own`, and all of `declared`.

    `own` is the environment of this process, `declared` what the server's definition sets. The PATH
    of `own` is extended by `_OWN_FOLDERS`.
    """
    kept = {
        name: value for name, value in own.items() if name in _INHERITED or name.startswith("LC_")
    }
    folders = kept.get("PATH", os.defpath).split(os.pathsep)
    more = [os.path.expanduser(each) for each in _OWN_FOLDERS]  # noqa: PTH111 - text to text
    # An empty entry would be the working directory.
    kept["PATH"] = os.pathsep.join([each for each in folders if each] + more)
    kept.update(declared)
    return kept


def descendants(root: int) -> list[int]:
    """Return every process below `root`; empty if there is no /proc."""
    children: dict[int, list[int]] = {}
    try:
        numbers = [int(each) for each in os.listdir("/proc") if each.isdigit()]  # noqa: PTH208
    except OSError:
        return []
    for pid in numbers:
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path("/proc", str(pid), "stat").read_bytes()
            children.setdefault(int(stat.rpartition(b")")[2].split()[1]), []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found[1:]


def adopt_orphans() -> None:
    """Become the parent of every orphaned descendant, if the system supports that."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _die_with_parent() -> None:
    _prctl(_SET_PDEATHSIG, int(signal.SIGKILL))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def kill_below(spared: frozenset[int] = frozenset()) -> None:
    """Kill and reap every descendant of this process, except `spared` and their descendants."""
    until = time.monotonic() + _KILL_TIMEOUT
    while time.monotonic() < until:
        kept = {below for each in spared for below in (each, *descendants(each))}
        doomed = [pid for pid in descendants(os.getpid()) if pid not in kept]
        if not doomed:
            return
        for pid in doomed:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in doomed:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        # An orphan that another process reaps causes no signal here, so the loop looks again soon.
        time.sleep(0.01)


class RunnerSupervisor:
    """Starts the runner of a bridge, and starts it again whenever it has ended."""

    def __init__(self, folder: Path) -> None:
        adopt_orphans()
        self._words = [sys.executable or "python3", str(folder / "capd.pyz"), "run"]
        self._runner: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0

    def ensure_running(self) -> None:
        """Start the runner if it does not run; kill what an earlier one has left."""
        if self._runner is not None and self._runner.poll() is None:
            return
        if self._runner is not None:
            self._clean_up(self._runner)
        if time.monotonic() < self._started_at + _RETRY:
            return
        self._started_at = time.monotonic()
        null = subprocess.DEVNULL
        with contextlib.suppress(OSError):
            # The standard output is the far side's answer, so nothing of the runner may appear in
            # it.
            self._runner = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, stdout=null, stderr=null
            )

    def close(self) -> None:
        """End the runner, and everything that it started."""
        if self._runner is not None:
            assert self._runner.stdin is not None
            self._runner.stdin.close()
            self._runner.kill()
            self._runner.wait()
            self._clean_up(self._runner)

    def _clean_up(self, runner: subprocess.Popen[bytes]) -> None:
        if runner.stdin is not None:
            runner.stdin.close()
        self._runner = None
        kill_below()


def run(folder: Path) -> None:
    """Run servers for the bridge of `folder` until standard input ends; then kill all of them."""
    adopt_orphans()
    with contextlib.suppress(_EndedError):
        _Runner(folder).serve()
    kill_below()


class _EndedError(Exception):
    """Raised when the process that holds the bridge open is gone."""


class _Runner:
    """Keeps one idle connection open, and forks a guard for each that gets an order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guards: set[int] = set()
        # When this process is gone, whatever ended it, the guards read the end of this pipe.
        self._life, self._alive = os.pipe()

    def serve(self) -> None:
        """Wait for orders, and start servers, until the process that holds the bridge is gone.

        Raises:
            _EndedError: always, at the end.
        """
        while True:
            idle = self._connected() if len(self._guards) < MOST_SERVERS else None
            if idle is None:
                self._wait(None, _RETRY)
                continue
            with idle:
                # Wait for an order without a limit. Each second, `_wait` also reaps guards that
                # have ended.
                while not self._wait(idle, 1.0):
                    continue
                if _is_open(idle):
                    self._fork(idle)
                else:
                    self._wait(None, _RETRY)

    def _wait(self, idle: socket.socket | None, seconds: float) -> bool:
        """Wait up to `seconds`; return whether the idle connection is readable."""
        readers = [0] if idle is None else [0, idle.fileno()]
        ready = select.select(readers, [], [], seconds)[0]
        if 0 in ready and not os.read(0, 4096):
            raise _EndedError
        self._collect()
        return idle is not None and idle.fileno() in ready

    def _collect(self) -> None:
        """Reap the guards that have ended, and kill the processes that these have left."""
        has_ended = False
        for pid in tuple(self._guards):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._guards.discard(pid)
            has_ended = True
        if has_ended:
            kill_below(frozenset(self._guards))

    def _connected(self) -> socket.socket | None:
        """Return a connection that the daemon has welcomed; None if it welcomes none at present.

        Raises:
            _EndedError: the process that holds the bridge open is gone.
        """
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.settimeout(_RETRY)
        try:
            hello = {
                "capd": "hello",
                "protocol": _PROTOCOL,
                "role": "runner",
                "client": {"name": "capd-runner"},
                "credential": (self._folder / "credential").read_text(encoding="utf-8"),
            }
            end.connect(str(self._folder / "socket"))
            end.sendall(json.dumps(hello).encode() + b"\n")
            if self._is_answered(end) and json.loads(_line(end)).get("capd") == "welcome":
                return end
        except (OSError, ValueError, AttributeError):
            pass
        except _EndedError:
            end.close()
            raise
        end.close()
        return None

    def _is_answered(self, end: socket.socket) -> bool:
        """Tell whether the daemon answers the hello on the connection `end` in time.

        Without a time limit, a daemon that hangs would keep this process from reaping its guards,
        and from ending.
        """
        until = time.monotonic() + _HELLO_TIMEOUT
        while time.monotonic() < until:
            if self._wait(end, _RETRY):
                return True
        return False

    def _fork(self, connection: socket.socket) -> None:
        try:
            pid = os.fork()
        except OSError:
            return
        if pid:
            self._guards.add(pid)
            return
        status = 1
        try:
            os.close(self._alive)
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0)
            adopt_orphans()
            _guard(connection, self._life)
            status = 0
        finally:
            kill_below()
            # End only this forked process, without running the `finally` blocks of the runner.
            os._exit(status)


def _is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


def _line(connection: socket.socket) -> bytes:
    """Return the next line that arrives on `connection`.

    Raises:
        ValueError: the line is too long, or the connection ended before the line did.
    """
    line = bytearray()
    # Byte by byte, because other code reads what comes after the line.
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        line += part
        if not part or len(line) > MOST_ORDER_BYTES:
            raise ValueError("no line")
    return bytes(line)


def _guard(connection: socket.socket, life: int) -> None:
    """Start the server that the order on `connection` describes, and serve that connection.

    It returns when the server, the connection or the runner has ended. `life` is a descriptor that
    becomes readable when the runner has ended.
    """
    connection.settimeout(_HELLO_TIMEOUT)
    try:
        order = json.loads(_line(connection))
        server = _started(order)
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        _send_all(connection, b"f", str(error).encode("utf-8", "replace")[:1000])
        return
    _send_all(connection, b"s", b"")
    connection.setblocking(False)
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    guard = Guard(connection, (life, woken), server)
    with contextlib.suppress(OSError):
        guard.serve()
    server.kill()
    kill_below()
    connection.setblocking(True)
    connection.settimeout(1.0)
    _send_all(connection, b"g", b"")


def _started(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    argv = [str(each) for each in order["argv"]]
    env = environment(os.environ, {str(k): str(v) for k, v in order["env"].items()})
    cwd = str(order["cwd"])
    if not os.path.isdir(cwd):  # noqa: PTH112 - a name may be too long for Path
        raise OSError(f"there is no folder {cwd}")
    return subprocess.Popen(
        argv,
        env=env,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
    )


def _send_all(connection: socket.socket, kind: bytes, payload: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(HEAD.pack(kind, len(payload)) + payload)


class Guard:
    """Carries the input and output of one server over a connection to the daemon.

    It ends when the daemon, the runner or the server is gone.
    """

    def __init__(
        self, connection: socket.socket, ends: tuple[int, int], server: subprocess.Popen[bytes]
    ) -> None:
        """Create the guard of `server`.

        `ends` are two descriptors: one becomes readable when the runner has ended, the other when a
        child process has.
        """
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        self._connection = connection
        self._life, self._woken = ends
        self._server = server
        self._stdin = server.stdin.fileno()
        os.set_blocking(self._stdin, False)
        self._outputs = {server.stdout.fileno(): b"o", server.stderr.fileno(): b"e"}
        self._read = bytearray()
        self._unread = bytearray()
        self._out = bytearray()
        self._is_closing = False
        self._is_over = False

    def serve(self) -> None:
        """Carry input and output until the daemon, the runner or the server is gone."""
        while not self._is_over:
            self._turn(_LOOK)
            if self._server.poll() is not None:
                self._finish()
                return

    def _turn(self, timeout: float) -> None:
        connection = self._connection.fileno()
        readers = [connection, self._life, self._woken]
        if len(self._out) < _PAUSE_BYTES:
            readers += self._outputs
        writers = [self._stdin] if self._unread else []
        writers += [connection] if self._out else []
        ready, writable, _ = select.select(readers, writers, [], timeout)
        if self._life in ready:
            self._is_over = True
            return
        if self._woken in ready:
            os.read(self._woken, 4096)
        if connection in writable:
            sent = self._connection.send(self._out[:MOST_PAYLOAD_BYTES])
            del self._out[:sent]
        if self._stdin in writable:
            self._feed()
        for fd in ready:
            if fd in self._outputs:
                self._take(fd)
        if connection in ready:
            self._receive()

    def _take(self, fd: int) -> None:
        data = os.read(fd, MOST_PAYLOAD_BYTES)
        if data:
            self._put(self._outputs[fd], data)
        else:
            del self._outputs[fd]

    def _feed(self) -> None:
        try:
            sent = os.write(self._stdin, self._unread[:MOST_PAYLOAD_BYTES])
        except BlockingIOError:
            return
        except OSError:
            # The server has closed its input. It may go on running.
            self._unread.clear()
            return
        del self._unread[:sent]
        self._close_input()

    def _close_input(self) -> None:
        if self._is_closing and not self._unread and self._server.stdin is not None:
            with contextlib.suppress(OSError):
                self._server.stdin.close()

    def _receive(self) -> None:
        data = self._connection.recv(MOST_PAYLOAD_BYTES)
        if not data:
            self._is_over = True
            return
        self._read += data
        while len(self._read) >= HEAD.size and not self._is_over:
            kind, size = HEAD.unpack_from(self._read)
            if size > MOST_PAYLOAD_BYTES:
                self._is_over = True
            elif len(self._read) < HEAD.size + size:
                return
            else:
                payload = bytes(self._read[HEAD.size : HEAD.size + size])
                del self._read[: HEAD.size + size]
                self._on_frame(kind, payload)

    def _on_frame(self, kind: bytes, payload: bytes) -> None:
        if kind == b"i" and not self._is_closing:
            self._unread += payload
            if len(self._unread) > MOST_UNREAD_BYTES:
                self._put(b"e", b"it does not read its input\n")
                self._is_over = True
        elif kind == b"c":
            self._is_closing = True
            self._close_input()
        elif kind == b"t":
            for pid in descendants(os.getpid()) or [self._server.pid]:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
        else:
            self._is_over = True

    def _finish(self) -> None:
        """Send the last output of a server that has ended, and how it ended."""
        until = time.monotonic() + _LAST_OUTPUT
        while self._outputs and time.monotonic() < until and not self._is_over:
            # A process that the server left behind may keep the output open. It is not waited for.
            if not select.select(list(self._outputs), [], [], 0)[0] and not self._out:
                break
            self._turn(0.05)
        self._put(b"x", b"%d" % self._server.returncode)
        while self._out and time.monotonic() < until + _KILL_TIMEOUT and not self._is_over:
            self._outputs.clear()
            self._turn(0.05)

    def _put(self, kind: bytes, payload: bytes) -> None:
        self._out += HEAD.pack(kind, len(payload)) + payload
