"""A minimal MCP host: starts a stdio server, sends requests, receives notifications.

`make run`, `capd install` (to test a hook) and whole-system tests use it in place of an editor.
"""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

PROTOCOL_VERSION = "2025-11-25"


class HostError(Exception):
    """The server did not answer as expected; the text says how."""


class McpHost:
    """A client of the MCP server that `command` starts, over its standard input and output.

    Raises:
        HostError: no answer within `timeout` seconds, or an error.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(env) if env is not None else None,
            cwd=cwd,
        )
        self._last_id = 0
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._notifications: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        """Return this host. Its server is ended at the end of the `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def initialize(self, name: str, timeout: float = 30.0) -> dict[str, Any]:
        """Complete the handshake as the client `name`; return the result of `initialize`.

        The server has `timeout` seconds to answer.
        """
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": name, "version": "1"},
        }
        result = self.ask("initialize", params, timeout)
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def ask(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float = 60.0
    ) -> dict[str, Any]:
        """Send the server a request for `method`, and return its result.

        Notifications that arrive meanwhile are kept. The server has `timeout` seconds to answer.
        """
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}}
        self._write(request)
        while True:
            message = self._next(f"an answer to {method}", timeout)
            if message.get("id") != self._last_id:
                self._notifications.append(message)
            elif "error" in message:
                raise HostError(f"{method}: {message['error'].get('message')}")
            else:
                return dict(message["result"])

    def tools(self) -> list[dict[str, Any]]:
        """Return the tools that the server lists now."""
        return list(self.ask("tools/list")["tools"])

    def call(
        self, name: str, arguments: Mapping[str, Any], timeout: float = 60.0
    ) -> dict[str, Any]:
        """Call the server's tool `name` with these arguments; return its result.

        The server has `timeout` seconds to answer.
        """
        return self.ask("tools/call", {"name": name, "arguments": dict(arguments)}, timeout)

    def wait_for(self, method: str, timeout: float = 30.0) -> dict[str, Any]:
        """Return the first notification of `method`: one that was kept, or the next to arrive.

        Wait for at most `timeout` seconds.
        """
        while True:
            for at, message in enumerate(self._notifications):
                if message.get("method") == method:
                    return self._notifications.pop(at)
            self._notifications.append(self._next(f"a notification {method}", timeout))

    def leave(self, timeout: float = 10.0) -> int:
        """Close the server's input, and return its exit code.

        After `timeout` seconds the server is killed.
        """
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise HostError(f"the server has closed its input: {error}") from None

    def _next(self, what: str, timeout: float) -> dict[str, Any]:
        try:
            message = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise HostError(f"no {what.removeprefix('an ')} within {timeout:g} s") from None
        if message is None:
            raise HostError(f"the server ended while {what} was waited for")
        return message

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self._lines.put(json.loads(line))
        except (OSError, ValueError):
            # `leave` has closed the output, or a line is not JSON. No further message can be read.
            pass
        self._lines.put(None)


def without_capd() -> dict[str, str]:
    """Return the process's environment without capd's own variables.

    A daemon can then be given another CAPD_HOME, and no other setting of the caller's.
    """
    return {k: v for k, v in os.environ.items() if not k.startswith("CAPD_")}
