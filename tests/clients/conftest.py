"""A daemon that the test plays, and hosts that speak to the shim."""

import json
import os
import queue
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from capd_client.mcp_registry import process as registry_process
from support import forked_scripts

from .patients import Patient

CLIENTS = Path(__file__).parents[2] / "clients"
SHIM = CLIENTS / "capd_client" / "launch.py"
PATIENT = 20.0
"""How long a test waits for something that is bound to come; nobody waits it out."""

SILENCE: dict[str, Any] = {"silence": True}
"""An answer that is never given."""
Answer = dict[str, Any] | Callable[[dict[str, Any]], Any]


class Link:
    """The daemon's end of one connection."""

    def __init__(self, sock: socket.socket, journal: list[bytes]) -> None:
        self._sock = sock
        self._sock.settimeout(PATIENT)
        self._buffer = b""
        self._journal = journal

    def fileno(self) -> int:
        return self._sock.fileno()

    def read_line(self) -> bytes:
        """Return the next line without its end; empty where the client hung up."""
        pieces = [self._buffer]
        while b"\n" not in pieces[-1]:
            chunk = self._sock.recv(1 << 20)
            if not chunk:
                return b""
            pieces.append(chunk)
        line, _, self._buffer = b"".join(pieces).partition(b"\n")
        self._journal.append(line)
        return line

    def read(self) -> dict[str, Any]:
        line = self.read_line()
        return json.loads(line) if line else {}

    def write(self, *messages: dict[str, Any]) -> None:
        self.write_bytes(b"".join(encode(each) for each in messages))

    def write_bytes(self, data: bytes) -> None:
        self._sock.sendall(data)

    def welcome(self, *, pid: int = 77, **more: Any) -> dict[str, Any]:
        """Read the hello, welcome the client; return the hello."""
        hello = self.read()
        self.write(welcome(pid=pid, **more))
        return hello

    def close(self) -> None:
        # Closing alone does not wake a thread that reads.
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class FakeDaemon:
    """A thread that accepts on a real Unix socket and keeps a journal of the lines it got.

    With `answers` it serves each connection by itself; else the test plays the daemon on what
    `accept` returns.
    """

    def __init__(self, path: Path, answers: dict[str, Answer] | None = None) -> None:
        self.path = path
        self.answers = answers
        self.journal: list[bytes] = []
        self.refusal: dict[str, Any] | None = None
        self._links: queue.Queue[Link] = queue.Queue()
        self._all: list[Link] = []
        self._threads: list[threading.Thread] = []
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._start(self._accept)

    def accept(self) -> Link:
        """Return the next connection."""
        return self._links.get(timeout=PATIENT)

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests that came, without their ids."""
        lines = [json.loads(line) for line in self.journal]
        return [
            {"method": line["method"], "params": line.get("params", {})}
            for line in lines
            if "method" in line
        ]

    def stop_listening(self) -> None:
        """Refuse all new connections."""
        self.path.unlink(missing_ok=True)
        # Closing alone does not wake a thread that sits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self.stop_listening()
        # A connection that it has just accepted must be among those that are closed.
        self._threads[0].join(PATIENT)
        for link in self._all:
            link.close()
        for thread in self._threads:
            thread.join(PATIENT)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            link = Link(sock, self.journal)
            self._all.append(link)
            if self.answers is None:
                self._links.put(link)
            else:
                self._start(self._serve, link, self.answers)

    def _serve(self, link: Link, answers: dict[str, Answer]) -> None:
        try:
            hello = link.read()
            if hello and self.refusal is not None:
                link.write(self.refusal)
                link.close()
                return
            if hello:
                link.write(welcome(session="" if hello["role"] == "control" else "s-1"))
            while request := link.read():
                answer = answers.get(request["method"], {})
                if "id" not in request or answer is SILENCE:
                    continue
                if callable(answer):
                    answer = answer(request.get("params", {}))
                link.write({"jsonrpc": "2.0", "id": request["id"], **_outcome(answer)})
                for event in answer.get("then", []):
                    link.write({"jsonrpc": "2.0", "method": "event", "params": event})
                if "then" in answer:
                    link.close()
                    return
        except OSError:
            return


def _outcome(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        return {"error": answer["error"]}
    # A result of `call` has a member `result` itself.
    return {"result": answer if "schema" in answer else answer.get("result", answer)}


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def welcome(
    *,
    pid: int = 77,
    session: str = "zed-1",
    resume: str = "token-1",
    resumed: bool = False,
    want_env: tuple[str, ...] = (),
) -> dict[str, Any]:
    return {
        "capd": "welcome",
        "protocol": 1,
        "daemon": {"version": "0.1.0", "pid": pid},
        "session": session,
        "resume": resume,
        "resumed": resumed,
        "want_env": list(want_env),
    }


class Host:
    """An MCP host with the shim as its child."""

    def __init__(
        self, command: list[str], env: dict[str, str], cwd: Path, pass_fds: tuple[int, ...] = ()
    ) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
        )
        self._buffer = b""

    @property
    def stdin(self) -> int:
        assert self.process.stdin is not None
        return self.process.stdin.fileno()

    @property
    def stdout(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def write(self, *messages: dict[str, Any]) -> None:
        self.write_bytes(b"".join(encode(each) for each in messages))

    def write_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.stdin, view) :]

    def read_line(self) -> bytes:
        """Return the next line without its end; empty where the shim closed its output."""
        pieces = [self._buffer]
        while b"\n" not in pieces[-1]:
            ready, _, _ = select.select([self.stdout], [], [], PATIENT)
            assert ready, f"nothing from the shim within {PATIENT} s"
            chunk = os.read(self.stdout, 1 << 20)
            if not chunk:
                return b""
            pieces.append(chunk)
        line, _, self._buffer = b"".join(pieces).partition(b"\n")
        return line

    def read(self) -> dict[str, Any]:
        line = self.read_line()
        return json.loads(line) if line else {}

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def hang_up(self) -> int:
        """Close the shim's input as an editor that quits; return the exit code."""
        self.end_input()
        return self.process.wait(PATIENT)

    def stderr(self) -> str:
        """Return the standard error of the shim, which has ended."""
        self.process.wait(PATIENT)
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A CAPD_HOME of the test's own."""
    folder = tmp_path / "capd"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(autouse=True)
