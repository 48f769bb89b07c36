"""One MCP session between a host and the daemon.

The host is the editor or agent that has started the shim. Two rules hold, whatever becomes of the
daemon: every request of the host gets exactly one outcome, and a request that may have run is not
sent again, unless the next daemon continues it.

    down -> greeting -> (replaying ->) up -> down ...

In the state `replaying`, a new daemon gets the `initialize` that was answered before it came. If
there is no daemon, the shim starts one. If that fails, it answers as an MCP server with a single
tool that says why, so that an editor never sees a broken server.

A slow daemon does not block an editor, because the shim itself answers some requests after a short
wait. In any state it answers a handshake with the saved answer of an earlier daemon, and a prompt
hook with an empty answer. Unless the session is up, it answers `tools/list` with the tools that the
client's last session began with. If none are saved, and for other lists, it answers with an empty
list, provided that the host is known to list again. When the session is up, it notifies the host
that the lists have changed. While the daemon starts, the shim waits longer before it answers a
hook.

Lines are passed on whole, so a daemon that dies in the middle of a line leaves no half line. This
takes memory: a result of 256 MiB is held here until the editor has read it. Each direction stops
reading while the other side does not.
"""

import _socket
import errno
import posix
import select
import sys
import time

from capd_client.shim.client_facts import PROGRAMS, RELISTING_CLIENTS, SESSION_VARIABLES
from capd_client.shim.handshakes import HANDSHAKES, META, VERSION, Handshakes, ToolLists
from capd_client.shim.json_lines import (
    LINE_LIMIT_BYTES,
    WINDOW_BYTES,
    LineReader,
    Shape,
    TruncatedLine,
    encode,
    id_of,
    object_of,
    params_of,
    parse,
    shape_from_daemon,
    shape_of,
    text_of,
)
from capd_client.shim.replay import (
    DAEMON_LINE_LIMIT_BYTES,
    ERROR_NAMES,
    INVALID_REQUEST,
    LINK_PREFIX,
    METHOD_NOT_FOUND,
    NOT_SENT,
    OUTCOME_UNKNOWN,
    REFUSED,
    Request,
    after_loss,
    after_refusal,
    encodable,
    hello,
    is_same_session,
    requested_values,
)
from capd_client.shim.starting import (
    Starter,
    absolute,
    join,
    printable,
    state_folder,
    write_stderr,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections import deque
    from collections.abc import Callable, Mapping
else:
    import _signal
    from _collections import deque

EXIT_FAILED = 1

_READ_BYTES = 256 * 1024
_FIRST_READ_BYTES = 64 * 1024
"""The most bytes of a read that may begin a line. For 128 KiB and more, the C library gets the
buffer of each read from the system and returns it, which takes 12 us. So larger reads are used only
within a long line."""
_QUEUE_BYTES = 1024 * 1024
"""While one side has this many bytes still to take, the other side is not read."""
_RETAINED_BYTES = 32 * 1024 * 1024
"""The most bytes of requests in flight that are kept, so that they can be sent again."""
_MOST_ANSWERED = 10_000
_BATCH_BYTES = 64 * 1024
"""As many waiting lines as fit into this many bytes are written at once."""

_BACKOFF_FIRST = 0.05
_BACKOFF_LAST = 1.0
_BACKOFF_IDLE = 5.0
_PATIENCE = 60.0
_GREETING_TIMEOUT = 10.0
_REPLAY_TIMEOUT = 30.0
_GOODBYE_TIMEOUT = 1.0
_LAST_ANSWERS = 2.0
"""Seconds after the end of the input for the answers to open requests. The SDKs' clients, which
wait for the end of a server, send it a signal after as many."""
_RESTART_GRACE = 2.0
"""Seconds after a loss before the shim starts a daemon: a service manager may restart the lost one,
and does so within that time."""
_SLOW = 0.25
"""Seconds after which the shim itself answers what an editor waits for. A running daemon answers
within 10 ms, and one that starts needs longer. A prompt hook has 250 ms
(`capd_client.hook.BUDGET`). Claude Code waits 3 s for `server/discover`, 5 s for a server's start
and 5 s for a hook."""
_SLOW_LIST = 0.75
"""Seconds after which the shim answers with an empty list; the host then has to list again. This is
longer than `_SLOW`, because a daemon that has to be started answers after 0.2 to 0.5 s."""

_COLD_HOOK = 4.0
"""Seconds after which the shim answers a hook while a shim starts the daemon. Claude Code waits 5 s
for a hook."""

_DOWN, _GREETING, _REPLAYING, _UP = "down", "greeting", "replaying", "up"
_STATUS = "capd_status"
_TURN = "capd_turn"
"""The tool that a prompt hook calls."""
_LISTEN = "subscriptions/listen"
"""The one request that stays open until the host cancels it. Repeating it is safe, so each new
daemon gets it, and it does not fail while there is no daemon."""
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_LISTS = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
}
"""For each list method: the kind in `notifications/KIND/list_changed`, and the result's member."""
_START_HINT = "Start it with: capd daemon start"
_DISPATCHED = b'{"capd":"dispatched","id":'


class _HostRequest(Request):
    """A request of the host that has no outcome yet."""

    __slots__ = ("is_acknowledged", "is_hook", "method")

    def __init__(
        self, key: "int | str | float", method: str, line: "bytes | bytearray | None"
    ) -> None:
        super().__init__(key, line)
        self.method = method
        self.is_acknowledged = False
        """Whether the host got `_ACKNOWLEDGED` for this `subscriptions/listen`."""
        self.is_hook = method == "tools/call" and line is not None and _is_hook_call(line)


