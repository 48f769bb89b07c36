"""The far side of a bridge, line by line: what a hostile program there can send."""

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any, Self

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

    def read(self) -> dict[str, Any]:
        """Return the next line; an empty object where the daemon has closed."""
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


def bridged_capability(home: Home, name: str, journal: Path, python: str) -> None:
    """Define a capability on the server that says what reaches it, and that gets a token."""
    server = Path(__file__).parents[1] / "whole" / "bridged_server.py"
    home.capability(name, [python, "-I", str(server), str(journal), name, home.tag])
    definition = home.folder / "tap" / "capabilities" / name / "default.toml"
    env = 'env = { API_TOKEN = "{{ENV:API_TOKEN}}" }'
    definition.write_text(f"{definition.read_text()}{env}\n")
