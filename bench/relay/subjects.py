"""The live connections that are measured, each from the driver to the echo server.

A subject that cannot be installed, started or called becomes a line with the reason.
"""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.relay import peers, process_trees
from bench.relay.capd_home import CAPABILITY, CapdHome
from bench.relay.http_wire import HttpWire
from bench.relay.line_wire import LineWire, Wire, WireError
from bench.relay.running import Running, started

ANSWER_TIMEOUT = 20.0
_START_TIMEOUT = 30.0
_CONNECT_PAUSE = 0.002
_MODEL_PROCESS = "embedder"
DIRECT = "direct"
CAPD = "capd"
CAPD_SOCKET = "capd socket"


@dataclass(slots=True)
class Subject:
    """One row: a live session through some relay."""

    name: str
    language: str
    wire: Wire
    roots: list[int]
    tool: str
    wrap: Callable[[dict[str, Any]], dict[str, Any]]
    initialize_ms: float = 0.0
    first_call_ms: float = 0.0
    troubles: dict[str, str] = field(default_factory=dict)
    """Why a measure is missing."""
    _last_id: int = 100

    def tail(self, size: int, request_bytes: int) -> bytes:
        """Return the message of a call after its id. Calls of one kind differ only in the id."""
        arguments = {"size": size} | ({"text": "y" * request_bytes} if request_bytes else {})
        params = {"name": self.tool, "arguments": self.wrap(arguments)}
        return b',"method":"tools/call","params":' + json.dumps(params).encode() + b"}"

    def next_call(self, tail: bytes) -> tuple[int, bytes]:
        """Return an id that was never used, and the whole message with it."""
        self._last_id += 1
        return self._last_id, b'{"jsonrpc":"2.0","id":%d%s' % (self._last_id, tail)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask once, outside of all measures, and return the result."""
        deadline = time.monotonic() + ANSWER_TIMEOUT
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self.wire.send(json.dumps(request).encode(), deadline)
        while True:
            for line in self.wire.receive(deadline):
                message = json.loads(line)
                if message.get("id") == self._last_id and "method" not in message:
                    if "error" in message:
                        raise WireError(f"{method}: {message['error'].get('message', '')[:200]}")
                    return dict(message["result"])

    def relay_pids(self) -> list[int]:
        """Return the processes of the relay: neither the echo server nor capd's model."""
        return [
            pid
            for pid in process_trees.tree(self.roots)
            if not self._is_server(pid) and not is_model(pid)
        ]

    def model_pids(self) -> list[int]:
        return [pid for pid in process_trees.tree(self.roots) if is_model(pid)]

    def server_pids(self) -> list[int]:
        return [pid for pid in process_trees.tree(self.roots) if self._is_server(pid)]

    def _is_server(self, pid: int) -> bool:
        # A relay has the server's path among its own arguments; the server has nothing else.
        return process_trees.command_line(pid)[1:] == [str(peers.ECHO_SERVER)]


def is_model(pid: int) -> bool:
    return _MODEL_PROCESS in process_trees.command_line(pid)


def check_reply(line: bytes, message_id: int, size: int) -> bool:
    """Return whether `line` is the answer to the call; False for a request or notification.

    Raises:
        WireError: it answers another call, is an error, or has too short a result.
    """
    message = json.loads(line)
    if "method" in message or "capd" in message:
        return False
    if message.get("id") != message_id:
        raise WireError(f"an answer to {message.get('id')!r} where {message_id} was asked")
    if "error" in message:
        raise WireError(f"the call failed: {str(message['error'].get('message'))[:200]}")
    result = message["result"]
    text = "".join(each.get("text", "") for each in result["content"])
    if result.get("isError") or len(text) < size:
        raise WireError(f"the result is not what the server gave: {text[:200]}")
    return True