def _in_requested_form(
    result: "dict[str, object]", line: "bytes | bytearray"
) -> "dict[str, object]":
    """Return `result` in the form that the MCP generation of the request `line` requires.

    The stateless generation, whose requests name a protocol version, requires more members.
    """
    if META + "protocolVersion" not in object_of(params_of(line), "_meta"):
        return result
    caching = {} if "content" in result else {"ttlMs": 0, "cacheScope": "private"}
    return {"resultType": "complete", **caching, **result}


def _text_in(path: str) -> str:
    """Return the text of a file, at most its first 4096 bytes; empty if it cannot be read."""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return posix.read(fd, 4096).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        posix.close(fd)


def _is_hook_call(line: "bytes | bytearray") -> bool:
    # The tool's name is before or after the arguments, so it is near one end of the line.
    name = _TURN.encode()
    is_named = name in line[:WINDOW_BYTES] or name in line[-WINDOW_BYTES:]
    return is_named and params_of(line).get("name") == _TURN


class _Outgoing:
    """A line of the host that is still to be written to the daemon."""

    __slots__ = ("is_reply", "line", "request")

    def __init__(
        self, line: "bytes | bytearray", request: "_HostRequest | None", *, is_reply: bool = False
    ) -> None:
        self.line = line
        self.request = request
        self.is_reply = is_reply
        """Whether it answers a request of a server. Only the daemon that sent the request can use
        it."""


class FatalError(Exception):
    """The shim cannot serve; the text says why, for a person."""


