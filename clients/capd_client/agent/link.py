"""One session's end of the socket, without I/O: bytes in, bytes out, outcomes.

    apart -> greeting -> (initializing ->) up -> apart ...    any -> over

The link is apart without a connection, greeting until the welcome comes, initializing during the
MCP handshake, and up after it. It is over once the session has ended. Two rules of docs/protocol.md
hold: every request gets exactly one outcome, and a request that may have run is never sent twice.
The code that does the I/O calls `connected`, `take` and `lost`, and writes what `output` returns.
Only one thread may use a link at a time.
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
from capd_client.shim.json_lines import LINE_LIMIT_BYTES
from capd_client.shim.replay import (
    DAEMON_LINE_LIMIT_BYTES,
    METHOD_NOT_FOUND,
    MOST_SENDS,
    NOT_SENT,
    OUTCOME_UNKNOWN,
    REFUSED,
    Request,
    after_loss,
    after_refusal,
    hello,
    is_same_session,
    requested_values,
)

Json = dict[str, Any]

_MCP_VERSION = "2025-11-25"


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What the agent says about itself in the hello, and the environment that servers may use."""

    client: str
    version: str
    pid: int
    cwd: str
    project: str
    session: str = ""
    parent: str = ""
    inherit: bool = True
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


class _AgentRequest(Request):
    __slots__ = ("is_call",)

    key: int
    line: bytes

    def __init__(self, key: int, line: bytes, *, is_call: bool) -> None:
        super().__init__(key, line)
        self.is_call = is_call


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How a request ended: its result or its error."""

    key: int
    outcome: Json | CapdError


class Link:
    """A session over one or several connections in turn, without I/O."""

    def __init__(self, facts: AgentFacts) -> None:
        self._facts = facts
        self.phase: Literal["apart", "greeting", "initializing", "up", "over"] = "apart"
        self.session = facts.session
        self.is_dropped = False
        """Whether this connection is useless: close it, and call `lost`."""
        self.trouble = ""
        """Why the last attempt to connect failed."""
        self.is_stopped = False
        """Whether a person has stopped capd. While this is set, no daemon is started, and requests
        fail at once."""
        self.changes = 0
        """A count of the moments at which the list of tools may have changed."""
        self.fatal: CapdError | None = None
        """Why the session is over; None if it is not, or if it was closed."""
        self._resume = ""
        self._daemon_pid = 0
        self._is_greeted = False
        self._last_key = 0
        self._initialize_key = 0
        self._pending: dict[int, _AgentRequest] = {}
        self._input = bytearray()
        self._searched = 0
        self._output = bytearray()

    def ask(self, method: str, params: Json) -> int:
        """Queue a request for `method`; return the key that its outcome will have.

        Raises:
            NotSentError: the params are not JSON, or too large.
            CapdError: the session is over.
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
        request = self._pending[key] = _AgentRequest(key, line, is_call=method == "tools/call")
        if self.phase == "up":
            self._send(request)
        return key

    def drop(self, key: int) -> None:
        """Forget the request with this key, and tell the daemon that nobody waits for it."""
        request = self._pending.pop(key, None)
        if request is not None and request.is_sent and self.phase == "up":
            params = {"requestId": key, "reason": "the agent does not wait any longer"}
            self._say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def may_have_run(self, key: int) -> bool:
        """Tell whether the pending request `key` was sent to the daemon, and so may have run."""
        request = self._pending.get(key)
        return request is not None and request.is_sent

    def connected(self) -> None:
        """Queue the hello for a new connection, which has just been made."""
        facts = self._facts
        # The parent's active capabilities are copied once, at the first welcome.
        parent = "" if self._is_greeted else facts.parent
        frame = hello(
            {"name": facts.client, "version": facts.version, "pid": facts.pid},
            cwd=facts.cwd,
            project=facts.project,
            session=self.session,
            resume=self._resume,
            parent=parent,
        )
        if parent and not facts.inherit:
            frame["inherit"] = False
        self.phase = "greeting"
        self.is_dropped = False
        self._say(frame)

    def output(self) -> bytes:
        """Remove the bytes that are to be written to the connection, and return them."""
        taken = bytes(self._output)
        self._output.clear()
        return taken

    @property
    def has_output(self) -> bool:
        """Whether there are bytes to write."""
        return bool(self._output)

    def take(self, chunk: bytes) -> list[RequestOutcome]:
        """Take bytes from the daemon; return the outcomes of requests that they complete."""
        self._input += chunk
        outcomes: list[RequestOutcome] = []
        while not self.is_dropped:
            end = self._input.find(b"\n", self._searched)
            if end < 0:
                break
            line = bytes(self._input[:end])
            del self._input[: end + 1]
            self._searched = 0
            self._take_line(line, outcomes)
        self._searched = len(self._input)
        if len(self._input) > DAEMON_LINE_LIMIT_BYTES:
            self._drop("a line of the daemon has no end")
        return outcomes

    def lost(self, why: str) -> list[RequestOutcome]:
        """Note that the connection is lost, and why; return the outcomes of requests that now end.

        A request that may have run ends with `OutcomeUnknownError`. One that has not run is kept
        and sent again, unless that has failed too often or capd was stopped.
        """
        self._input.clear()
        self._searched = 0
        self._output.clear()
        self.trouble = why or self.trouble
        if self.phase != "over":
            self.phase = "apart"
        outcomes: list[RequestOutcome] = []
        for request in list(self._pending.values()):
            fate = after_loss(request)
            request.is_sent = False
            if fate == "unknown":
                text = "the daemon went away during the call, which may have run"
                outcomes.append(self._resolve(request, OutcomeUnknownError(text, OUTCOME_UNKNOWN)))
            elif self.is_stopped:
                outcomes.append(self._resolve(request, self.stopped()))
            elif fate == "not_sent":
                text = f"{MOST_SENDS} daemons went away before the request had run"
                outcomes.append(self._resolve(request, NotSentError(text, NOT_SENT)))
        return outcomes

    @property
    def last_key(self) -> int:
        """The key of the newest request."""
        return self._last_key

    def abandon(self, error: CapdError, last_key: int) -> list[RequestOutcome]:
        """Fail the requests up to the key `last_key` with `error`, while there is no connection.

        Return their outcomes. Later requests are kept: the next attempt to connect may succeed.
        """
        given_up = [each for each in self._pending.values() if each.key <= last_key]
        return [self._resolve(request, error) for request in given_up]

    def stopped(self) -> NoDaemonError:
        """Return the error that requests get while capd is stopped on purpose."""
        return NoDaemonError("capd was stopped; start it with: capd daemon start", NOT_SENT)

    def end(self, error: CapdError | None = None) -> list[RequestOutcome]:
        """End the session; return the outcomes of all pending requests.

        A call that was sent fails with `OutcomeUnknownError`. Other requests fail with the error
        that ended the session (`error`, unless an earlier one did), or else with `ClosedError`.
        """
        if self.phase in {"initializing", "up"}:
            self._say({"capd": "goodbye"})
        self.phase = "over"
        self.fatal = self.fatal or error
        outcomes = []
        for request in list(self._pending.values()):
            if request.is_call and request.is_sent:
                text = "the session was closed during the call, which may have run"
                outcomes.append(self._resolve(request, OutcomeUnknownError(text, OUTCOME_UNKNOWN)))
            else:
                outcomes.append(
                    self._resolve(request, self.fatal or ClosedError("the session is closed"))
                )
        return outcomes

    def _take_line(self, line: bytes, outcomes: list[RequestOutcome]) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._drop("what listens at the socket is not capd")
        elif "capd" in message:
            self._take_frame(message, outcomes)
        elif self.phase == "greeting":
            self._drop("what listens at the socket is not capd")
        elif "method" in message:
            self._take_message(message)
        elif message.get("id") == self._initialize_key and self.phase == "initializing":
            self._initialized(message, outcomes)
        else:
            self._take_response(message, outcomes)

    def _take_frame(self, frame: Json, outcomes: list[RequestOutcome]) -> None:
        match frame.get("capd"):
            case "welcome" if self.phase == "greeting":
                self._welcomed(frame)
            case "refused" if self.phase == "greeting":
                self._refused(frame, outcomes)
            case "dispatched":
                request = self._pending.get(_whole(frame.get("id")))
                if request is not None:
                    request.is_dispatched = True
            case "want_env":
                self._send_env(frame.get("keys"))
            case "closing" if frame.get("reconnect") is False:
                # Answers that come before the connection is closed are still taken.
                self.is_stopped = True
            case _:
                pass

    def _welcomed(self, frame: Json) -> None:
        daemon = frame.get("daemon")
        pid = _whole(daemon.get("pid")) if isinstance(daemon, dict) else 0
        is_same = self._is_greeted and is_same_session(self._daemon_pid, pid, frame)
        self._is_greeted = True
        self.is_stopped = False
        self._daemon_pid = pid
        self.session = str(frame.get("session") or self.session)
        self._resume = str(frame.get("resume") or "")
        self._send_env(frame.get("want_env"))
        if is_same:
            self._go_up()
            return
        # For MCP this is a new session, which begins with a handshake.
        self.phase = "initializing"
        self._initialize_key = self._next_key()
        params = {
            "protocolVersion": _MCP_VERSION,
            "capabilities": {},
            "clientInfo": {"name": self._facts.client, "version": self._facts.version or "0"},
        }
        request = {"jsonrpc": "2.0", "id": self._initialize_key, "method": "initialize"}
        self._say({**request, "params": params})

    def _refused(self, frame: Json, outcomes: list[RequestOutcome]) -> None:
        code = str(frame.get("code"))
        text = str(frame.get("message") or code)
        step = after_refusal(code, has_token=bool(self._resume))
        if step == "start_anew":
            self._resume = ""
            self.session = self._facts.session
        elif step == "end":
            outcomes += self.end(RefusedError(text, REFUSED))
        self._drop(text)

    def _initialized(self, message: Json, outcomes: list[RequestOutcome]) -> None:
        if "error" in message:
            outcomes += self.end(error_of(message["error"]))
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
            error = {"code": METHOD_NOT_FOUND, "message": "this client offers no such method"}
            self._say({**reply, "error": error})

    def _take_response(self, message: Json, outcomes: list[RequestOutcome]) -> None:
        request = self._pending.get(_whole(message.get("id")))
        if request is None:
            return
        result = message.get("result")
        outcome = result if isinstance(result, dict) else error_of(message.get("error"))
        outcomes.append(self._resolve(request, outcome))

    def _resolve(self, request: _AgentRequest, outcome: Json | CapdError) -> RequestOutcome:
        del self._pending[request.key]
        return RequestOutcome(request.key, outcome)

    def _send(self, request: _AgentRequest) -> None:
        request.is_sent = True
        request.sends += 1
        self._output += request.line

    def _send_env(self, keys: object) -> None:
        if env := requested_values(self._facts.env, keys):
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
    # Without spaces, because the daemon recognises a link frame by its first bytes, `{"capd":`.
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