def open_peer(name: str, language: str, launch: peers.Launch, folder: Path, port: int) -> Subject:
    """Start a command and complete the handshake and a first call, taking the time of both.

    Raises:
        WireError: the command, the handshake or the call failed.
    """
    began_at = time.perf_counter()
    is_piped = launch.transport == "pipes"
    process = started(
        launch.argv, peers.environment(folder), folder, folder / "log", is_piped=is_piped
    )
    try:
        if is_piped:
            wire: Wire = LineWire(process.reads, process.writes)
        else:
            wire = _connected(process, launch, port)
        subject = Subject(name, language, wire, [process.pid], launch.tool, launch.wrap)
        _shake_hands(subject, began_at)
        _call_first(subject, began_at)
    except WireError as error:
        said = process.last_words()
        process_trees.end_trees([process.pid])
        raise WireError(f"{error}" + (f" ({said})" if said else "")) from None
    return subject


def open_capd(home: CapdHome, name: str) -> Subject:
    """Open a session through the shim, as an editor does, and switch the server on."""
    began_at = time.perf_counter()
    process = started(home.shim, home.env, home.folder, home.folder / "shim.log", is_piped=True)
    wire = LineWire(process.reads, process.writes)
    roots = [process.pid] + ([home.daemon.pid] if home.daemon else [])
    subject = Subject(name, "Python", wire, roots, f"{CAPABILITY}__echo", lambda each: each)
    _shake_hands(subject, began_at)
    _enable(subject)
    _call_first(subject, began_at)
    return subject


def open_capd_socket(
    home: CapdHome, name: str, session: str, *, is_enabled: bool = True
) -> Subject:
    """Open a session straight on the daemon's socket."""
    began_at = time.perf_counter()
    wire = home.connected(session, time.monotonic() + ANSWER_TIMEOUT)
    roots = [home.daemon.pid] if home.daemon else []
    subject = Subject(name, "Python", wire, roots, f"{CAPABILITY}__echo", lambda each: each)
    _shake_hands(subject, began_at)
    if is_enabled:
        _enable(subject)
        _call_first(subject, began_at)
    return subject


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _connected(process: Running, launch: peers.Launch, port: int) -> HttpWire:
    give_up_at = time.monotonic() + _START_TIMEOUT
    while True:
        try:
            return HttpWire(port, launch.path, give_up_at, is_sse=launch.transport == "sse")
        except WireError:
            if time.monotonic() > give_up_at or not process.is_alive:
                raise
            time.sleep(_CONNECT_PAUSE)


def _shake_hands(subject: Subject, began_at: float) -> None:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    give_up_at = time.monotonic() + _START_TIMEOUT
    while True:
        try:
            subject.ask("initialize", params)
        except WireError as error:
            # The port of an HTTP peer may be open before the server behind it is ready.
            if "connecting" not in str(error) or time.monotonic() > give_up_at:
                raise
            time.sleep(_CONNECT_PAUSE)
        else:
            break
    subject.initialize_ms = (time.perf_counter() - began_at) * 1000
    initialized = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    subject.wire.send(initialized, time.monotonic() + ANSWER_TIMEOUT)


def _call_first(subject: Subject, began_at: float) -> None:
    params = {"name": subject.tool, "arguments": subject.wrap({"size": 10})}
    give_up_at = time.monotonic() + _START_TIMEOUT
    while True:
        # Some answer the handshake first, and connect to their servers afterwards.
        try:
            result = subject.ask("tools/call", params)
            if not result.get("isError"):
                break
            trouble = str(result.get("content"))[:200]
        except WireError as error:
            trouble = str(error)
            if "tools/call" not in trouble:
                raise
        if time.monotonic() > give_up_at:
            raise WireError(f"no call went through: {trouble}")
        time.sleep(_CONNECT_PAUSE)
    subject.first_call_ms = (time.perf_counter() - began_at) * 1000


def _enable(subject: Subject) -> None:
    asked = {"name": "capability", "arguments": {"action": "enable", "name": CAPABILITY}}
    result = subject.ask("tools/call", asked)
    if result.get("isError"):
        raise WireError(f"capd did not enable the server: {str(result.get('content'))[:300]}")
