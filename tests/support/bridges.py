"""Bridges in tests: the daemon, the command, and a far side that is played line by line."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from capd_client.bridge.runner import HEAD
from capd_client.control import Control
from whole_daemon import PATIENCE, Home, wait_for


class Far:
    """A connection to a bridge's socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("rb")
        self._last_id = 0
        self.asked: list[dict[str, Any]] = []
        """What the daemon asked of this client."""
        self.answers: dict[str, Any] = {}
        """The results with which it is answered, by method; others are errors."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def write(self, message: Any) -> None:
        self.send(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def take(self, size: int) -> bytes:
        """Return the next bytes; fewer if the daemon has closed the connection."""
        return self._lines.read(size)

    def read(self) -> dict[str, Any]:
        """Return the next line; an empty object if the daemon has closed the connection."""
        try:
            line = self._lines.readline()
        except ConnectionError:
            return {}
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def hello(self, **members: Any) -> dict[str, Any]:
        """Send a hello and return the answer to it."""
        client = {"name": "far-editor"}
        with contextlib.suppress(BrokenPipeError):
            self.write({"capd": "hello", "protocol": 1, "role": "mcp", "client": client, **members})
        return self.read()

    def initialize(self, **capabilities: Any) -> dict[str, Any]:
        """Do the handshake; return its result."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "far-editor", "version": "1"},
        }
        answer = self.ask("initialize", params)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        result: dict[str, Any] = answer["result"]
        return result

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """Return the response to a request; what the daemon asks meanwhile is answered."""
        self._last_id += 1
        request = {"id": self._last_id, "method": method, "params": params or {}}
        self.write({"jsonrpc": "2.0", **request})
        while message := self.read():
            if "method" in message and "id" in message:
                self.asked.append(message)
                result = self.answers.get(message["method"])
                outcome = {"result": result} if result else {"error": {"code": -1, "message": "no"}}
                self.write({"jsonrpc": "2.0", "id": message["id"], **outcome})
            elif message.get("id") == self._last_id:
                return message
        raise EOFError(method)

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the result of a tool call, or its error as a result that is one."""
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        if "error" in answer:
            text = {"type": "text", "text": answer["error"]["message"]}
            return {"isError": True, "content": [text]}
        return {"isError": False, **answer["result"]}

    def said(self, name: str, /, **arguments: Any) -> str:
        content = self.call(name, **arguments)["content"]
        return "".join(str(each.get("text", "")) for each in content)

    def tools(self) -> list[str]:
        return [each["name"] for each in self.ask("tools/list")["result"]["tools"]]


class Bridge:
    """A bridge that this process holds open."""

    def __init__(self, home: Home, name: str = "box") -> None:
        self.name = name
        self._control = Control(home.socket)
        try:
            opened = self._control.call("bridge_open", {"name": name, "target": "a test"})
        except BaseException:
            self._control.close()
            raise
        self.path: str = opened["socket"]
        self.credential: str = opened["credential"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def far(self) -> Far:
        return Far(self.path)

    def session(self, key: str = "", **capabilities: Any) -> Far:
        """Connect a session that behaves, its handshake done."""
        far = self.far()
        welcome = far.hello(session=key, credential=self.credential)
        assert welcome["capd"] == "welcome", welcome
        far.initialize(**capabilities)
        return far

    def close(self) -> None:
        self._control.close()
        wait_for(lambda: not os.path.exists(self.path))  # noqa: PTH110 - a socket's path


def configured(home: Home, text: str) -> None:
    folder = home.folder / "config"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(text)


def start_with_token(home: Home, config: str, token: str, *, capabilities: int) -> None:
    """Start a daemon with a configuration and the secret `API_TOKEN`; wait for its catalog."""
    configured(home, config)
    secrets = home.folder / "config" / "secrets.env"
    secrets.write_text(f"API_TOKEN={token}\n")
    secrets.chmod(0o600)
    home.start()
    wait_for(lambda: len(home.ask("caps")["capabilities"]) == capabilities)


class BridgeCommand:
    """A running `capd bridge` command, up when the constructor returns."""

    def __init__(self, home: Home, *words: str) -> None:
        self.output = home.folder / "bridge.log"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "capd_client.entry", "bridge", *words],
                env=home.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        wait_for(self.is_up)

    def is_up(self) -> bool:
        text = self.output.read_text()
        assert self.process.poll() is None, text
        return "is up" in text

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


def bridged_capability(home: Home, name: str, journal: Path, python: str) -> None:
    """Define a capability on a server that reports its input and gets a token."""
    server = Path(__file__).parents[1] / "whole" / "bridged_server.py"
    home.capability(name, [python, "-I", str(server), str(journal), name, home.tag])
    definition = home.folder / "tap" / "capabilities" / name / "default.toml"
    env = 'env = { API_TOKEN = "{{ENV:API_TOKEN}}" }'
    definition.write_text(f"{definition.read_text()}{env}\n")


class Runner:
    """What starts servers over there, as a hostile program would be it: it is every server itself.

    Each order is answered by a thread, which calls `act` with the connection.
    """

    def __init__(self, path: str, credential: str, act: Callable[["FarEnd"], None]) -> None:
        self.orders: list[dict[str, Any]] = []
        self._path, self._credential, self._act = path, credential, act
        self._is_over = False
        self._ends: list[Far] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while not self._is_over:
                far = Far(self._path)
                self._ends.append(far)
                answer = far.hello(role="runner", credential=self._credential)
                if answer.get("capd") != "welcome":
                    return
                order = far.read()
                if not order:
                    return
                self.orders.append(order)
                threading.Thread(target=self._serve, args=(far,), daemon=True).start()

    def _serve(self, far: Far) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._act(FarEnd(far))

    def close(self) -> None:
        self._is_over = True
        for each in self._ends:
            each.close()
        self._thread.join()


class FarEnd:
    """The connection of one far server, in the frames of `capd_client.bridge.runner`."""

    def __init__(self, far: Far) -> None:
        self._far = far
        self._read = b""

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self._far.send(HEAD.pack(kind, len(payload)) + payload)

    def say(self, message: dict[str, Any]) -> None:
        """Write a line of the server."""
        self.send(b"o", json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the requests to the server until its input ends."""
        while (head := self._far.take(HEAD.size)) and len(head) == HEAD.size:
            kind, size = HEAD.unpack(head)
            payload = self._far.take(size)
            if kind != b"i":
                return
            *lines, self._read = (self._read + payload).split(b"\n")
            yield from map(json.loads, lines)

    def serve(self, called: Callable[["FarEnd", dict[str, Any]], None]) -> None:
        """Play a server with one tool, `echo`, whose calls `called` answers."""
        self.send(b"s")
        for request in self.lines():
            match request.get("method"):
                case "initialize":
                    info = {"name": "far", "version": "1"}
                    version = request["params"]["protocolVersion"]
                    result: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": info}
                    self.say(
                        {"id": request["id"], "result": {"protocolVersion": version, **result}}
                    )
                case "tools/list":
                    tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
                    self.say({"id": request["id"], "result": {"tools": tools}})
                case "tools/call":
                    called(self, request)
                case _ if "id" in request:
                    self.say({"id": request["id"], "result": {}})


def answered(end: FarEnd, request: dict[str, Any], text: str) -> None:
    """Answer a call with a text."""
    content = [{"type": "text", "text": text}]
    end.say({"id": request["id"], "result": {"content": content}})
