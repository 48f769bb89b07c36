"""Daemons of whole-system tests, forked from one process that has imported the daemon's code.

    test ──its environment, its folder, its log──> this program ──fork──> daemon
         <──pid, and later how it ended──────────

Importing takes six tenths of the processor time of a daemon's start, and each test would pay it
again. A forked daemon is the same from there on: it runs `capd.main.main(["daemon", "run"])`. What
comes before, up to the import, is left to tests that start `python -m capd daemon run`
(tests/whole/test_first_turn.py, tests/clients, tests/reliability). The processes in which a forked
daemon counts tokens and reads files are forked likewise (`forked_scripts`).
"""

import atexit
import contextlib
import functools
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LARGEST_MESSAGE_BYTES = 1 << 20
_LOOK = 0.02
DAEMON = ["daemon", "run"]


def can_fork(environment: Mapping[str, str]) -> bool:
    """Tell whether a daemon with this environment may be forked instead of started.

    What Python or the loader is told, it is told when it starts. On macOS, Apple's libraries do
    not survive a fork without an exec.
    """
    return sys.platform == "linux" and _for_starts(environment) == _for_starts(os.environ)


def _for_starts(environment: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in environment.items() if k.startswith(("PYTHON", "LD_"))}


def _of_daemon(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what is left of an environment by `python -m capd daemon run`."""
    return {k: v for k, v in environment.items() if not k.startswith("PYTHON")}


class ForkedDaemon(subprocess.Popen[bytes]):
    """A daemon whose parent is the program that forked it. It has no pipes."""

    def __init__(self, pid: int, starter: "Starter") -> None:
        self.args = DAEMON
        self.pid = pid
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | Any = None
        self._starter = starter

    def poll(self) -> int | None:
        """Return how it ended; None if it runs."""
        if self.returncode is None:
            self.returncode = self._starter.ended(self.pid)
        code: int | None = self.returncode
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended, when it has."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if give_up_at is not None and time.monotonic() > give_up_at:
                raise subprocess.TimeoutExpired(DAEMON, timeout or 0.0)
            time.sleep(_LOOK)
        return code


class Starter:
    """The program that forks daemons, and its reports on those that ended."""

    def __init__(self) -> None:
        # Not at the top: the program that forks has this file alone.
        from support.forked_scripts import own_process_command

        commands = [own_process_command(kind) for kind in ("counting", "parsing")]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._program = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno()), json.dumps(commands)],
                env=_of_daemon(os.environ),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._channel = ours
        self._turn = threading.Lock()
        self._codes: dict[int, int] = {}

    def start(self, environment: Mapping[str, str], folder: Path, log: int) -> ForkedDaemon:
        """Fork a daemon that works in `folder`, and whose standard error is `log`."""
        request = json.dumps([_of_daemon(environment), str(folder)]).encode()
        with self._turn:
            socket.send_fds(self._channel, [request], [log])
            while "pid" not in (answer := self._answer()):
                pass
        return ForkedDaemon(answer["pid"], self)

    def ended(self, pid: int) -> int | None:
        """Return the exit status of a daemon; None if it runs."""
        with self._turn, contextlib.suppress(BlockingIOError):
            self._channel.setblocking(False)
            try:
                while pid not in self._codes:
                    self._answer()
            finally:
                self._channel.setblocking(True)
        return self._codes.get(pid)

    def close(self) -> None:
        """End the program; daemons that still run go on."""
        self._channel.close()
        self._program.wait()

    def _answer(self) -> dict[str, int]:
        said = self._channel.recv(_LARGEST_MESSAGE_BYTES)
        assert said, "the program that forks daemons is gone"
        answer: dict[str, int] = json.loads(said)
        if "ended" in answer:
            self._codes[answer["ended"]] = answer["code"]
        return answer


@functools.cache
def starter() -> Starter:
    """Return the one of this process; it ends with it."""
    made = Starter()
    atexit.register(made.close)
    return made


def _is_daemon(channel: socket.socket) -> bool:
    """Fork until the tests are gone, and return False; return True in each child."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wakes)
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                os.read(woken, 4096)
                _tell_ended(channel)
            if channel in ready:
                request, logs, *_ = socket.recv_fds(channel, _LARGEST_MESSAGE_BYTES, 1)
                if not request:
                    return False
                pid = os.fork()
                if not pid:
                    break
                os.close(logs[0])
                channel.send(json.dumps({"pid": pid}).encode())
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(logs[0], 2)
    for each in (woken, wakes, logs[0]):
        os.close(each)
    channel.close()
    environment, folder = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return True


def _tell_ended(channel: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError, BrokenPipeError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            code = os.waitstatus_to_exitcode(status)
            channel.send(json.dumps({"ended": pid, "code": code}).encode())


def main() -> int:
    """Import the daemon, and fork a daemon process for each request."""
    gc.disable()
    from capd import lazy_dataclasses

    # One process compiles the methods for all daemons.
    lazy_dataclasses.install = lambda: None
    from capd.__main__ import _imported

    command = _imported(DAEMON)
    # What each daemon imports at its start or with its first session.
    import watchfiles._rust_notify  # noqa: F401

    import capd.actors.control.connection
    import capd.actors.gateway.bridges  # noqa: F401
    from capd.adapters.client_table import client_table
    from capd.adapters.parsing import parser
    from capd.adapters.tokens import counted_texts

    counting, parsing = json.loads(sys.argv[2])
    counted_texts.command = lambda: counting
    parser.command = lambda longest, idle: [*parsing, str(longest), str(idle)]

    # What it parses is the same for each of them.
    client_table()
    gc.freeze()
    gc.enable()
    if _is_daemon(socket.socket(fileno=int(sys.argv[1]))):
        status = command()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # Without what takes a third of the time of a daemon that only starts and stops: freeing
        # each object of each module.
        os._exit(status)
    return 0


if __name__ == "__main__":
    sys.exit(main())
