"""An MCP client on a command's standard streams, in either protocol generation."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

PATIENCE = 120.0
"""Seconds to wait for an answer: a package runner may have to download the server first."""
_META = "io.modelcontextprotocol/"
_LIST_CHANGED = "notifications/tools/list_changed"

Follows = Literal["at once", "after results", "each turn", "never"]
"""When a changed list reaches the model. `after results` is Claude Code: the first request of a
turn still has the list of the turn before (docs/design/clients.md)."""
Tool = dict[str, Any]


class ClientError(Exception):
    """The server did not do what was requested; the text says what."""


class McpClient:
    """A connection to one server; `tools` is the list that the model would get now."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        folder: Path,
        name: str,
        follows: Follows = "never",
        is_stateless: bool = False,
    ) -> None:
        self.tools: list[Tool] = []
        self.instructions = ""
        self._follows = follows
        self._folder = folder
        self._info = {"name": name, "version": "1"}
        self._is_stateless = is_stateless
        self._news = threading.Condition()
        self._writing = threading.Lock()
        # One `tools/list` at a time: a second caller waits for the one under way.
        self._listing = threading.Lock()
        self._answers: dict[int, dict[str, Any]] = {}
        self._last_id = 0
        self._is_behind = self._is_over = self._has_results = False
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            cwd=folder,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def open(self) -> None:
        """Complete the handshake, where the generation has one, and list the tools."""
        if self._is_stateless:
            found = self.ask("server/discover")
        else:
            params = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}}
            found = self.ask("initialize", {**params, "clientInfo": self._info})
            self._write({"method": "notifications/initialized"})
        self.instructions = str(found.get("instructions") or "")
        self.tools = self._listed()

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of a request.

        Raises:
            ClientError: no answer, or an error.
        """
        number = self._sent(method, params or {})
        with self._news:
            self._news.wait_for(lambda: self._is_over or number in self._answers, PATIENCE)
            answer = self._answers.pop(number, None)
        if answer is None:
            raise ClientError(f"no answer to {method}; exit code {self._process.poll()}")
        if "error" in answer:
            raise ClientError(str(answer["error"].get("message")))
        return dict(answer["result"])

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a tool call; a refusal is a result too."""
        self._has_results = True
        try:
            return self.ask("tools/call", {"name": name, "arguments": dict(arguments)})
        except ClientError as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True}

    def turn_begins(self) -> None:
        """Adopt the server's current list, if the client does so between turns."""
        self._has_results = False
        if self._follows == "each turn":
            self._follow()

    def request_begins(self) -> None:
        """Adopt the server's current list, if the client does so before each request."""
        if self._follows == "at once" or (self._follows == "after results" and self._has_results):
            self._follow()

    def close(self) -> None:
        """Close the server's input, and kill it if it does not exit."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)

    def _follow(self) -> None:
        # Any notification sent before this request arrives before its answer.
        self.ask("tools/list" if self._is_stateless else "ping")
        self._relist()

    def _listed(self) -> list[Tool]:
        tools: list[Tool] = []
        cursor: dict[str, Any] = {}
        self._is_behind = False
        while True:
            page = self.ask("tools/list", cursor)
            tools += page["tools"]
            if not page.get("nextCursor"):
                return tools
            cursor = {"cursor": page["nextCursor"]}

    def _sent(self, method: str, params: Mapping[str, Any]) -> int:
        if self._is_stateless:
            version, info = f"{_META}protocolVersion", f"{_META}clientInfo"
            meta = {version: "2026-07-28", info: self._info, f"{_META}clientCapabilities": {}}
            params = {**params, "_meta": meta}
        with self._news:
            self._last_id += 1
            number = self._last_id
        self._write({"id": number, "method": method, "params": dict(params)})
        return number

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with self._writing, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Some servers print a greeting, which is not JSON, to their standard output.
            with contextlib.suppress(ValueError):
                self._received(json.loads(line))
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def _received(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            with self._news:
                self._answers[message["id"]] = message
                self._news.notify_all()
        elif "id" in message:
            root = {"uri": self._folder.as_uri(), "name": self._folder.name}
            known = {"roots/list": {"roots": [root]}, "ping": {}}
            refused = {"code": -32601, "message": "Method not found"}
            answer = {"result": known[method]} if method in known else {"error": refused}
            self._write({"id": message["id"], **answer})
        elif method == _LIST_CHANGED:
            self._is_behind = True
            if self._follows == "at once":
                # Clients that follow at once do the same; capd's prompt hook waits for it.
                threading.Thread(target=self._relist_beside, daemon=True).start()

    def _relist(self) -> None:
        with self._listing:
            if self._is_behind:
                self.tools = self._listed()

    def _relist_beside(self) -> None:
        # The connection may end meanwhile; the next request then raises.
        with contextlib.suppress(ClientError):
            self._relist()
