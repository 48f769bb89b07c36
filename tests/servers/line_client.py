"""A client of MCP that keeps the bytes: one line out, one line in, nothing made of either.

What it answers to a server's own requests is fixed, so that two conversations can be compared.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

PROTOCOL_VERSION = "2025-11-25"
PATIENCE = 30.0
FIRST_PATIENCE = 600.0
"""For the first answer: a package runner may have to download the server."""
_GRACE = 1.0

CAPABILITIES = {
    "roots": {"listChanged": True},
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
}
_SAMPLED = {
    "role": "assistant",
    "content": {"type": "text", "text": "A scripted answer."},
    "model": "scripted",
    "stopReason": "endTurn",
}
_ELICITED = {"action": "accept", "content": {"name": "Ada", "check": True}}
_VISITED = {"action": "accept"}
_NO_METHOD = {"code": -32601, "message": "Method not found"}


class EndedError(Exception):
    """The server has ended, or does not answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request: its `result` or its `error`, as bytes."""

    member: str
    json: bytes

    def read(self) -> Any:
        return msgspec.json.decode(self.json)


@dataclass(frozen=True, slots=True)
class Heard:
    """A notification or a request of the server's."""

    method: str
    params: bytes


class _Line(msgspec.Struct):
    method: str = ""
    id: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


_LINE = msgspec.json.Decoder(_Line)


class LineClient:
    """One client on a command's standard streams; the folder it starts in is its one root."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], folder: Path, stderr: Path
    ) -> None:
        self.stderr = stderr
        self._folder = folder
        with stderr.open("wb") as said:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=dict(env),
                cwd=folder,
                start_new_session=True,
            )
        self._last_id = 0
        self._answers: dict[bytes, Answer] = {}
        self._heard: list[Heard] = []
        self._is_over = False
        self._news = threading.Condition()
        # Two threads write: the one that asks, and the reader, which answers the server.
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def initialize(self) -> dict[str, Any]:
        """Complete the handshake; return its result."""
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": CAPABILITIES,
            "clientInfo": {"name": "test-editor", "version": "1"},
        }
        result: dict[str, Any] = self.ask("initialize", params, FIRST_PATIENCE).read()
        self._write({"method": "notifications/initialized"})
        return result

    def ask(
        self, method: str, params: Mapping[str, Any] | None = None, patience: float = PATIENCE
    ) -> Answer:
        """Return the answer to a request.

        Raises:
            EndedError: there is none.
        """
        self._last_id += 1
        key = str(self._last_id).encode()
        self._write({"id": self._last_id, "method": method, "params": dict(params or {})})
        with self._news:
            self._news.wait_for(lambda: self._is_over or key in self._answers, patience)
            if key not in self._answers:
                raise EndedError(f"no answer to {method}; {self.last_words()}")
            return self._answers.pop(key)

    def hear(self, method: str, count: int = 1, patience: float = PATIENCE) -> list[bytes]:
        """Return the params of the first `count` notifications of `method`, waiting for them."""
        found: list[bytes] = []

        def has_them() -> bool:
            found[:] = [heard.params for heard in self._heard if heard.method == method]
            return self._is_over or len(found) >= count

        with self._news:
            self._news.wait_for(has_them, patience)
        if len(found) < count:
            raise EndedError(f"{len(found)} of {count} {method}; {self.last_words()}")
        return found[:count]

    def forget(self, method: str) -> None:
        """Drop the received messages of `method`."""
        with self._news:
            self._heard = [heard for heard in self._heard if heard.method != method]

    def last_words(self) -> str:
        """Return the server's state, and the end of its stderr."""
        lines = self.stderr.read_text(errors="replace").split("\n")
        return f"exit code {self._process.poll()}: " + " | ".join(filter(None, lines[-12:]))

    def leave(self) -> None:
        """Close the server's input, as a client does at its end; wait for its exit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
        # What is left of its group: a runner's grandchildren, which nothing else would end.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)
        self._process.stdout.close()

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        line = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        try:
            with self._writing:
                self._process.stdin.write(line)
                self._process.stdin.flush()
        except (OSError, ValueError):
            # ValueError: the reader has a last request to answer while `leave` closes the pipe.
            raise EndedError(f"it closed its input; {self.last_words()}") from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            try:
                line = _LINE.decode(raw)
            except msgspec.MsgspecError:
                # Some servers greet on stdout; clients skip what is no message.
                continue
            with self._news:
                self._received(line)
                self._news.notify_all()
        with self._news:
            self._is_over = True
            self._news.notify_all()

    def _received(self, line: _Line) -> None:
        if not line.method:
            member = "result" if bytes(line.result) else "error"
            self._answers[bytes(line.id)] = Answer(member, bytes(getattr(line, member)))
            return
        self._heard.append(Heard(line.method, bytes(line.params)))
        if bytes(line.id):
            with contextlib.suppress(EndedError):
                self._write({"id": msgspec.json.decode(line.id), **self._reply(line)})

    def _reply(self, request: _Line) -> dict[str, Any]:
        method, is_for_url = request.method, b'"url"' in bytes(request.params)
        root = {"uri": self._folder.as_uri(), "name": self._folder.name}
        results: dict[str, Any] = {
            "roots/list": {"roots": [root]},
            "sampling/createMessage": _SAMPLED,
            "elicitation/create": _VISITED if is_for_url else _ELICITED,
            "ping": {},
        }
        return {"result": results[method]} if method in results else {"error": _NO_METHOD}