def forked_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `capd registry` forked; tests/whole/test_registry_servers.py starts it as users do."""
    if sys.platform == "linux":
        command = partial(forked_scripts.own_process_command, "registry")
        monkeypatch.setattr(registry_process, "command", command)


@pytest.fixture
def patient() -> Iterator[Patient]:
    """A user for `capd doctor` to look at."""
    # A socket's path has a limit that pytest's own folder may be over.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    yield Patient(folder)
    shutil.rmtree(folder)


@pytest.fixture
def socket_at(home: Path) -> Path:
    return home / "run" / "capd.sock"


@pytest.fixture
def daemon(socket_at: Path) -> Iterator[FakeDaemon]:
    """A daemon that the test plays."""
    fake = FakeDaemon(socket_at)
    yield fake
    fake.close()


@pytest.fixture
def start_daemon(socket_at: Path) -> Iterator[Callable[..., FakeDaemon]]:
    """Start further daemons on the socket, or one with answers."""
    started: list[FakeDaemon] = []

    def start(answers: dict[str, Answer] | None = None) -> FakeDaemon:
        started.append(FakeDaemon(socket_at, answers))
        return started[-1]

    yield start
    for fake in started:
        fake.close()


@pytest.fixture
def base_env(home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "CAPD_HOME": str(home),
        "CAPD_NO_START": "1",
        "CAPD_CLIENT": "zed",
    }


@pytest.fixture
def start_host(tmp_path: Path, base_env: dict[str, str]) -> Iterator[Callable[..., Host]]:
    """Start a host with the shim as an editor would."""
    started: list[Host] = []

    def start(
        *arguments: str,
        command: list[str] | None = None,
        env: dict[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> Host:
        whole = [sys.executable, "-I", "-S", str(SHIM)] if command is None else command
        environment = {**base_env, **(env or {})}
        started.append(Host([*whole, *arguments], environment, tmp_path, pass_fds))
        return started[-1]

    yield start
    for host in started:
        host.close()
