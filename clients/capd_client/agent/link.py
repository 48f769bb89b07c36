"""One session's end of the socket, without the socket: bytes in, bytes out, outcomes.

    apart -> greeting -> (initializing ->) up -> apart ...      any -> over

It keeps the two rules of docs/protocol.md: every request gets exactly one outcome, and what may
have run is never sent twice. Whoever moves the bytes calls `connected`, `take` and `lost`, and
writes what `output` returns; it is not for two threads at once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from capd_client.agent.errors import (
    CapdError,
    ClosedError,
    NoDaemonError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    error_of,
)
from capd_protos import SOCKET_PROTOCOL

Json = dict[str, Any]

LINE_LIMIT_BYTES = 32 * 1024 * 1024
DAEMON_LINE_LIMIT_BYTES = 257 * 1024 * 1024
_MCP_VERSION = "2025-11-25"
_PASSING = frozenset({"session_in_use", "overloaded", "stopping"})
"""Refusals that another attempt may not meet."""
_SENDS = 3
"""A request that was on its way each time a daemon died is not sent a fourth time."""
_METHOD_NOT_FOUND = -32601


@dataclass(frozen=True, slots=True)
class Facts:
    """Who the client is, and what a server of its definitions may be given."""

    client: str
    version: str
    pid: int
    cwd: str
    project: str
    session: str = ""
    parent: str = ""
    inherit: bool = True
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class _Request:
    key: int
    line: bytes
    is_call: bool
    sends: int = 0
    is_sent: bool = False
    is_dispatched: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """The one outcome of a request."""

    key: int
    outcome: Json | CapdError


class Link:
    """A session that outlives its connections."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.phase: Literal["apart", "greeting", "initializing", "up", "over"] = "apart"
        self.session = facts.session
        self.is_dropped = False
        """Whether this connection is of no use any more: close it, and say `lost`."""
        self.trouble = ""
        """Why there was no connection, the last time that there was none."""
        self.is_stopped = False
        """Whether somebody has stopped capd: none is started, and nothing waits for one."""
        self.changes = 0
        """How often the list of tools has changed, as the daemon tells."""
        self.fatal: CapdError | None = None
        """Why the session is over, where nobody has closed it."""
        self._resume = ""
        self._daemon_pid = 0
        self._is_greeted = False
        self._last_key = 0
        self._initialize_key = 0
        self._pending: dict[int, _Request] = {}
        self._input = bytearray()
        self._searched = 0
        self._output = bytearray()

    def ask(self, method: str, params: Json) -> int:
        """Queue a request and return the key of its outcome.

        Raises:
            CapdError: it cannot be asked, here or any more.
        """
        if self.phase == "over":
            raise self.fatal or ClosedError("the session is closed")
        key = self._next_key()
        message = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
        try:
            line = _line(message)
        except (TypeError, ValueError, RecursionError) as error:
            raise NotSentError(f"{method} was not sent, as it is not JSON: {error}") from None
        if len(line) > LINE_LIMIT_BYTES:
            text = f"the request has {len(line)} bytes, and {LINE_LIMIT_BYTES} are the most"
            raise NotSentError(text)
        request = self._pending[key] = _Request(key, line, method == "tools/call")
        if self.phase == "up":
            self._send(request)
        return key

    def drop(self, key: int) -> None:
        """Forget a request; the daemon is told that nobody waits for it."""
        request = self._pending.pop(key, None)
        if request is not None and request.is_sent and self.phase == "up":
            params = {"requestId": key, "reason": "the agent does not wait any longer"}
            self._say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def may_have_run(self, key: int) -> bool:
        """Return whether a request that is pending may have reached a server."""
        request = self._pending.get(key)
        return request is not None and request.is_sent

    def connected(self) -> None:
        """Greet: there is a connection."""
        facts = self._facts
        hello: Json = {"capd": "hello", "protocol": SOCKET_PROTOCOL, "role": "mcp"}
        hello["client"] = {"name": facts.client, "version": facts.version, "pid": facts.pid}
        # The set of the parent is copied once: a session that was welcomed has its own.
        parent = "" if self._is_greeted else facts.parent
        optional = {
            "cwd": facts.cwd,
            "project": facts.project,
            "session": self.session,
            "resume": self._resume,
            "parent": parent,
        }
        hello |= {name: value for name, value in optional.items() if value and _is_clean(value)}
        if parent and not facts.inherit:
            hello["inherit"] = False
        hello["dispatched"] = True
        self.phase = "greeting"
        self.is_dropped = False
        self._say(hello)

    def output(self) -> bytes:
        """Return what is to be written, and forget it."""
        taken = bytes(self._output)
        self._output.clear()
        return taken

    @property
    def has_output(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._output)

    def take(self, chunk: bytes) -> list[Settled]:
        """Read what came from the daemon; return what it settles."""
        self._input += chunk
        settled: list[Settled] = []
        while not self.is_dropped:
            end = self._input.find(b"\n", self._searched)
            if end < 0:
                break
            line = bytes(self._input[:end])
            del self._input[: end + 1]
            self._searched = 0
            self._take_line(line, settled)
        self._searched = len(self._input)
        if len(self._input) > DAEMON_LINE_LIMIT_BYTES:
            self._drop("a line of the daemon has no end")
        return settled

    def lost(self, why: str) -> list[Settled]:
        """Note that the connection is gone; return what nobody can know any more.

        What has certainly not run stays, and is sent again.
        """
        self._input.clear()
        self._searched = 0
        self._output.clear()
        self.trouble = why or self.trouble
        if self.phase != "over":
            self.phase = "apart"
        settled: list[Settled] = []
        for request in list(self._pending.values()):
            request.is_sent = False
            if request.is_dispatched:
                text = "the daemon went away during the call, which may have run"
                settled.append(self._settle(request, OutcomeUnknownError(text, 4002)))
            elif self.is_stopped:
                settled.append(self._settle(request, self.stopped()))
            elif request.sends >= _SENDS:
                text = f"{_SENDS} daemons went away before the request had run"
                settled.append(self._settle(request, NotSentError(text, 4001)))
        return settled

    @property
    def last_key(self) -> int:
        """The key of what was asked last."""
        return self._last_key

    def abandon(self, error: CapdError, last_key: int) -> list[Settled]:
        """Give up what was asked up to `last_key`; only where there is no connection.

        What was asked later may be in time for a daemon that answers the next attempt.
        """
        given_up = [each for each in self._pending.values() if each.key <= last_key]
        return [self._settle(request, error) for request in given_up]

    def stopped(self) -> NoDaemonError:
        """Return the error of what is asked while capd is stopped."""
        return NoDaemonError("capd was stopped; start it with: capd daemon start", 4001)

    def end(self, error: CapdError | None = None) -> list[Settled]:
        """End the session for good; return the outcomes of what was still asked."""
        if self.phase in {"initializing", "up"}:
            self._say({"capd": "goodbye"})
        self.phase = "over"
        self.fatal = self.fatal or error
        settled = []
        for request in list(self._pending.values()):
            if request.is_call and request.is_sent:
                text = "the session was closed during the call, which may have run"
                settled.append(self._settle(request, OutcomeUnknownError(text, 4002)))
            else:
                settled.append(
                    self._settle(request, self.fatal or ClosedError("the session is closed"))
                )
        return settled

    def _take_line(self, line: bytes, settled: list[Settled]) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._drop("what listens at the socket is not capd")
        elif "capd" in message:
            self._take_frame(message, settled)
        elif self.phase == "greeting":
            self._drop("what listens at the socket is not capd")
        elif "method" in message:
            self._take_message(message)
        elif message.get("id") == self._initialize_key and self.phase == "initializing":
            self._initialized(message, settled)
        else:
            self._take_response(message, settled)

    def _take_frame(self, frame: Json, settled: list[Settled]) -> None:
        match frame.get("capd"):
            case "welcome" if self.phase == "greeting":
                self._welcomed(frame)
            case "refused" if self.phase == "greeting":
                self._refused(frame, settled)
            case "dispatched":
                request = self._pending.get(_whole(frame.get("id")))
                if request is not None:
                    request.is_dispatched = True
            case "want_env":
                self._send_env(frame.get("keys"))
            case "closing" if frame.get("reconnect") is False:
                # What it answers before it goes is heard.
                self.is_stopped = True
            case _:
                pass

    def _welcomed(self, frame: Json) -> None:
        daemon = frame.get("daemon")
        pid = _whole(daemon.get("pid")) if isinstance(daemon, dict) else 0
        is_same = self._is_greeted and pid == self._daemon_pid and frame.get("resumed") is True
        self._is_greeted = True
        self.is_stopped = False
        self._daemon_pid = pid
        self.session = str(frame.get("session") or self.session)
        self._resume = str(frame.get("resume") or "")
        self._send_env(frame.get("want_env"))
        if is_same:
            self._go_up()
            return
        # To MCP this is a session that begins.
        self.phase = "initializing"
        self._initialize_key = self._next_key()
        params = {
            "protocolVersion": _MCP_VERSION,
            "capabilities": {},
            "clientInfo": {"name": self._facts.client, "version": self._facts.version or "0"},
        }
        request = {"jsonrpc": "2.0", "id": self._initialize_key, "method": "initialize"}
        self._say({**request, "params": params})

    def _refused(self, frame: Json, settled: list[Settled]) -> None:
        code = str(frame.get("code"))
        text = str(frame.get("message") or code)
        if code == "resume_refused" and self._resume:
            # Its welcome never arrived: go on as a session of its own.
            self._resume = ""
            self.session = self._facts.session
        elif code not in _PASSING:
            settled += self.end(RefusedError(text, 4003))
        self._drop(text)

    def _initialized(self, message: Json, settled: list[Settled]) -> None:
        if "error" in message:
            settled += self.end(error_of(message["error"]))
            self.is_dropped = True
            return
        self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.changes += 1
        self._go_up()

    def _go_up(self) -> None:
        self.phase = "up"
        self.trouble = ""
        for request in self._pending.values():
            self._send(request)

    def _take_message(self, message: Json) -> None:
        method, key = message.get("method"), message.get("id")
        if method == "notifications/tools/list_changed":
            self.changes += 1
        if key is None:
            return
        reply: Json = {"jsonrpc": "2.0", "id": key}
        if method == "ping":
            self._say({**reply, "result": {}})
        else:
            error = {"code": _METHOD_NOT_FOUND, "message": "this client offers no such method"}
            self._say({**reply, "error": error})

    def _take_response(self, message: Json, settled: list[Settled]) -> None:
        request = self._pending.get(_whole(message.get("id")))
        if request is None:
            return
        result = message.get("result")
        outcome = result if isinstance(result, dict) else error_of(message.get("error"))
        settled.append(self._settle(request, outcome))

    def _settle(self, request: _Request, outcome: Json | CapdError) -> Settled:
        del self._pending[request.key]
        return Settled(request.key, outcome)

    def _send(self, request: _Request) -> None:
        request.is_sent = True
        request.sends += 1
        self._output += request.line

    def _send_env(self, keys: object) -> None:
        if not isinstance(keys, list):
            return
        known = {key: self._facts.env.get(key) for key in keys if isinstance(key, str)}
        env = {key: value for key, value in known.items() if value is not None and _is_clean(value)}
        if env:
            self._say({"capd": "env", "env": env})

    def _say(self, message: Json) -> None:
        self._output += _line(message)

    def _drop(self, why: str) -> None:
        self.trouble = why
        self.is_dropped = True

    def _next_key(self) -> int:
        self._last_key += 1
        return self._last_key


def _line(message: Json) -> bytes:
    # A link frame is told by its first bytes: no space behind the colon.
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def _is_clean(text: str) -> bool:
    """Return whether `text` can be said in JSON: a lone surrogate stands for a stray byte."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