class Shim:
    """One MCP session between a host and the daemon whose socket is at `path`.

    `env` is the environment of this process. `is_named` says that `path` was given as an argument.
    """

    _own_out = -1
    """A second, non-blocking descriptor of the host's pipe; -1 if there is none."""

    _leave_at = 0.0
    """When the shim leaves at the latest; 0 until the host's input has ended."""
    _is_first_list = True
    """Whether the daemon's next list of tools is the first one of this session."""
    _starter: "Starter | None" = None
    credential_file = ""
    """The file with the credential for a bridge's socket; read again for each hello."""

    def __init__(self, path: str, env: "Mapping[str, str]", *, is_named: bool = False) -> None:
        self._path = path
        self._env = env
        if env.get("CAPD_NO_START", "") in {"", "0"}:
            self._starter = Starter(path, env, is_named=is_named)
        self._cwd = _working_directory()
        self._patience = _seconds(env.get("CAPD_PATIENCE", ""), _PATIENCE)
        self._restart_grace = _seconds(env.get("CAPD_RESTART_GRACE", ""), _RESTART_GRACE)
        self._idle_retry = _seconds(env.get("CAPD_IDLE_RETRY", ""), _BACKOFF_IDLE)

        self._poll = select.poll()
        self._masks: dict[int, int] = {}
        self._code: int | None = None

        self._sock: _socket.socket | None = None
        self._phase = _DOWN
        self._session = env.get("CAPD_SESSION", "")
        self._resume = ""
        self._daemon_pid = 0
        self._closing_reason = ""
        self._is_coming_back = True

        now = time.monotonic()
        self._attempts = 0
        self._attempt_at = self._deadline = self._lost_at = now
        self._trouble = ""
        self._has_given_up = False
        self._refused_with = ""

        self._from_host = LineReader()
        self._from_daemon = LineReader(DAEMON_LINE_LIMIT_BYTES)
        self._to_host: deque[memoryview] = deque()
        self._to_host_bytes = 0
        self._link_out: deque[bytes] = deque()
        self._outbox: deque[_Outgoing] = deque()
        self._outbox_bytes = 0
        self._writing = memoryview(b"")

        self._pending: dict[int | str | float, _HostRequest] = {}
        self._retained_bytes = 0
        self._answered: dict[int | str | float, None] = {}
        self._initialize: dict[str, object] | None = None
        self._initialize_key: int | str | float | None = None
        self._is_initialized = False
        self._is_replay_due = False
        """Whether the shim has answered `initialize` itself, so that the daemon has to get it."""
        self._is_list_due = False
        self._listed = {"tools"}
        self._initialized_line = b""
        self._replay_key = ""
        self._pings: dict[int | str | float, _HostRequest] = {}
        self._own_requests = 0
        self._handshakes = Handshakes(state_folder(env))
        self._tool_lists = ToolLists(state_folder(env))
        self._due: dict[_HostRequest, float] = {}

    def run(self) -> int:
        """Serve until the host disconnects; return the exit code."""
        wake = _wake_on_signals()
        self._own_out = _own_output()
        self._watch(wake, select.POLLIN)
        try:
            while self._code is None:
                self._run_timers()
                for fd, events in self._wait():
                    if self._code is None:
                        self._react(fd, events, wake)
                if self._leave_at and self._may_leave():
                    self._code = 0
        except FatalError as refusal:
            write_stderr(str(refusal))
            return EXIT_FAILED
        self._say_goodbye()
        return self._code

    def _react(self, fd: int, events: int, wake: int) -> None:
        gone = events & (select.POLLHUP | select.POLLERR | select.POLLNVAL)
        if fd == wake:
            self._code = 0
        elif fd == 0:
            self._read_host(is_gone=bool(gone))
        elif fd == 1:
            self._write_host(is_gone=bool(gone))
        elif self._sock is not None and fd == self._sock.fileno():
            if events & select.POLLIN or gone:
                self._read_daemon()
            if self._sock is not None and events & select.POLLOUT:
                self._write_daemon()

    def _wait(self) -> "list[tuple[int, int]]":
        # An input that has ended would wake the poll each time.
        mask = select.POLLIN if self._is_reading_host() else 0
        self._watch(0, mask, is_kept=not self._leave_at)
        self._watch(1, select.POLLOUT if self._to_host else 0)
        if self._sock is not None:
            mask = select.POLLIN if self._to_host_bytes < _QUEUE_BYTES else 0
            if self._has_output():
                mask |= select.POLLOUT
            self._watch(self._sock.fileno(), mask, is_kept=False)
        due = self._due_at()
        timeout = None if due is None else max(0, int((due - time.monotonic()) * 1000) + 1)
        return self._poll.poll(timeout)

    def _watch(self, fd: int, mask: int, *, is_kept: bool = True) -> None:
        """Poll the descriptor `fd` for the events in `mask`.

        With an empty mask and without `is_kept`, stop polling it.
        """
        if self._masks.get(fd) == mask:
            return
        if mask or is_kept:
            self._masks[fd] = mask
            self._poll.register(fd, mask)
        elif fd in self._masks:
            del self._masks[fd]
            self._poll.unregister(fd)

    def _is_reading_host(self) -> bool:
        if self._leave_at or self._outbox_bytes >= _QUEUE_BYTES:
            return False
        # While the session is not up, the shim's own answers may fill the queue to the host.
        return self._phase == _UP or self._to_host_bytes < _QUEUE_BYTES

    def _has_output(self) -> bool:
        return bool(self._writing or self._link_out or (self._phase == _UP and self._outbox))

    def _due_at(self) -> "float | None":
        if self._phase == _UP and not self._due and not self._leave_at:
            return None
        due = list(self._due.values())
        if self._leave_at:
            due.append(self._leave_at)
        if self._phase != _UP:
            due.append(self._attempt_at if self._phase == _DOWN else self._deadline)
            if not self._has_given_up:
                due.append(self._lost_at + self._patience)
        return min(due) if due else None

    def _run_timers(self) -> None:
        """Do everything that is due by now, such as reconnecting or answering for a slow daemon.

        Noted answers are saved once the host has taken everything.
        """
        now = time.monotonic()
        if not self._to_host:
            self._handshakes.save()
            self._tool_lists.save()
        for request in [each for each, due in self._due.items() if now >= due]:
            self._answer_for_slow_daemon(request)
        if self._phase == _DOWN and now >= self._attempt_at:
            self._connect()
        elif self._phase in {_GREETING, _REPLAYING} and now >= self._deadline:
            self._on_connection_lost("capd does not answer")
        is_waiting = self._phase != _UP and not self._has_given_up
        if is_waiting and now >= self._lost_at + self._patience:
            self._give_up()

    def _connect(self) -> None:
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        # A blocking connect would wait while the daemon's backlog is full (docs/design/actors.md).
        sock.setblocking(False)
        try:
            sock.connect(self._path)
        except OSError as error:
            sock.close()
            self._connect_failed(error)
            return
        uid = _peer_uid(sock)
        if uid != posix.getuid():
            sock.close()
            self._refuse_other_user(uid)
            return
        if self._starter is not None:
            self._starter.release()
        self._sock = sock
        self._phase = _GREETING
        self._deadline = time.monotonic() + _GREETING_TIMEOUT
        self._link_out.append(self._hello())

    def _connect_failed(self, error: OSError) -> None:
        # EAGAIN means that a daemon listens, but its backlog is full.
        is_absent = error.errno != errno.EAGAIN
        trouble = f"no daemon at {self._path}"
        if error.errno not in {errno.ENOENT, errno.ECONNREFUSED}:
            trouble += f" ({error.strerror or error})"
        if not (self._has_given_up and self._trouble):
            self._trouble = trouble
        if is_absent and self._starter is None and not self._daemon_pid and not self._attempts:
            # Serve anyway: a host would try for seconds to start a server that ends at once.
            write_stderr(f"capd: {trouble}\n{_START_HINT}")
            self._give_up()
        if is_absent and self._starter is not None and self._may_start():
            why = self._starter.step()
            if why:
                self._cannot_start(why)
        self._schedule()

    def _may_start(self) -> bool:
        """Tell whether the shim may start the daemon now."""
        if not self._is_coming_back:
            return False
        return not self._daemon_pid or time.monotonic() >= self._lost_at + self._restart_grace

    def _cannot_start(self, why: str) -> None:
        self._trouble = f"the daemon cannot start: {printable(why)}"
        words = [] if self._starter is None else self._starter.stderr_tail
        write_stderr(
            "\n".join([f"capd: {self._trouble}", *(f"  {line}" for line in words), _START_HINT])
        )
        self._give_up()

    def _refuse_other_user(self, uid: int) -> None:
        text = f"the daemon at {self._path} runs as user {uid}, not as you"
        if not self._daemon_pid:
            raise FatalError(f"capd: {text}\nRemove that socket, or set CAPD_SOCKET.")
        self._trouble = text
        self._schedule()

    def _schedule(self) -> None:
        """Set the time of the next attempt to connect."""
        delay = min(_BACKOFF_LAST, _BACKOFF_FIRST * 2 ** min(self._attempts, 10))
        if self._has_given_up:
            delay = self._idle_retry
        if self._starter is not None and self._starter.is_busy:
            delay = self._starter.pause
        self._attempts += 1
        # Jitter, so that 500 shims that have lost one daemon do not reconnect at the same moment.
        self._attempt_at = time.monotonic() + delay * (0.5 + posix.urandom(1)[0] / 510)

    def _on_connection_lost(self, why: str) -> None:
        """Close the connection, and decide what becomes of the requests in flight.

        `why` is the reason for the loss.
        """
        if self._phase == _UP:
            self._lost_at = time.monotonic()
            self._attempts = 0
        if self._sock is not None:
            self._watch(self._sock.fileno(), 0, is_kept=False)
            self._sock.close()
            self._sock = None
        self._phase = _DOWN
        self._trouble = self._closing_reason or why
        self._closing_reason = ""
        self._from_daemon = LineReader(DAEMON_LINE_LIMIT_BYTES)
        self._link_out.clear()
        self._pings.clear()
        self._writing = memoryview(b"")
        self._resolve_in_flight()
        if not self._is_coming_back:
            self._give_up()
        self._schedule()

    def _resolve_in_flight(self) -> None:
        again: deque[_Outgoing] = deque()
        for request in list(self._pending.values()):
            fate = after_loss(request, is_endless=request.method == _LISTEN)
            if fate == "unknown":
                text = (
                    "capd went away while this ran, so it may have taken effect: "
                    "check before repeating it"
                )
                self._fail(request, OUTCOME_UNKNOWN, text)
            elif fate == "not_sent":
                text = "capd went away before this was sent to a server: it is safe to repeat"
                self._fail(request, NOT_SENT, text)
            elif fate == "again" and request.line is not None:
                request.is_sent = False
                again.append(_Outgoing(request.line, request))
            self._set_due(request)
        again.extend(self._outbox)
        self._outbox = again
        self._outbox_bytes = sum(len(each.line) for each in again)

    def _give_up(self) -> None:
        """Answer the requests that wait for a daemon. The shim then tries to connect less often.

        If no daemon ever answered, the shim answers as an MCP server with one tool; otherwise with
        errors. Only `subscriptions/listen` goes on waiting.
        """
        self._has_given_up = True
        for request in list(self._pending.values()):
            if not self._is_waiting(request):
                self._fail_without_daemon(request)
        self._keep_in_outbox(
            lambda each: (
                each.request is not None and self._pending.get(each.request.key) is each.request
            )
        )

    def _keep_in_outbox(self, is_kept: "Callable[[_Outgoing], bool]") -> None:
        self._outbox = deque(each for each in self._outbox if is_kept(each))
        self._outbox_bytes = sum(len(each.line) for each in self._outbox)

    def _is_waiting(self, request: _HostRequest) -> bool:
        """Tell whether `request` waits for the next daemon, however long that takes."""
        return request.method == _LISTEN and request.line is not None and not self._refused_with

    def _set_due(self, request: _HostRequest) -> None:
        """Set the time at which the shim itself answers `request`, if the editor waits for it."""
        if request.line is None or self._pending.get(request.key) is not request:
            return
        is_up = self._phase == _UP
        is_unheard = request.method == _LISTEN and not is_up and not request.is_acknowledged
        is_starting = self._starter is not None and self._starter.is_busy
        is_saved = request.method in HANDSHAKES or (
            # The saved list has the tools at the beginning of a session, not later ones.
            request.method == "tools/list"
            and self._is_first_list
            and not is_up
            and bool(self._saved_list(request.line))
        )
        if is_starting and not is_up and (request.is_hook or is_saved):
            # Codex and Gemini CLI send their first model request without the tools of servers that
            # have not answered yet.
            slow = _COLD_HOOK if request.is_hook else 0.0
        elif is_saved or request.is_hook or is_unheard:
            slow = _SLOW
        elif request.method in _LISTS and not is_up and self._is_relisting(request.line):
            slow = _SLOW_LIST
        else:
            return
        now = time.monotonic()
        self._due[request] = now + slow if is_up else max(now, self._lost_at + slow)

    def _is_relisting(self, line: "bytes | bytearray") -> bool:
        return self._host_name(line) in RELISTING_CLIENTS

    def _host_name(self, line: "bytes | bytearray") -> str:
        """Return the client's name from the handshake, or else from the request `line`."""
        params = object_of(self._initialize or {}, "params")
        client = object_of(params, "clientInfo")
        if not self._initialize:
            client = object_of(object_of(params_of(line), "_meta"), META + "clientInfo")
        return text_of(client, "name")

    def _saved_list(self, line: "bytes | bytearray") -> "dict[str, object]":
        """Return the saved result for `line`, a `tools/list`; empty for later pages."""
        if params_of(line).get("cursor"):
            return {}
        saved = self._tool_lists.find(self._host_name(line), self._cwd)
        tools = object_of(saved, "result").get("tools")
        return {"tools": tools} if isinstance(tools, list) else {}

    def _answer_for_slow_daemon(self, request: _HostRequest) -> None:
        del self._due[request]
        if request.line is None:
            return
        if request.is_hook:
            self._answer_hook(request, request.line)
        elif request.method == _LISTEN or request.method in _LISTS:
            if self._phase != _UP:
                self._answer_for_missing_daemon(request, request.line)
        else:
            answer = self._handshakes.find(request.line)
            if answer:
                if request.method == "initialize":
                    self._is_initialized = self._is_replay_due = True
                self._answer_with(request, answer)

    def _answer_for_missing_daemon(self, request: _HostRequest, line: "bytes | bytearray") -> None:
        if request.method != _LISTEN:
            self._is_list_due = True
            listed: dict[str, object] = {_LISTS[request.method][1]: []}
            if request.method == "tools/list":
                listed = self._saved_list(line) or listed
            self._answer_with(request, {"result": _in_requested_form(listed, line)})
            return
        # Claude Code sends no other request before it has got this.
        request.is_acknowledged = True
        promised = object_of(params_of(line), "notifications")
        # Only the daemon knows which server sends notifications about a task, and whether it does.
        promised.pop("taskIds", None)
        params = {
            "notifications": promised,
            "_meta": {META + "subscriptionId": request.key},
        }
        self._send_to_host({"jsonrpc": "2.0", "method": _ACKNOWLEDGED, "params": params})

    def _answer_hook(self, request: _HostRequest, line: "bytes | bytearray") -> None:
        """Answer the prompt hook's `request` with an empty text, so that the prompt is not delayed.

        If its `line` still waits to be written, the daemon gets it later all the same.
        """
        for each in self._outbox:
            if each.request is request:
                each.request = None
        text = {"type": "text", "text": "{}"}
        self._answer_with(request, {"result": _in_requested_form({"content": [text]}, line)})

    def _answer_with(self, request: _HostRequest, outcome: "dict[str, object]") -> None:
        """Answer `request` with `outcome`, a saved result or error.

        A later answer of the daemon will be dropped.
        """
        self._forget(request)
        self._note_answered(request)
        self._send_to_host({"jsonrpc": "2.0", "id": request.key, **outcome})

    def _note_answered(self, request: _HostRequest) -> None:
        self._answered[request.key] = None
        if len(self._answered) > _MOST_ANSWERED:
            del self._answered[next(iter(self._answered))]

    def _fail_without_daemon(self, request: _HostRequest) -> None:
        if self._refused_with:
            self._fail(request, REFUSED, f"capd refuses this session: {self._refused_with}")
        elif not self._daemon_pid and request.line is not None:
            self._answer_as_stand_in(request, request.line)
        else:
            text = "so nothing was sent and it is safe to repeat"
            self._fail(
                request, NOT_SENT, f"capd is not running ({self._trouble}), {text}. {_START_HINT}"
            )

    def _answer_as_stand_in(self, request: _HostRequest, line: "bytes | bytearray") -> None:
        """Answer `request` as an MCP server with one tool would.

        The tool's description says why there are no others. `line` is the request's line.
        """
        params = params_of(line)
        result: dict[str, object] = {}
        if request.method == "initialize":
            self._is_initialized = self._is_replay_due = True
            self._initialize_key = None
            result = {
                "protocolVersion": text_of(params, "protocolVersion") or "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "capd", "version": VERSION},
                "instructions": self._report(),
            }
        elif request.method == "tools/list":
            schema = {"type": "object", "properties": {}}
            tool = {"name": _STATUS, "description": self._report(), "inputSchema": schema}
            self._is_list_due = True
            result = {"tools": [tool]}
        elif request.method == "tools/call" and params.get("name") == _STATUS:
            result = {"content": [{"type": "text", "text": self._report()}], "isError": False}
        elif request.method == "tools/call":
            self._fail(request, NOT_SENT, self._report())
            return
        elif request.method != "ping":
            # This also answers `server/discover`; the client then falls back to `initialize`.
            self._fail(request, METHOD_NOT_FOUND, f"capd is not running: no {request.method}")
            return
        self._forget(request)
        result = _in_requested_form(result, line)
        self._send_to_host({"jsonrpc": "2.0", "id": request.key, "result": result})

    def _report(self) -> str:
        """Return a text for a person or a model: why there are no tools, and what to do."""
        words = [] if self._starter is None else self._starter.stderr_tail
        last_words = ["Its last words:", *(f"  {line}" for line in words)] if words else []
        return "\n".join(
            [
                f"capd has no tools to offer: {self._trouble}.",
                *last_words,
                "Ask the user to run `capd daemon run` in a terminal, which says what is wrong.",
                "capd keeps trying, and its tools appear as soon as it runs.",
            ]
        )

    def _hello(self) -> bytes:
        pid = posix.getppid()
        name = self._env.get("CAPD_CLIENT") or _process_name(pid)
        client: dict[str, object] = {"name": encodable(name), "pid": pid}
        for variable in SESSION_VARIABLES:
            if self._env.get(variable):
                client["session"] = encodable(self._env[variable])
                break
        project = self._env.get("CAPD_PROJECT", "")
        if project and not project.startswith("/"):
            project = absolute(join(self._cwd, project)) if self._cwd else ""
        # The parent's active capabilities are copied once, at the first welcome.
        parent = "" if self._daemon_pid else self._env.get("CAPD_PARENT_SESSION", "")
        frame = hello(
            client,
            cwd=self._cwd,
            project=project,
            session=self._session,
            resume=self._resume,
            parent=parent,
            profile=self._env.get("CAPD_PROFILE", ""),
        )
        if self.credential_file:
            frame["credential"] = _text_in(self.credential_file)
        frame["durable"] = True
        again = [each.key for each in self._pending.values() if each.is_durable]
        if again:
            frame["again"] = again
        return encode(frame)

    def _on_frame(self, line: "bytes | bytearray") -> None:
        if line.startswith(_DISPATCHED) and (digits := line[len(_DISPATCHED) : -2]).isdigit():
            self._on_dispatched(int(digits))
            return
        frame = parse(line)
        if frame is None:
            return
        kind = frame.get("capd")
        if self._phase == _GREETING:
            if kind == "welcome":
                self._on_welcome(frame)
            elif kind == "refused":
                self._on_refused(frame)
        elif kind == "dispatched":
            self._on_dispatched(id_of(frame.get("id")))
        elif kind == "durable":
            self._on_durable(id_of(frame.get("id")))
        elif kind == "want_env":
            self._send_env(frame.get("keys"))
        elif kind == "closing":
            reason = text_of(frame, "reason")
            self._closing_reason = f"it closed the session: {reason}" if reason else ""
            self._is_coming_back = frame.get("reconnect") is not False

    def _on_welcome(self, frame: "dict[str, object]") -> None:
        daemon = frame.get("daemon")
        pid = daemon.get("pid") if isinstance(daemon, dict) else None
        is_same = is_same_session(self._daemon_pid, pid, frame)
        # A new session may have other tools than those that the host has listed.
        self._is_list_due = self._is_list_due or bool(self._daemon_pid and not is_same)
        self._daemon_pid = pid if isinstance(pid, int) and pid else -1
        self._session = text_of(frame, "session") or self._session
        self._resume = text_of(frame, "resume")
        self._is_coming_back = True
        self._refused_with = ""
        if self._starter is not None:
            self._starter.on_answer()
        self._send_env(frame.get("want_env"))
        if not is_same:
            self._keep_in_outbox(lambda each: not each.is_reply)
        if frame.get("resumed") is True:
            # A resumed session has the tools that its conversation has switched on.
            self._is_first_list = False
        is_known = is_same and not self._is_replay_due
        if self._is_initialized and self._initialize is not None and not is_known:
            self._replay()
        else:
            self._go_up()

    def _own_key(self) -> str:
        """Return an id for a request of the shim's own."""
        self._own_requests += 1
        return f"capd-shim-{posix.getpid()}-{self._own_requests}"

    def _replay(self) -> None:
        """Send the host's `initialize` to a daemon that did not get it itself."""
        self._replay_key = self._own_key()
        self._link_out.append(encode({**(self._initialize or {}), "id": self._replay_key}))
        self._phase = _REPLAYING
        self._deadline = time.monotonic() + _REPLAY_TIMEOUT

    def _on_replay_answer(self, line: "bytes | bytearray | TruncatedLine") -> None:
        self._replay_key = ""
        self._is_replay_due = False
        self._is_list_due = True
        self._handshakes.note(encode(self._initialize or {}), line)
        if self._initialized_line:
            self._link_out.append(self._initialized_line)
            self._keep_in_outbox(lambda each: each.line != self._initialized_line)
        self._go_up()

    def _send_list_changed(self) -> None:
        """Send the host `list_changed` for each kind of list that it has requested."""
        self._is_list_due = False
        for kind in sorted(self._listed):
            change: dict[str, object] = {
                "jsonrpc": "2.0",
                "method": f"notifications/{kind}/list_changed",
            }
            if self._initialized_line:
                self._send_to_host(change)
            for request in self._pending.values():
                if request.method != _LISTEN or request.line is None:
                    continue
                if object_of(params_of(request.line), "notifications").get(f"{kind}ListChanged"):
                    params = {"_meta": {META + "subscriptionId": request.key}}
                    self._send_to_host({**change, "params": params})

    def _go_up(self) -> None:
        self._phase = _UP
        if self._is_list_due:
            self._send_list_changed()
        self._has_given_up = False
        self._attempts = 0
        self._trouble = ""

    def _on_refused(self, frame: "dict[str, object]") -> None:
        code = text_of(frame, "code")
        message = text_of(frame, "message") or code or "no reason given"
        step = after_refusal(code, has_token=bool(self._resume))
        if step == "start_anew":
            self._resume = ""
            self._session = self._env.get("CAPD_SESSION", "")
        elif step == "end":
            if message != self._refused_with:
                write_stderr(f"capd: refused by the daemon at {self._path}: {printable(message)}")
            self._refused_with = message
            self._give_up()
        self._on_connection_lost(message)

    def _send_env(self, keys: object) -> None:
        if not isinstance(keys, list) or not keys:
            return
        values = requested_values(self._env, keys)
        self._link_out.append(encode({"capd": "env", "env": values}))

    def _on_dispatched(self, key: "int | str | float | None") -> None:
        request = None if key is None else self._pending.get(key)
        if request is not None:
            request.is_dispatched = True
            self._release(request)

    def _on_durable(self, key: "int | str | float | None") -> None:
        request = None if key is None else self._pending.get(key)
        # Without its line, which was too large to keep, the request cannot be sent again.
        if request is not None and request.line is not None:
            request.is_durable = True
        elif request is not None:
            request.is_dispatched = True

    def _read_daemon(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            chunk = sock.recv(_bytes_to_read(self._from_daemon))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._on_connection_lost(f"the connection broke: {error.strerror}")
            return
        if not chunk:
            self._on_connection_lost("it closed the connection")
            return
        for line in self._from_daemon.feed(chunk):
            if self._sock is sock:
                self._on_daemon_line(line)
        if self._to_host and self._own_out >= 0:
            self._write_host(is_gone=False)

    def _on_daemon_line(self, line: "bytes | bytearray | TruncatedLine") -> None:
        if not isinstance(line, TruncatedLine) and line.startswith(LINK_PREFIX):
            self._on_frame(line)
            return
        if self._phase == _GREETING:
            self._on_connection_lost("it does not speak capd's protocol")
            return
        shape = shape_from_daemon(line)
        key = shape.key
        if key is not None and shape.kind in {"result", "error"}:
            if self._phase == _REPLAYING and key == self._replay_key:
                self._on_replay_answer(line)
                return
            if key in self._pings:
                self._due.pop(self._pings.pop(key), None)
                return
            if not self._on_outcome(key, shape, line):
                return
        if isinstance(line, TruncatedLine) or (
            shape.method == _ACKNOWLEDGED and self._was_acknowledged(line)
        ):
            return
        self._queue_for_host(line)

    def _was_acknowledged(self, line: "bytes | bytearray") -> bool:
        """Tell whether an earlier daemon sent the host the acknowledgement in `line`."""
        key = id_of(object_of(params_of(line), "_meta").get(META + "subscriptionId"))
        request = None if key is None else self._pending.get(key)
        was_acknowledged = request is not None and request.is_acknowledged
        if request is not None:
            request.is_acknowledged = True
            self._due.pop(request, None)
        return was_acknowledged

    def _on_outcome(
        self, key: "int | str | float", shape: Shape, line: "bytes | bytearray | TruncatedLine"
    ) -> bool:
        """Note the outcome of request `key`, which is in `line`; return whether to pass it on."""
        request = self._pending.get(key)
        if request is None:
            # The outcome is the daemon's second answer if the shim has answered the request itself.
            is_second = key in self._answered
            self._answered.pop(key, None)
            if is_second and key == self._initialize_key:
                self._is_replay_due = False
                self._initialize_key = None
            return not is_second
        if isinstance(line, TruncatedLine):
            text = f"the answer was longer than {DAEMON_LINE_LIMIT_BYTES} bytes; the call has run"
            self._fail(request, OUTCOME_UNKNOWN, text)
            return False
        if key == self._initialize_key:
            self._is_initialized = shape.kind == "result"
            self._is_replay_due = False
            self._initialize_key = None
        if request.method in HANDSHAKES and request.line is not None:
            self._handshakes.note(request.line, line)
        if request.method == "tools/list" and request.line is not None and self._is_first_list:
            self._is_first_list = False
            if shape.kind == "result":
                self._tool_lists.note(self._host_name(request.line), self._cwd, line)
        self._forget(request)
        return True

    def _write_daemon(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            while self._next_output():
                sent = sock.send(self._writing[:_READ_BYTES])
                self._writing = self._writing[sent:]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._write_failed(sock, error)

    def _next_output(self) -> bool:
        """Fill the buffer for the daemon if it is empty; return whether it has bytes to send."""
        if self._writing:
            return True
        if self._link_out:
            self._writing = memoryview(self._link_out.popleft())
            return True
        lines: list[bytes | bytearray] = []
        size = 0
        while self._phase == _UP and self._outbox:
            size += len(self._outbox[0].line)
            # A ping for a hook in this batch has to be sent right after the batch.
            if lines and (size > _BATCH_BYTES or self._link_out):
                break
            item = self._outbox.popleft()
            self._outbox_bytes -= len(item.line)
            request = item.request
            if request is not None:
                if self._pending.get(request.key) is not request:
                    size -= len(item.line)
                    continue
                request.is_sent = True
                request.sends += 1
                if request.is_hook:
                    self._ping_behind(request)
            lines.append(item.line)
        self._writing = memoryview(lines[0] if len(lines) == 1 else b"".join(lines))
        return bool(lines)

    def _ping_behind(self, request: _HostRequest) -> None:
        """Send a ping after a hook's request, to find out whether the daemon is alive.

        A daemon that answers the ping is alive, even if the turn takes long. If no answer comes
        within `_SLOW` seconds, the shim answers the hook itself.
        """
        key = self._own_key()
        self._pings[key] = request
        self._due[request] = time.monotonic() + _SLOW
        self._link_out.append(encode({"jsonrpc": "2.0", "id": key, "method": "ping"}))

    def _write_failed(self, sock: _socket.socket, error: OSError) -> None:
        # Read what the daemon wrote before it died. It may contain `dispatched` frames: without
        # them, a request that may have run would be sent again.
        try:
            while self._sock is sock and (chunk := sock.recv(_READ_BYTES)):
                for line in self._from_daemon.feed(chunk):
                    if self._sock is sock:
                        self._on_daemon_line(line)
        except OSError:
            pass
        if self._sock is sock:
            self._on_connection_lost(f"the connection broke: {error.strerror}")

    def _read_host(self, *, is_gone: bool) -> None:
        if not self._is_reading_host():
            if is_gone:
                self._code = 0
            return
        try:
            chunk = posix.read(0, _bytes_to_read(self._from_host))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._leave_at = time.monotonic() + _LAST_ANSWERS
            return
        for line in self._from_host.feed(chunk):
            self._on_host_line(line)
        # Written without polling first: the socket has room nearly always.
        if self._has_output():
            self._write_daemon()

    def _may_leave(self) -> bool:
        """Tell whether no answer is waited for after the end of the host's input.

        A program that pipes its requests into the shim reads the answers. An editor that quits does
        not: its calls of tools are cancelled.
        """
        methods = {each.method for each in self._pending.values()} - {_LISTEN}
        if "tools/call" in methods or time.monotonic() >= self._leave_at:
            return True
        return not methods and not self._to_host

    def _on_host_line(self, line: "bytes | bytearray | TruncatedLine") -> None:
        if isinstance(line, TruncatedLine):
            text = f"the line is longer than {LINE_LIMIT_BYTES} bytes; nothing was sent"
            self._answer(shape_of(line).key, INVALID_REQUEST, text)
            return
        if not line.strip():
            return
        if line.startswith(LINK_PREFIX):
            # Link frames come from the shim alone, never from the host.
            shape = shape_of(line)
            if shape.kind == "request":
                self._answer(shape.key, INVALID_REQUEST, "`capd` is not a member of MCP requests")
            return
        shape = shape_of(line)
        if shape.kind == "request" and shape.key is not None:
            self._on_request(shape.key, shape.method, line)
        elif shape.kind == "notification":
            self._on_notification(shape.method, line)
        elif not self._has_given_up:
            self._post(_Outgoing(line, None, is_reply=shape.kind in {"result", "error"}))
        elif shape.kind not in {"result", "error"}:
            self._answer(None, NOT_SENT, f"capd is not running ({self._trouble})")

    def _on_request(self, key: "int | str | float", method: str, line: "bytes | bytearray") -> None:
        if method == "initialize":
            self._initialize = parse(line)
            self._initialize_key = key
            self._is_initialized = False
            self._initialized_line = b""
        if method in _LISTS:
            self._listed.add(_LISTS[method][0])
        is_kept = self._retained_bytes + len(line) <= _RETAINED_BYTES
        request = _HostRequest(key, method, line if is_kept else None)
        if method == "tools/call":
            # The call may switch tools on.
            self._is_first_list = False
        self._retained_bytes += len(line) if is_kept else 0
        self._pending[key] = request
        self._answered.pop(key, None)
        if request.is_hook and self._env.get("CAPD_ACP"):
            # `capd acp` has sent the prompt already, before the agent got it.
            self._answer_hook(request, line)
            return
        if self._has_given_up and not self._is_waiting(request):
            self._fail_without_daemon(request)
            return
        self._post(_Outgoing(line, request))
        self._set_due(request)

    def _on_notification(self, method: str, line: "bytes | bytearray") -> None:
        if method == "notifications/initialized":
            self._initialized_line = bytes(line)
        if method == "notifications/cancelled" and not self._cancel(line):
            return
        if not self._has_given_up:
            self._post(_Outgoing(line, None))

    def _cancel(self, line: "bytes | bytearray") -> bool:
        """Forget the request that the host cancels; return whether the daemon has to be told."""
        key = id_of(params_of(line).get("requestId"))
        request = None if key is None else self._pending.get(key)
        if request is None:
            return True
        self._forget(request)
        return request.is_sent

    def _post(self, item: _Outgoing) -> None:
        self._outbox.append(item)
        self._outbox_bytes += len(item.line)

    def _release(self, request: _HostRequest) -> None:
        if request.line is not None:
            self._retained_bytes -= len(request.line)
            request.line = None

    def _forget(self, request: _HostRequest) -> None:
        self._release(request)
        self._due.pop(request, None)
        if self._pending.get(request.key) is request:
            del self._pending[request.key]

    def _fail(self, request: _HostRequest, code: int, text: str) -> None:
        if request.is_hook:
            # The client would show an error to the user. An empty answer lets the prompt go on.
            self._answer_hook(request, request.line or b"")
            return
        if request.is_durable and code == NOT_SENT:
            code, text = OUTCOME_UNKNOWN, f"{text} (calls of the script may have run)"
        self._forget(request)
        self._note_answered(request)
        self._answer(request.key, code, text)

    def _answer(self, key: "int | str | float | None", code: int, text: str) -> None:
        error = {"code": code, "message": text, "data": {"code": ERROR_NAMES[code]}}
        self._send_to_host({"jsonrpc": "2.0", "id": key, "error": error})

    def _send_to_host(self, message: "dict[str, object]") -> None:
        self._queue_for_host(encode(message))

    def _queue_for_host(self, line: "bytes | bytearray") -> None:
        self._to_host.append(memoryview(line))
        self._to_host_bytes += len(line)

    def _write_host(self, *, is_gone: bool) -> None:
        if is_gone:
            self._code = 0
            return
        # A pipe that polls as writable takes PIPE_BUF bytes without blocking (pipe(7)).
        fd, most = (self._own_out, _READ_BYTES) if self._own_out >= 0 else (1, select.PIPE_BUF)
        text = self._to_host[0]
        if len(self._to_host) > 1 and len(text) < most:
            text = memoryview(b"".join(_first_bytes(self._to_host, most)))
        try:
            written = posix.write(fd, text[:most])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._code = 0
            return
        self._to_host_bytes -= written
        while written:
            line = self._to_host.popleft()
            if len(line) > written:
                self._to_host.appendleft(line[written:])
                break
            written -= len(line)

    def _say_goodbye(self) -> None:
        """Send what is queued, and then `goodbye`, which ends the session."""
        sock = self._sock
        if sock is None:
            return
        sock.settimeout(_GOODBYE_TIMEOUT)
        try:
            while self._next_output():
                sock.sendall(self._writing)
                self._writing = memoryview(b"")
            sock.sendall(encode({"capd": "goodbye"}))
        except OSError:
            return
        finally:
            sock.close()


def _bytes_to_read(reader: LineReader) -> int:
    return _READ_BYTES if reader.is_within_line else _FIRST_READ_BYTES


def _first_bytes(lines: "deque[memoryview]", most: int) -> "list[memoryview]":
    """Return the first `most` bytes of `lines`, in parts; all of them if there are fewer."""
    found: list[memoryview] = []
    for line in lines:
        found.append(line[:most])
        most -= len(line)
        if most <= 0:
            break
    return found


def _own_output() -> int:
    """Open the host's pipe a second time, non-blocking; -1 if stdout is no pipe.

    O_NONBLOCK on descriptor 1 itself would also affect other processes that share its file
    description.
    """
    try:
        if posix.fstat(1).st_mode & 0o170000 != 0o010000:
            return -1
        return posix.open("/proc/self/fd/1", posix.O_WRONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    except OSError:
        return -1


def _wake_on_signals() -> int:
    """Return a descriptor that becomes readable on SIGTERM, SIGINT or SIGHUP."""
    readable, writable = posix.pipe()
    posix.set_blocking(writable, False)
    _signal.set_wakeup_fd(writable)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, lambda *_: None)
    return readable


def _peer_uid(sock: _socket.socket) -> int:
    """Return the user id of the daemon at the other end of `sock`.

    On platforms where it is not available, return this user's.
    """
    if sys.platform != "linux":
        return posix.getuid()
    credentials = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _working_directory() -> str:
    try:
        return posix.getcwd()
    except OSError:
        return ""


def _process_name(pid: int) -> str:
    """Return the name of the client whose process has this pid.

    If the process's command line names a known client, that is the name. Otherwise it is the
    process's own name, which for a client on Node is only `node` or `MainThread`; `unknown` if
    there is none.
    """
    command = _text_in(f"/proc/{pid}/cmdline").split("\0")
    return client_of(command) or _text_in(f"/proc/{pid}/comm").strip() or "unknown"


def client_of(command: "list[str]") -> str:
    """Return the client whose program or npm package a command line names; empty if none.

    The last part of a path is compared with `PROGRAMS`, and so are the parts after `node_modules`.
    """
    # Node's own options come before the script.
    for path in [each for each in command if not each.startswith("-")][:2]:
        folder, _, last = path.rpartition("/")
        packages = folder.rpartition("/node_modules/")[2] if "/node_modules/" in folder else ""
        for part in (last.rpartition(".")[0] or last, *packages.split("/")):
            if part in PROGRAMS:
                return PROGRAMS[part]
    return ""


def _seconds(text: str, default: float) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return default
