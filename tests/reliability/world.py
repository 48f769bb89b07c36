"""A real daemon with hostile servers beside an honest one, and sessions on its socket.

What a test asks of every one of them: the daemon lives on, and the honest server answers.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whole_daemon import Home, pids_with, wait_for

HONEST_SERVER = Path(__file__).parent / "honest_server.py"
PATIENCE = 60.0
OF_MCP = "io.modelcontextprotocol"
MIB = 1024 * 1024
HONEST_SECONDS = 2.0
"""For one call of the honest session, on a machine with a core to spare."""
MOST_RSS = 300 * MIB


class Session:
    """One MCP session on the daemon's socket, line by line; every message is kept."""

    def __init__(
        self,
        path: str,
        key: str,
        folder: Path,
        capabilities: Mapping[str, Any] | None = None,
        *,
        is_stateless: bool = False,
        client: str = "test-editor",
    ) -> None:
        self.key = key
        self.heard: list[dict[str, Any]] = []
        """Notifications and requests of the daemon's, in their order."""
        self.heard_lines: list[bytes] = []
        """The same, as they were written."""
        self.answers: dict[int | str, list[dict[str, Any]]] = {}
        self.lines: dict[int | str, bytes] = {}
        """The last answer to each request, as it was written."""
        self._changed = threading.Condition()
        self._meta: dict[str, Any] = {}
        self._is_over = False
        self._is_deaf = False
        self._last_id = 1000
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb", buffering=1 << 20)
        hello = {
            "capd": "hello",
            "protocol": 1,
            "role": "mcp",
            "client": {"name": client},
            "cwd": str(folder),
            "session": key,
        }
        self.write(hello)
        welcome = json.loads(self._file.readline())
        assert welcome["capd"] == "welcome", welcome
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        info = {"name": client, "version": "1"}
        if is_stateless:
            self._meta = {
                f"{OF_MCP}/protocolVersion": "2026-07-28",
                f"{OF_MCP}/clientInfo": info,
                f"{OF_MCP}/clientCapabilities": capabilities or {},
            }
            self.answer(self.ask("server/discover", {}))
            return
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities or {},
            "clientInfo": info,
        }
        self.answer(self.ask("initialize", params))
        self.tell("notifications/initialized")

    def write(self, message: Mapping[str, Any]) -> None:
        self._socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params or {}})

    def ask(
        self, method: str, params: Mapping[str, Any], request_id: int | str | None = None
    ) -> int | str:
        """Send a request and return its id."""
        if request_id is None:
            self._last_id += 1
            request_id = self._last_id
        if self._meta:
            params = {**params, "_meta": {**self._meta, **params.get("_meta", {})}}
        self.write({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return request_id

    def answer(self, request_id: int | str, patience: float = PATIENCE) -> dict[str, Any]:
        """Wait for the next answer to a request and take it."""
        with self._changed:
            self._changed.wait_for(lambda: self.answers.get(request_id) or self._is_over, patience)
            assert self.answers.get(request_id), f"{self.key}: no answer to {request_id!r}"
            return self.answers[request_id].pop(0)

    def begin(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        request_id: int | str | None = None,
        token: str = "",
    ) -> int | str:
        """Send a call and return its id."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments or {}}
        if token:
            params["_meta"] = {"progressToken": token}
        return self.ask("tools/call", params, request_id)

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a call."""
        return self.answer(self.begin(tool, arguments))

    def said(self, tool: str, x: str) -> str:
        """Return the text that a tool answers with."""
        return text_of(self.call(tool, {"x": x}))

    def tools(self) -> list[str]:
        result = self.answer(self.ask("tools/list", {}))["result"]
        return [tool["name"] for tool in result["tools"]]

    def wait_to_hear(
        self, look: Callable[[dict[str, Any]], bool], count: int = 1, patience: float = PATIENCE
    ) -> None:
        """Wait until the daemon has sent `count` messages of its own."""
        with self._changed:
            enough = self._changed.wait_for(lambda: sum(map(look, self.heard)) >= count, patience)
            assert enough, f"{self.key} heard only {self.heard[-20:]}"

    def stop_reading(self) -> None:
        """Stop reading the daemon's output."""
        self._is_deaf = True
        # What it reads at this moment is the last.
        self.ask("ping", {})

    def leave(self) -> None:
        """End the session on purpose."""
        with contextlib.suppress(OSError):
            self.write({"capd": "goodbye"})
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reading.join()
        self._file.close()
        self._socket.close()

    def _read(self) -> None:
        try:
            for line in self._file:
                if self._is_deaf:
                    return
                message = json.loads(line)
                with self._changed:
                    if "method" in message or "capd" in message:
                        self.heard.append(message)
                        self.heard_lines.append(line)
                    else:
                        self.answers.setdefault(message["id"], []).append(message)
                        self.lines[message["id"]] = line
                    self._changed.notify_all()
        except (OSError, ValueError):
            # Closed by `leave`.
            pass
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class World:
    """A daemon with hostile servers and an honest one."""

    def __init__(self, home: Home, evil_server: list[str]) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None
        self._evil_server = evil_server
        self._sessions: list[Session] = []
        self._neighbour: Session | None = None
        self.out = home.folder / "out"
        """What a hostile server writes down of itself."""

    def evil(
        self,
        modes: str,
        *options: str,
        name: str = "evil",
        scope: str = "",
        timeout: int | None = None,
    ) -> None:
        """Define a hostile server; `timeout` and `scope` are its definition's."""
        argv = [*self._evil_server, "--mode", modes, "--tag", self.home.tag, "--out", str(self.out)]
        self.home.capability(name, [*argv, *options])
        self._define(name, scope, timeout)

    def honest(self, name: str, tools: str = "echo", *, scope: str = "") -> None:
        """Define an honest server."""
        argv = [sys.executable, "-I", "-S", str(HONEST_SERVER), name, tools, self.home.tag]
        self.home.capability(name, argv)
        self._define(name, scope, None)

    def _define(self, name: str, scope: str, timeout: int | None) -> None:
        file = self.home.folder / "tap/capabilities" / name / "default.toml"
        more = f"scope = {json.dumps(scope)}\n" if scope else ""
        more += f"timeout_seconds = {timeout}\n" if timeout else ""
        file.write_text(file.read_text() + more)

    def start(self, accepts: Sequence[str] = ()) -> None:
        """Start the daemon, and a session that uses the honest server.

        What the servers of `accepts` define is accepted, as a person does it.
        """
        self.honest("neighbour")
        self.process = self.home.start()
        self.open_neighbour()
        for name in accepts:
            accepted = self.home.at_terminal("trust", "definitions", name, "--accept", typed="y\n")
            assert accepted.returncode == 0, accepted.stdout
        if accepts:
            assert self._neighbour is not None
            wait_for(lambda: "neighbour__echo" in self._neighbour_tools())

    def open_neighbour(self) -> None:
        """Open the session that uses the honest server."""
        self._neighbour = self.session("neighbour", "neighbour")

    def _neighbour_tools(self) -> list[str]:
        assert self._neighbour is not None
        return self._neighbour.tools()

    def session(self, key: str, *on: str, folder: Path | None = None, **options: Any) -> Session:
        """Open a session with some capabilities on."""
        session = Session(self.home.socket, key, folder or self.home.folder, **options)
        self._sessions.append(session)
        for name in on:
            answer = self.enable(key, name)
            assert answer["ok"], answer
        return session

    def enable(self, key: str, name: str) -> dict[str, Any]:
        return self.home.ask("enable", session=key, name=name)

    def ask_neighbour(self, x: str = "there?") -> None:
        """Call the honest server."""
        assert self._neighbour is not None
        said = self._neighbour.said("neighbour__echo", x)
        assert said.startswith("neighbour echo "), said
        assert said.endswith(f" {x}"), said

    @contextlib.contextmanager
    def beside_an_honest_session(self) -> Iterator["Honest"]:
        """Keep calling the honest server; check at the end that no call was slow."""
        honest = Honest(self)
        honest.thread.start()
        try:
            yield honest
        finally:
            honest.is_over.set()
            honest.thread.join(PATIENCE)
        assert honest.problem is None, honest.problem
        assert honest.calls
        # Others may have the machine as well.
        load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert max(honest.calls) <= HONEST_SECONDS * load, sorted(honest.calls)[-5:]
        assert self.most_rss() <= MOST_RSS, self.most_rss()

    def most_rss(self) -> int:
        """Return the most bytes that the daemon ever had in memory."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def check_unharmed(self) -> None:
        """Check that the daemon and the honest server still work."""
        if self.process is None:
            return
        assert self.process.poll() is None, self.home.log()[-4000:]
        assert self._neighbour is not None
        self.ask_neighbour()
        unexpected = [m for m in self._neighbour.heard if m.get("method") != LIST_CHANGED]
        assert unexpected == [], unexpected

    def kill_daemon(self) -> None:
        """Kill the daemon's process."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def close(self) -> None:
        for session in self._sessions:
            session.leave()
        self._sessions.clear()

    def server(self, name: str) -> dict[str, Any]:
        """Return the status of the server of this name."""
        entries = self.home.ask("servers")["servers"]
        return next(entry for entry in entries if entry["name"] == name)

    def pid(self, name: str) -> int:
        return int(wait_for(lambda: self.server(name)["pid"]))

    def evil_pids(self) -> list[int]:
        """Return the processes of hostile servers, without the guards above."""
        script = os.fsencode(self._evil_server[-1])
        found = []
        for pid in pids_with(self.home.tag):
            with contextlib.suppress(OSError):
                if script in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    found.append(pid)
        return found

    def log(self) -> str:
        return self.home.log()


class Honest:
    """Calls of the honest session, one after the other."""

    def __init__(self, world: World) -> None:
        self.calls: list[float] = []
        """How many seconds each took."""
        self.is_over = threading.Event()
        self.problem: Exception | None = None
        self.thread = threading.Thread(target=self._call, args=(world,), daemon=True)

    def _call(self, world: World) -> None:
        try:
            while not self.is_over.is_set() or not self.calls:
                began = time.monotonic()
                world.ask_neighbour()
                self.calls.append(time.monotonic() - began)
                self.is_over.wait(0.02)
        except Exception as error:  # noqa: BLE001 - the test's own thread tells of it
            self.problem = error


@contextlib.contextmanager
def world_of_its_own(
    evil_server: Sequence[str] = (), home_in: Callable[[Path], Home] = Home
) -> Iterator[World]:
    """Make a world in a new folder: unharmed at its end, when nothing of it is left."""
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    made = World(home_in(folder), list(evil_server))
    try:
        yield made
        made.check_unharmed()
        made.close()
        made.home.close()
    finally:
        made.close()
        for process in made.home.processes:
            process.kill()
            process.wait()
        for pid in pids_with(made.home.tag):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


LIST_CHANGED = "notifications/tools/list_changed"


def text_of(answer: Mapping[str, Any]) -> str:
    """Return the text of a call's answer."""
    return str(answer["result"]["content"][0]["text"])


def outcome(answer: Mapping[str, Any]) -> str:
    """Return how a call ended: `result`, or capd's word for it."""
    result = answer["result"]
    if not result.get("isError"):
        return "result"
    return str(result["_meta"]["capd/outcome"])


class Memory:
    """How much a process has grown at its highest, since this was made."""

    def __init__(self, process: subprocess.Popen[bytes] | None) -> None:
        assert process is not None
        self._folder = Path(f"/proc/{process.pid}")
        # Forgets the highest so far. Of a process that shows itself to nobody else only root may
        # do so: then what grew is at most what is said.
        with contextlib.suppress(PermissionError):
            (self._folder / "clear_refs").write_text("5")
        self._before = self._read("VmRSS")

    def _read(self, key: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024

    @property
    def grown(self) -> int:
        """Bytes between then and the highest point since."""
        return max(0, self._read("VmHWM") - self._before)
