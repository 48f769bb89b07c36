"""The editor's end of the socket: MCP on stdin and stdout, spliced to capd.

One file of builtins, so that `python -I -S shim.py [SOCKET]` answers an editor within tens
of milliseconds: no `os`, no `socket`, no `json`, no `typing` at run time.

It keeps two rules. Every request of the host gets exactly one outcome, whatever becomes of
the daemon. A request that may have run is never sent twice.

    down -> greeting -> (replaying ->) up -> down ...

Where there is no daemon it starts one, and where none can be started it stands in with a
single tool that says why: an editor never finds a broken server.

What an editor stands still for does not wait for a slow daemon: in any of these states a
handshake is answered as a daemon has answered it before, a prompt hook with nothing to say;
and unless up, a list with nothing for now, if the host is known to list again.

Lines go through whole, so that a daemon which dies in the middle of one leaves no half line
behind: a result of 256 MiB costs as much memory here until the editor has read it. Both
directions stop reading when the other side does not drain.
"""

import _json
import _socket
import errno
import posix
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections import deque
    from collections.abc import Callable, Mapping
else:
    import _signal
    from _collections import deque

VERSION = "0.1.0"
PROTOCOL = 1
LINK_PREFIX = b'{"capd":'
LINE_LIMIT_BYTES = 32 * 1024 * 1024
DAEMON_LINE_LIMIT_BYTES = 257 * 1024 * 1024

# JSON-RPC error codes (docs/protocol.md).
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
NOT_SENT = 4001
OUTCOME_UNKNOWN = 4002
REFUSED = 4003
_NAMES = {
    INVALID_REQUEST: "invalid_request",
    METHOD_NOT_FOUND: "method_not_found",
    NOT_SENT: "not_sent",
    OUTCOME_UNKNOWN: "outcome_unknown",
    REFUSED: "refused",
}

EXIT_FAILED = 1
EXIT_USAGE = 2

_READ_BYTES = 256 * 1024
_QUEUE_BYTES = 1024 * 1024
"""Where a side stops reading: what the other side has not taken yet."""
_HELD_BYTES = 32 * 1024 * 1024
"""What is kept of requests in flight so that they can be sent again."""
_WINDOW_BYTES = 4096
"""As much of a line's two ends as is searched for its id before the whole is parsed."""
_ANSWERED_KEPT = 10_000
_LONGEST_NUMBER = 24
_TOGETHER_BYTES = 64 * 1024
"""Lines that wait are written in one piece up to this size."""
_SENDS = 3
"""A request that was on its way each time a daemon died is not sent a fourth time."""

_BACKOFF_FIRST = 0.05
_BACKOFF_LAST = 1.0
_BACKOFF_IDLE = 5.0
_PATIENCE = 60.0
_GREETING_TIMEOUT = 10.0
_REPLAY_TIMEOUT = 30.0
_FAREWELL_TIMEOUT = 1.0
_START_TIMEOUT = 30.0
_START_POLL = 0.05
_START_AGAIN = 60.0
"""A daemon that could not start is not started again at once, by this shim or another."""
_RESTART_GRACE = 2.0
"""A service manager that restarts a lost daemon is faster; two of them would be in the way."""
_SLOW = 0.25
"""From here on a daemon is slow: the shim answers what an editor stands still for. One that runs
answers within 10 ms, one that starts needs longer; a prompt hook has 300 ms in all
(docs/design/relay.md),
and Claude Code waits 3 s for `server/discover`, 5 s for a server's start and 5 s for a hook."""
_SLOW_LIST = 0.75
"""For a list longer, as a daemon that has to be started needs 0.2 to 0.5 s: an empty list
costs the host a second one."""
_RELISTING = ("claude-code", "opencode", "gemini-cli-mcp-client")
"""Hosts that list again within a turn or before the next, by the name in their `clientInfo`."""
_MAKING_WAY = 1.0
_WORD_KEPT = 10.0
"""How long the shims that waited for a daemon in vain need not try the same."""
_STDERR_LINES = 10
_STDERR_BYTES = 8192
_NOT_FOR_THE_DAEMON = (
    b"CAPD_CLIENT",
    b"CAPD_SESSION",
    b"CAPD_PARENT_SESSION",
    b"CAPD_PROJECT",
    b"CAPD_NO_START",
    b"CAPD_ACP",
    b"CAPD_ACP_TREE",
    b"CAPD_INSTANCE",
    b"NOTIFY_SOCKET",
    b"LISTEN_FDS",
    b"LISTEN_PID",
    b"LISTEN_FDNAMES",
    b"WATCHDOG_PID",
    b"WATCHDOG_USEC",
)
"""What speaks of this client, or of the service that it may run in, and of no other."""

_CLIENT_SESSIONS = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID", "QWEN_CODE_SESSION_ID")
"""Where a client says which of its conversations started us; its hooks say the same."""

_DOWN, _GREETING, _REPLAYING, _UP = "down", "greeting", "replaying", "up"
_STATUS = "capd_status"
_TURN = "capd_turn"
"""The tool that a prompt hook calls."""
_DISCOVER = "server/discover"
_HANDSHAKES = ("initialize", _DISCOVER)
_LISTEN = "subscriptions/listen"
"""The one request that is open as long as the host likes, and does nothing that could be done
twice: it is never answered for want of a daemon, each daemon gets it in its turn."""
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_LISTS = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
}
"""What each of a host's lists is of: the kind that changes, and the member of the result."""
_META = "io.modelcontextprotocol/"
_KEPT_FILE = "handshake.json"
_KEPT_BYTES = 64 * 1024
_KEPT_ANSWERS = 8
_START_HINT = "Start it with: capd daemon run"
_PASSING_REFUSALS = ("overloaded", "stopping", "session_in_use")


class _ScanOptions:
    """What `_json.make_scanner` wants to know."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: "dict[str, str]" = {}  # noqa: RUF012 - read by C code, as an attribute


def _refuse_type(value: object) -> str:
    raise TypeError(type(value).__name__)


_scan = _json.make_scanner(_ScanOptions())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
_pieces = _json.make_encoder(
    None, _refuse_type, _json.encode_basestring_ascii, None, ":", ",", False, False, True
)

# With the json package not imported, the scanner of 3.11 finds no class for its error and
# fails with SystemError instead.
_NOT_JSON = (ValueError, StopIteration, SystemError)


def _encode(value: "dict[str, object]") -> bytes:
    """Return `value` as one line of JSON, newline included."""
    return ("".join(_pieces(value, 0)) + "\n").encode()


def _parse(line: "bytes | bytearray") -> "dict[str, object] | None":
    """Return the object in `line`, or None where it is something else."""
    try:
        text = line.decode().strip(" \t\r\n")
        value, end = _scan(text, 0)
    except (*_NOT_JSON, RecursionError, MemoryError):
        return None
    return value if isinstance(value, dict) and end == len(text) else None


def _text_of(frame: "dict[str, object]", name: str) -> str:
    value = frame.get(name)
    return value if isinstance(value, str) else ""


def _object_of(frame: "dict[str, object]", name: str) -> "dict[str, object]":
    value = frame.get(name)
    return value if isinstance(value, dict) else {}


def _params_of(line: "bytes | bytearray") -> "dict[str, object]":
    return _object_of(_parse(line) or {}, "params")


class _Cut:
    """What is left of a line that was too long: its ends."""

    __slots__ = ("head", "tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head
        self.tail = tail


class _Lines:
    """Cuts a stream into lines, newline included, in time linear to their length."""

    __slots__ = ("_begun", "_cut", "_limit")

    def __init__(self, limit: int = LINE_LIMIT_BYTES) -> None:
        self._begun = bytearray()
        self._cut: _Cut | None = None
        self._limit = limit

    def feed(self, chunk: bytes) -> "list[bytes | bytearray | _Cut]":
        """Take the next bytes; return the lines that they complete."""
        lines: list[bytes | bytearray | _Cut] = []
        start = 0
        while end := chunk.find(b"\n", start) + 1:
            piece = chunk[start:end]
            start = end
            if self._begun or self._cut is not None:
                self._add(piece)
                lines.append(self._take())
            else:
                lines.append(piece)
        if start < len(chunk):
            self._add(chunk[start:])
        return lines

    def _add(self, piece: bytes) -> None:
        if self._cut is not None:
            self._cut.tail = (self._cut.tail + piece)[-_WINDOW_BYTES:]
            return
        # A bytearray grows in place: joining a list of chunks would hold the line twice.
        self._begun += piece
        if len(self._begun) > self._limit:
            self._cut = _Cut(
                bytes(self._begun[:_WINDOW_BYTES]), bytes(self._begun[-_WINDOW_BYTES:])
            )
            self._begun = bytearray()

    def _take(self) -> "bytearray | _Cut":
        line = self._begun if self._cut is None else self._cut
        self._begun, self._cut = bytearray(), None
        return line


class _Shape:
    """As much of a JSON-RPC line as the shim acts on."""

    __slots__ = ("key", "kind", "method")

    def __init__(self, kind: str, key: "int | str | None", method: str) -> None:
        self.kind = kind
        """`request`, `notification`, `result`, `error`, or empty where it is none of them."""
        self.key = key
        self.method = method


def _shape(line: "bytes | bytearray | _Cut") -> _Shape:
    """Say what `line` is, if it is long from its ends: the member in between may be 32 MiB."""
    if isinstance(line, _Cut):
        head, tail = line.head, line.tail
    elif len(line) > _WINDOW_BYTES:
        head, tail = bytes(line[:_WINDOW_BYTES]), bytes(line[-_WINDOW_BYTES:])
    else:
        return _shape_of_whole(line)
    shape = _Shape("", None, "")
    members = _members_from_head(head.decode("utf-8", "replace"))
    if members:
        # Of two members with one name the last counts, as everywhere.
        members.update(_members_from_tail(tail.decode("utf-8", "replace")))
        shape = _classify(members)
    if shape.kind or isinstance(line, _Cut):
        return shape
    return _shape_of_whole(line)


_ANSWER = b'{"jsonrpc":"2.0","id":'
_DISPATCHED = b'{"capd":"dispatched","id":'


def _shape_from_daemon(line: "bytes | bytearray | _Cut") -> _Shape:
    """Say what a daemon's line is: its answers to numbered requests all begin alike."""
    if not isinstance(line, _Cut) and line.startswith(_ANSWER):
        end = line.find(b",", len(_ANSWER), len(_ANSWER) + _LONGEST_NUMBER)
        digits = line[len(_ANSWER) : end]
        if end > 0 and digits.isdigit():
            if line.startswith(b'"result":', end + 1):
                return _Shape("result", int(digits), "")
            if line.startswith(b'"error":', end + 1):
                return _Shape("error", int(digits), "")
    return _shape(line)


def _shape_of_whole(line: "bytes | bytearray") -> _Shape:
    # A list is a batch, which the daemon answers; parsing it would find no id.
    whole = None if line[:1] == b"[" else _parse(line)
    return _Shape("", None, "") if whole is None else _classify(whole, is_whole=True)


def _classify(members: "dict[str, object]", *, is_whole: bool = False) -> _Shape:
    key = _key(members.get("id"))
    method = members.get("method")
    if isinstance(method, str):
        if "id" in members:
            return _Shape("request", key, method)
        if is_whole or method.startswith("notifications/"):
            return _Shape("notification", None, method)
    elif "id" in members:
        if "error" in members:
            return _Shape("error", key, "")
        if "result" in members:
            return _Shape("result", key, "")
    return _Shape("", key, "")


_LOOKED_AT = ("id", "method")
"""Members whose value counts, not only that they are there."""


def _key(value: object) -> "int | str | None":
    # A bool is an int to Python and no id to anybody; neither is 1.0, which equals 1.
    return value if type(value) is int or type(value) is str else None


def _members_from_head(text: str) -> "dict[str, object]":
    """Collect the members of an object up to the first container, of that the name alone.

    Returns nothing where a value that is needed cannot be read.
    """
    members: dict[str, object] = {}
    at = _after_space(text, 0)
    if text[at : at + 1] != "{":
        return members
    while True:
        start = _after_space(text, at + 1)
        end = _string_end(text, start)
        name = _scalar(text[start:end])
        at = _after_space(text, end)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            return members
        start = _after_space(text, at + 1)
        end = _scalar_end(text, start)
        at = _after_space(text, end)
        # A value that the window cuts off is not looked at: 12 may be the start of 123.
        if end == start or at >= len(text):
            members[name] = None
            return {} if name in _LOOKED_AT else members
        members[name] = _scalar(text[start:end])
        if text[at] != ",":
            return members


def _members_from_tail(text: str) -> "dict[str, object]":
    """Collect the members of an object from its last to the last that is a container.

    Backwards is unambiguous: behind the closing brace there is no string, and a backslash
    stands in strings only, so each quote without one opens or closes.
    """
    members: dict[str, object] = {}
    at = _before_space(text, len(text))
    if text[at - 1 : at] != "}":
        return members
    while True:
        end = _before_space(text, at - 1)
        start = _scalar_start(text, end)
        at = _before_space(text, start)
        if start == end or text[at - 1 : at] != ":":
            return members
        name_end = _before_space(text, at - 1)
        name_start = _string_start(text, name_end)
        name = _scalar(text[name_start:name_end])
        if not isinstance(name, str):
            return members
        members.setdefault(name, _scalar(text[start:end].strip(_SPACE)))
        at = _before_space(text, name_start)
        if text[at - 1 : at] != ",":
            return members


_SPACE = " \t\r\n"


def _after_space(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _SPACE:
        at += 1
    return at


def _before_space(text: str, at: int) -> int:
    while at > 0 and text[at - 1] in _SPACE:
        at -= 1
    return at


def _backslashes(text: str, quote: int) -> int:
    """Return how many backslashes stand right before `quote`: an odd number escapes it."""
    at = quote
    while at > 0 and text[at - 1] == "\\":
        at -= 1
    return quote - at


def _string_end(text: str, start: int) -> int:
    """Return the index behind the string that begins at `start`; `start` where there is none."""
    if text[start : start + 1] != '"':
        return start
    quote = text.find('"', start + 1)
    while quote > 0 and _backslashes(text, quote) % 2:
        quote = text.find('"', quote + 1)
    return quote + 1 if quote > 0 else start


def _string_start(text: str, end: int) -> int:
    """Return the index of the string that ends before `end`; `end` where there is none."""
    if text[end - 1 : end] != '"':
        return end
    quote = text.rfind('"', 0, end - 1)
    while quote > 0 and _backslashes(text, quote) % 2:
        quote = text.rfind('"', 0, quote)
    # Backslashes up to the edge of the window: whether they are odd is out of sight.
    return quote if quote > _backslashes(text, quote) else end


def _scalar_end(text: str, start: int) -> int:
    first = text[start : start + 1]
    if first == '"':
        return _string_end(text, start)
    at = start
    while at < len(text) and text[at] not in ',{}[]":' + _SPACE:
        at += 1
    return at


def _scalar_start(text: str, end: int) -> int:
    if text[end - 1 : end] == '"':
        return _string_start(text, end)
    at = end
    while at > 0 and text[at - 1] not in ',{}[]":' + _SPACE:
        at -= 1
    return at


def _scalar(text: str) -> object:
    """Return the string, number or literal that is `text`; None where it is none."""
    try:
        value, end = _scan(text, 0)
    except _NOT_JSON:
        return None
    return value if end == len(text) else None


def _is_dir(path: str) -> bool:
    try:
        return posix.stat(path).st_mode & 0o170000 == 0o040000
    except (OSError, ValueError):
        return False


def socket_path(
    env: "Mapping[str, str]", uid: int, is_dir: "Callable[[str], bool]" = _is_dir
) -> str:
    """Return the path of the socket, as `capd_protos.places.socket_path` does."""
    if env.get("CAPD_SOCKET"):
        return _absolute(env["CAPD_SOCKET"])
    if env.get("CAPD_HOME"):
        return _join(_absolute(env["CAPD_HOME"]), "run/capd.sock")
    if env.get("XDG_RUNTIME_DIR"):
        return _join(env["XDG_RUNTIME_DIR"], "capd/capd.sock")
    if is_dir(f"/run/user/{uid}"):
        return f"/run/user/{uid}/capd/capd.sock"
    return _join(_home(env), ".local/state/capd/run/capd.sock")


def _join(folder: str, rest: str) -> str:
    return folder + rest if folder.endswith("/") else f"{folder}/{rest}"


def _absolute(path: str) -> str:
    """Return what `os.path.abspath` would."""
    if not path.startswith("/"):
        path = _join(posix.getcwd(), path)
    # POSIX leaves two leading slashes to the implementation; three are one.
    root = "//" if path.startswith("//") and not path.startswith("///") else "/"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return root + "/".join(parts)


def _home(env: "Mapping[str, str]") -> str:
    home = env.get("HOME")
    if home:
        return home
    own = posix.environ.get(b"HOME")
    if own is None:
        import pwd

        try:
            return pwd.getpwuid(posix.getuid()).pw_dir.rstrip("/") or "/"
        except KeyError:
            return "~"
    return own.decode("utf-8", "surrogateescape").rstrip("/") or "/"


def _state_folder(env: "Mapping[str, str]") -> str:
    """Return the folder of the daemon's log, as `capd_protos.places` has it."""
    if env.get("CAPD_HOME"):
        return _join(_absolute(env["CAPD_HOME"]), "state")
    return _join(env.get("XDG_STATE_HOME") or _join(_home(env), ".local/state"), "capd")


def _make_folder(path: str) -> None:
    try:
        posix.mkdir(path, 0o700)
    except FileExistsError:
        # Another shim was faster.
        return


def _make_folders(path: str) -> None:
    """Create `path` and what is above it, for this user alone.

    Raises:
        OSError: it cannot be created, or is not this user's.
    """
    if not _is_dir(path):
        above = path.rpartition("/")[0]
        if above and not _is_dir(above):
            _make_folders(above)
        _make_folder(path)
    status = posix.lstat(path)
    if status.st_mode & 0o170000 != 0o040000 or status.st_uid != posix.getuid():
        raise OSError(errno.EPERM, "it is not a folder of yours", path)


class _Starter:
    """Starts the daemon, and of many shims at once lets one do it."""

    def __init__(self, socket: str, env: "Mapping[str, str]", *, is_named: bool) -> None:
        self._socket = socket
        self._env = env
        self._is_named = is_named
        """Whether the socket was chosen by an argument, of which the daemon cannot know."""
        self._folder = socket.rpartition("/")[0] or "/"
        # Absolute from here on: the shim leaves its folder before it starts the daemon.
        self._home = _absolute(env["CAPD_HOME"]) if env.get("CAPD_HOME") else ""
        self._log_path = _join(_state_folder(env), "capd.log")
        self._log = -1
        self._log_start = 0
        self._lock = -1
        self._has_lock = False
        self._is_checked = False
        self._pid = 0
        self._has_served = False
        self._ended = ""
        self._ended_at = 0.0
        self._deadline = 0.0
        self._again_at = 0.0
        self.last_words: list[str] = []
        """The last lines that the daemon which could not start wrote to stderr."""

    @property
    def is_busy(self) -> bool:
        """Whether somebody is starting the daemon, so that it may be there any moment."""
        return self._deadline > 0

    def step(self) -> str:
        """Do what comes next where nobody answers; return why it is hopeless, else nothing."""
        now = time.monotonic()
        if now < self._again_at:
            return ""
        if not self._deadline:
            self._deadline = now + _START_TIMEOUT
        try:
            why = self._start_or_watch()
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            why = f"{where}{error.strerror}"
        if not why and now >= self._deadline:
            why = f"it does not answer within {_START_TIMEOUT:.0f} s"
        if why:
            self._again_at = now + _START_AGAIN
            self.release()
        return why

    def release(self) -> None:
        """Let others start the daemon: it answers, or it will not."""
        self._deadline = 0.0
        self._is_checked = False
        self._ended = ""
        if self._lock >= 0:
            posix.close(self._lock)
            self._lock = -1
            self._has_lock = False

    def note_service(self) -> None:
        """Note that the daemon works: if it ends from here on, it may be started again."""
        self._has_served = True

    def note_loss(self) -> None:
        """Leave no zombie of a daemon that worked; one that never did is asked why later."""
        if self._has_served:
            self._reap()

    def _reap(self) -> int | None:
        """Return the exit code of the daemon that this shim started, once, when it ended."""
        if not self._pid:
            return None
        pid, status = posix.waitpid(self._pid, posix.WNOHANG)
        if not pid:
            return None
        self._pid = 0
        return posix.waitstatus_to_exitcode(status)

    def _start_or_watch(self) -> str:
        if self._pid or self._ended:
            return self._watch()
        if not self._take_lock():
            return ""
        if not self._is_checked:
            # Whoever held the lock may have started it: look once more before.
            self._is_checked = True
            return self._read_word()
        self._spawn()
        return ""

    def _watch(self) -> str:
        """Look after the daemon that was started; return why it is hopeless, else nothing."""
        if self._pid:
            code = self._reap()
            if code is None or self._has_served:
                return ""
            self.last_words = self._read_last_words()
            self._ended = f"it ended with {f'exit code {code}' if code >= 0 else f'signal {-code}'}"
            self._ended_at = time.monotonic()
        # It may have made way for another one, which does not listen yet.
        if time.monotonic() < self._ended_at + _MAKING_WAY:
            return ""
        self._leave_word(self._ended)
        return self._ended

    def _take_lock(self) -> bool:
        import fcntl

        if self._has_lock:
            return True
        if self._lock < 0:
            _make_folders(self._folder)
            flags = posix.O_RDWR | posix.O_CREAT | posix.O_NOFOLLOW
            self._lock = posix.open(_join(self._folder, "start.lock"), flags, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._has_lock = True
        return True

    def _leave_word(self, why: str) -> None:
        """Tell the shims that wait for the lock: each would try the same in turn."""
        if self._has_lock:
            word = {"at": time.monotonic(), "why": why, "last_words": self.last_words}
            posix.ftruncate(self._lock, 0)
            posix.pwrite(self._lock, _encode(word), 0)

    def _read_word(self) -> str:
        word = _parse(posix.pread(self._lock, 4 * _STDERR_BYTES, 0))
        at = (word or {}).get("at")
        # The clock starts anew with the machine; a word of before is in its future.
        if word is None or not isinstance(at, float) or not 0 <= time.monotonic() - at < _WORD_KEPT:
            return ""
        lines = word.get("last_words")
        self.last_words = [str(each) for each in lines] if isinstance(lines, list) else []
        return _text_of(word, "why")

    def _spawn(self) -> None:
        posix.ftruncate(self._lock, 0)
        self._has_served = False
        self._open_log()
        actions: list[tuple[int, int, str, int, int] | tuple[int, int, int] | tuple[int, int]] = [
            (posix.POSIX_SPAWN_OPEN, 0, "/dev/null", posix.O_RDONLY, 0),
            (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0),
        ]
        if self._log >= 0:
            actions.append((posix.POSIX_SPAWN_DUP2, self._log, 2))
        else:
            actions.append((posix.POSIX_SPAWN_OPEN, 2, "/dev/null", posix.O_WRONLY, 0))
        actions.extend((posix.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable())
        # -P: a folder `capd` in the project of the editor is not the daemon.
        command = [sys.executable, "-P", "-m", "capd", "daemon", "run"]
        # A daemon shall not keep the project's folder in use.
        posix.chdir("/")
        self._pid = posix.posix_spawn(
            sys.executable,
            command,
            self._child_environment(),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[_signal.SIGPIPE, _signal.SIGINT, _signal.SIGHUP, _signal.SIGTERM],
        )

    def _child_environment(self) -> "dict[bytes, bytes]":
        # What PYTHON* says is for the Python of one project: a `secrets.py` on its PYTHONPATH would
        # end the daemon of all. As in daemon_process.py, which the shim cannot import.
        env = {
            key: value
            for key, value in posix.environ.items()
            if key not in _NOT_FOR_THE_DAEMON
            and (not key.startswith(b"PYTHON") or key == b"PYTHON_KEYRING_BACKEND")
        }
        env[b"PYTHONMALLOC"] = b"malloc"
        if self._is_named or self._env.get("CAPD_SOCKET"):
            env[b"CAPD_SOCKET"] = self._socket.encode("utf-8", "surrogateescape")
        if self._home:
            env[b"CAPD_HOME"] = self._home.encode("utf-8", "surrogateescape")
        return env

    def _open_log(self) -> None:
        if self._log >= 0:
            posix.close(self._log)
        try:
            _make_folders(self._log_path.rpartition("/")[0])
            flags = posix.O_RDWR | posix.O_CREAT | posix.O_APPEND | posix.O_NOFOLLOW
            self._log = posix.open(self._log_path, flags, 0o600)
            self._log_start = posix.fstat(self._log).st_size
        except OSError:
            self._log = -1

    def _read_last_words(self) -> "list[str]":
        if self._log < 0:
            return []
        size = posix.fstat(self._log).st_size
        start = max(self._log_start, size - _STDERR_BYTES)
        text = posix.pread(self._log, _STDERR_BYTES, start).decode("utf-8", "replace")
        posix.close(self._log)
        self._log = -1
        lines = [_printable(line)[:500] for line in text.splitlines() if line.strip()]
        return lines[-_STDERR_LINES:]


def _inheritable() -> "list[int]":
    """Return descriptors that the host left open for its children, and the daemon must not keep."""
    found = []
    try:
        names = posix.listdir("/dev/fd")
    except OSError:
        return []
    for name in names:
        try:
            if int(name) > 2 and posix.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


class _Handshakes:
    """What daemons of this version answered to `initialize` and `server/discover`, in one file.

    An answer is for those alone who ask for the same version: which one a daemon agrees on is
    the daemon's rule. It is the same for every session, and holds no secret.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = _join(folder, _KEPT_FILE)
        self._noted: list[tuple[bytes | bytearray, bytes | bytearray]] = []

    def find(self, line: "bytes | bytearray") -> "dict[str, object]":
        """Return the `result` or `error` for the request `line`; nothing where none is known."""
        answer = _object_of(self._read(), _asked(line))
        return answer if _outcome_of(answer) else {}

    def note(self, line: "bytes | bytearray", answer: "bytes | bytearray | _Cut") -> None:
        """Note a daemon's `answer` to the request `line`, to be written when there is time."""
        if not isinstance(answer, _Cut):
            self._noted.append((line, answer))

    def write_noted(self) -> None:
        """Write what was noted and is not there yet, but for what holds at this moment only."""
        if not self._noted:
            return
        answers = self._read()
        is_other = False
        for line, answer in self._noted:
            asked, outcome = _asked(line), _outcome_of(_parse(answer) or {})
            if outcome and answers.get(asked) != outcome:
                answers.pop(asked, None)
                answers[asked] = outcome
                is_other = True
        self._noted.clear()
        while len(answers) > _KEPT_ANSWERS:
            del answers[next(iter(answers))]
        text = _encode({"version": VERSION, "answers": answers})
        try:
            if is_other and len(text) <= _KEPT_BYTES:
                self._replace(text)
        except OSError:
            # A shim that can keep nothing waits for the daemon instead.
            return

    def _read(self) -> "dict[str, object]":
        try:
            fd = posix.open(self._path, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK)
        except (OSError, ValueError):
            return {}
        try:
            is_ours = posix.fstat(fd).st_uid == posix.getuid()
            kept = _parse(posix.read(fd, _KEPT_BYTES)) if is_ours else None
        except OSError:
            kept = None
        posix.close(fd)
        is_known = kept is not None and kept.get("version") == VERSION
        return _object_of(kept or {}, "answers") if is_known else {}

    def _replace(self, text: bytes) -> None:
        _make_folders(self._folder)
        path = f"{self._path}.{posix.getpid()}"
        flags = posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW
        fd = posix.open(path, flags, 0o600)
        try:
            is_whole = posix.write(fd, text) == len(text)
        finally:
            posix.close(fd)
        if is_whole:
            posix.replace(path, self._path)
        else:
            posix.unlink(path)


def _asked(line: "bytes | bytearray") -> str:
    """Return method and version that a handshake asks for, as one word to keep it under."""
    method = _text_of(_parse(line) or {}, "method")
    params = _params_of(line)
    if method == _DISCOVER:
        return f"{method} {_text_of(_object_of(params, '_meta'), _META + 'protocolVersion')}"
    return f"{method} {_text_of(params, 'protocolVersion')}"


def _outcome_of(answer: "dict[str, object]") -> "dict[str, object]":
    """Return the part of `answer` that holds for every session; other errors pass."""
    if isinstance(answer.get("result"), dict):
        return {"result": answer["result"]}
    if _object_of(answer, "error").get("code") == METHOD_NOT_FOUND:
        return {"error": answer["error"]}
    return {}


class _Request:
    """A request of the host that has no outcome yet."""

    __slots__ = (
        *("is_acknowledged", "is_dispatched", "is_hook", "is_sent"),
        *("key", "line", "method", "sends"),
    )

    def __init__(self, key: "int | str", method: str, line: "bytes | bytearray | None") -> None:
        self.key = key
        self.method = method
        self.line = line
        """The line, for a second sending; None where it may not or cannot be kept."""
        self.is_acknowledged = False
        """Whether a host that listens was told that it does."""
        self.is_hook = method == "tools/call" and line is not None and _is_hook(line)
        self.is_sent = False
        self.is_dispatched = False
        self.sends = 0


def _as_asked(result: "dict[str, object]", line: "bytes | bytearray") -> "dict[str, object]":
    """Return `result` in the form of the protocol that the request `line` speaks."""
    if _META + "protocolVersion" not in _object_of(_params_of(line), "_meta"):
        return result
    caching = {} if "content" in result else {"ttlMs": 0, "cacheScope": "private"}
    return {"resultType": "complete", **caching, **result}


def _is_hook(line: "bytes | bytearray") -> bool:
    # The name stands before the arguments or behind them, never far from an end.
    name = _TURN.encode()
    is_named = name in line[:_WINDOW_BYTES] or name in line[-_WINDOW_BYTES:]
    return is_named and _params_of(line).get("name") == _TURN


class _Outgoing:
    """A line of the host that waits for the daemon."""

    __slots__ = ("is_reply", "line", "request")

    def __init__(
        self, line: "bytes | bytearray", request: "_Request | None", *, is_reply: bool = False
    ) -> None:
        self.line = line
        self.request = request
        self.is_reply = is_reply
        """An answer to a server's request, which only the daemon that asked can use."""


class _Refusal(Exception):  # noqa: N818 - it is what happened, and one line for stderr
    """The shim cannot serve at all; the text is for a person."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Shim:
    """One MCP session between a host and the daemon."""

    _own_out = -1
    """Where lines for the host go without ever blocking, if there is such a descriptor."""

    def __init__(self, path: str, env: "Mapping[str, str]", *, is_named: bool = False) -> None:
        self._path = path
        self._env = env
        may_start = env.get("CAPD_NO_START", "") in {"", "0"}
        self._starter = _Starter(path, env, is_named=is_named) if may_start else None
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
        self._attempt_at = now
        self._deadline = now
        self._lost_at = now
        self._trouble = ""
        self._has_given_up = False
        self._refused_with = ""

        self._from_host = _Lines()
        self._from_daemon = _Lines(DAEMON_LINE_LIMIT_BYTES)
        self._to_host: deque[memoryview] = deque()
        self._to_host_bytes = 0
        self._link_out: deque[bytes] = deque()
        self._outbox: deque[_Outgoing] = deque()
        self._outbox_bytes = 0
        self._writing = memoryview(b"")

        self._pending: dict[int | str, _Request] = {}
        self._held_bytes = 0
        self._answered: dict[int | str, None] = {}
        self._initialize: dict[str, object] | None = None
        self._initialize_key: int | str | None = None
        self._is_initialized = False
        self._is_replay_due = False
        """Whether the shim has answered `initialize`, of which the daemon may not know."""
        self._is_list_due = False
        self._listed = {"tools"}
        self._initialized_line = b""
        self._replay_key = ""
        self._pings: dict[int | str, _Request] = {}
        self._own_requests = 0
        self._handshakes = _Handshakes(_state_folder(env))
        self._due: dict[_Request, float] = {}

    def run(self) -> int:
        """Serve until the host is gone; return the exit code."""
        wake = _wake_on_signals()
        self._own_out = _own_output()
        self._watch(wake, select.POLLIN)
        try:
            while self._code is None:
                self._tend()
                for fd, events in self._wait():
                    if self._code is None:
                        self._react(fd, events, wake)
        except _Refusal as refusal:
            _say(str(refusal))
            return refusal.code
        self._farewell()
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
        self._watch(0, select.POLLIN if self._is_reading_host() else 0)
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
        """Poll `fd` for `mask`; without `is_kept` an empty mask hears of no hang-up either."""
        if self._masks.get(fd) == mask:
            return
        if mask or is_kept:
            self._masks[fd] = mask
            self._poll.register(fd, mask)
        elif fd in self._masks:
            del self._masks[fd]
            self._poll.unregister(fd)

    def _is_reading_host(self) -> bool:
        if self._outbox_bytes >= _QUEUE_BYTES:
            return False
        # Without a daemon the shim's own answers are what piles up.
        return self._phase == _UP or self._to_host_bytes < _QUEUE_BYTES

    def _has_output(self) -> bool:
        return bool(self._writing or self._link_out or (self._phase == _UP and self._outbox))

    def _due_at(self) -> "float | None":
        if self._phase == _UP and not self._due:
            return None
        due = list(self._due.values())
        if self._phase != _UP:
            due.append(self._attempt_at if self._phase == _DOWN else self._deadline)
            if not self._has_given_up:
                due.append(self._lost_at + self._patience)
        return min(due) if due else None

    def _tend(self) -> None:
        """Do what is due by the clock, and what could wait until the host has its answers."""
        now = time.monotonic()
        if not self._to_host:
            self._handshakes.write_noted()
        for request in [each for each, due in self._due.items() if now >= due]:
            self._answer_for_slow_daemon(request)
        if self._phase == _DOWN and now >= self._attempt_at:
            self._connect()
        elif self._phase in {_GREETING, _REPLAYING} and now >= self._deadline:
            self._lose("capd does not answer")
        is_waiting = self._phase != _UP and not self._has_given_up
        if is_waiting and now >= self._lost_at + self._patience:
            self._give_up()

    def _connect(self) -> None:
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        # A full backlog blocks a blocking connect, and the host with it (docs/design/actors.md).
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
            self._meet_stranger(uid)
            return
        if self._starter is not None:
            self._starter.release()
        self._sock = sock
        self._phase = _GREETING
        self._deadline = time.monotonic() + _GREETING_TIMEOUT
        self._link_out.append(self._hello())

    def _connect_failed(self, error: OSError) -> None:
        # This one error means that a daemon is there: its backlog is full.
        is_absent = error.errno != errno.EAGAIN
        trouble = f"no daemon at {self._path}"
        if error.errno not in {errno.ENOENT, errno.ECONNREFUSED}:
            trouble += f" ({error.strerror or error})"
        if not (self._has_given_up and self._trouble):
            self._trouble = trouble
        if is_absent and self._starter is None and not self._daemon_pid and not self._attempts:
            # A host may try for seconds to start a server that ends.
            _say(f"capd: {trouble}\n{_START_HINT}")
            self._give_up()
        if is_absent and self._starter is not None and self._may_start():
            why = self._starter.step()
            if why:
                self._cannot_start(why)
        self._schedule()

    def _may_start(self) -> bool:
        """Return whether starting the daemon is up to the shim."""
        if not self._is_coming_back:
            return False
        return not self._daemon_pid or time.monotonic() >= self._lost_at + self._restart_grace

    def _cannot_start(self, why: str) -> None:
        self._trouble = f"the daemon cannot start: {_printable(why)}"
        words = [] if self._starter is None else self._starter.last_words
        _say("\n".join([f"capd: {self._trouble}", *(f"  {line}" for line in words), _START_HINT]))
        self._give_up()

    def _meet_stranger(self, uid: int) -> None:
        text = f"the daemon at {self._path} runs as user {uid}, not as you"
        if not self._daemon_pid:
            raise _Refusal(EXIT_FAILED, f"capd: {text}\nRemove that socket, or set CAPD_SOCKET.")
        self._trouble = text
        self._schedule()

    def _schedule(self) -> None:
        """Plan the next attempt to connect."""
        delay = min(_BACKOFF_LAST, _BACKOFF_FIRST * 2 ** min(self._attempts, 10))
        if self._has_given_up:
            delay = self._idle_retry
        if self._starter is not None and self._starter.is_busy:
            delay = _START_POLL
        self._attempts += 1
        # Jitter: 500 shims that lost one daemon shall not come back in one moment.
        self._attempt_at = time.monotonic() + delay * (0.5 + posix.urandom(1)[0] / 510)

    def _lose(self, why: str) -> None:
        """Drop the connection, and settle what becomes of the requests in flight."""
        if self._phase == _UP:
            self._lost_at = time.monotonic()
            self._attempts = 0
        if self._sock is not None:
            self._watch(self._sock.fileno(), 0, is_kept=False)
            self._sock.close()
            self._sock = None
        if self._starter is not None:
            self._starter.note_loss()
        self._phase = _DOWN
        self._trouble = self._closing_reason or why
        self._closing_reason = ""
        self._from_daemon = _Lines(DAEMON_LINE_LIMIT_BYTES)
        self._link_out.clear()
        self._pings.clear()
        self._writing = memoryview(b"")
        self._settle()
        if not self._is_coming_back:
            self._give_up()
        self._schedule()

    def _settle(self) -> None:
        again: deque[_Outgoing] = deque()
        for request in list(self._pending.values()):
            if request.is_dispatched:
                text = (
                    "capd went away while this ran, so it may have taken effect: "
                    "check before repeating it"
                )
                self._fail(request, OUTCOME_UNKNOWN, text)
            elif request.is_sent and (
                request.line is None or (request.sends >= _SENDS and request.method != _LISTEN)
            ):
                text = "capd went away before this was sent to a server: it is safe to repeat"
                self._fail(request, NOT_SENT, text)
            elif request.is_sent and request.line is not None:
                request.is_sent = False
                again.append(_Outgoing(request.line, request))
            self._set_due(request)
        again.extend(self._outbox)
        self._outbox = again
        self._outbox_bytes = sum(len(each.line) for each in again)

    def _give_up(self) -> None:
        """Answer everything that waits; from here on the daemon is looked for now and then."""
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

    def _is_waiting(self, request: _Request) -> bool:
        """Return whether `request` is kept for the next daemon, however late it comes."""
        return request.method == _LISTEN and request.line is not None and not self._refused_with

    def _set_due(self, request: _Request) -> None:
        """Plan when the shim answers by itself what an editor stands still for."""
        if request.line is None or self._pending.get(request.key) is not request:
            return
        is_up = self._phase == _UP
        is_unheard = request.method == _LISTEN and not is_up and not request.is_acknowledged
        if request.method in _HANDSHAKES or request.is_hook or is_unheard:
            slow = _SLOW
        elif request.method in _LISTS and not is_up and self._is_relisting(request.line):
            slow = _SLOW_LIST
        else:
            return
        now = time.monotonic()
        self._due[request] = now + slow if is_up else max(now, self._lost_at + slow)

    def _is_relisting(self, line: "bytes | bytearray") -> bool:
        params = _object_of(self._initialize or {}, "params")
        client = _object_of(params, "clientInfo")
        if not self._initialize:
            client = _object_of(_object_of(_params_of(line), "_meta"), _META + "clientInfo")
        return client.get("name") in _RELISTING

    def _answer_for_slow_daemon(self, request: _Request) -> None:
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
                self._conclude(request, answer)

    def _answer_for_missing_daemon(self, request: _Request, line: "bytes | bytearray") -> None:
        if request.method != _LISTEN:
            self._is_list_due = True
            empty: dict[str, object] = {_LISTS[request.method][1]: []}
            self._conclude(request, {"result": _as_asked(empty, line)})
            return
        # Claude Code asks for nothing before it hears this.
        request.is_acknowledged = True
        params = {
            "notifications": _object_of(_params_of(line), "notifications"),
            "_meta": {_META + "subscriptionId": request.key},
        }
        self._tell_host({"jsonrpc": "2.0", "method": _ACKNOWLEDGED, "params": params})

    def _answer_hook(self, request: _Request, line: "bytes | bytearray") -> None:
        """Let the prompt go on; where the daemon comes back soon, it still hears of it."""
        for each in self._outbox:
            if each.request is request:
                each.request = None
        text = {"type": "text", "text": "{}"}
        self._conclude(request, {"result": _as_asked({"content": [text]}, line)})

    def _conclude(self, request: _Request, outcome: "dict[str, object]") -> None:
        """Answer `request` by the shim alone: should the daemon answer too, that is dropped."""
        self._forget(request)
        self._note_answered(request)
        self._tell_host({"jsonrpc": "2.0", "id": request.key, **outcome})

    def _note_answered(self, request: _Request) -> None:
        self._answered[request.key] = None
        if len(self._answered) > _ANSWERED_KEPT:
            del self._answered[next(iter(self._answered))]

    def _fail_without_daemon(self, request: _Request) -> None:
        if self._refused_with:
            self._fail(request, REFUSED, f"capd refuses this session: {self._refused_with}")
        elif not self._daemon_pid and request.line is not None:
            self._stand_in(request, request.line)
        else:
            text = "so nothing was sent and it is safe to repeat"
            self._fail(
                request, NOT_SENT, f"capd is not running ({self._trouble}), {text}. {_START_HINT}"
            )

    def _stand_in(self, request: _Request, line: "bytes | bytearray") -> None:
        """Answer as an MCP server of one tool, which says why it has no others."""
        params = _params_of(line)
        result: dict[str, object] = {}
        if request.method == "initialize":
            self._is_initialized = self._is_replay_due = True
            self._initialize_key = None
            result = {
                "protocolVersion": _text_of(params, "protocolVersion") or "2025-11-25",
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
            # `server/discover` among them: the client then falls back to `initialize`.
            self._fail(request, METHOD_NOT_FOUND, f"capd is not running: no {request.method}")
            return
        self._forget(request)
        result = _as_asked(result, line)
        self._tell_host({"jsonrpc": "2.0", "id": request.key, "result": result})

    def _report(self) -> str:
        """Return why there are no tools, and what to do, for a person or a model."""
        words = [] if self._starter is None else self._starter.last_words
        said = ["Its last words:", *(f"  {line}" for line in words)] if words else []
        return "\n".join(
            [
                f"capd has no tools to offer: {self._trouble}.",
                *said,
                "Ask the user to run `capd daemon run` in a terminal, which says what is wrong.",
                "capd keeps trying, and its tools appear as soon as it runs.",
            ]
        )

    def _hello(self) -> bytes:
        pid = posix.getppid()
        name = self._env.get("CAPD_CLIENT") or _name_of(pid)
        client: dict[str, object] = {"name": _clean(name), "pid": pid}
        for variable in _CLIENT_SESSIONS:
            if self._env.get(variable):
                client["session"] = _clean(self._env[variable])
                break
        frame: dict[str, object] = {
            "capd": "hello",
            "protocol": PROTOCOL,
            "role": "mcp",
            "client": client,
        }
        project = self._env.get("CAPD_PROJECT", "")
        if project and not project.startswith("/"):
            project = _absolute(_join(self._cwd, project)) if self._cwd else ""
        optional = {
            "cwd": self._cwd,
            "project": project,
            "session": self._session,
            "resume": self._resume,
            # Inherited once: a session that has been welcomed has its set.
            "parent": "" if self._daemon_pid else self._env.get("CAPD_PARENT_SESSION", ""),
        }
        frame.update({name: value for name, value in optional.items() if _is_clean(value)})
        frame["dispatched"] = True
        return _encode(frame)

    def _take_frame(self, line: "bytes | bytearray") -> None:
        if line.startswith(_DISPATCHED) and (digits := line[len(_DISPATCHED) : -2]).isdigit():
            self._dispatched(int(digits))
            return
        frame = _parse(line)
        if frame is None:
            return
        kind = frame.get("capd")
        if self._phase == _GREETING:
            if kind == "welcome":
                self._welcomed(frame)
            elif kind == "refused":
                self._refused(frame)
        elif kind == "dispatched":
            self._dispatched(_key(frame.get("id")))
        elif kind == "want_env":
            self._send_env(frame.get("keys"))
        elif kind == "closing":
            reason = _text_of(frame, "reason")
            self._closing_reason = f"it closed the session: {reason}" if reason else ""
            self._is_coming_back = frame.get("reconnect") is not False

    def _welcomed(self, frame: "dict[str, object]") -> None:
        daemon = frame.get("daemon")
        pid = daemon.get("pid") if isinstance(daemon, dict) else None
        is_same = pid == self._daemon_pid and frame.get("resumed") is True
        # The tools of a session that begins anew need not be those that the host knows.
        self._is_list_due = self._is_list_due or bool(self._daemon_pid and not is_same)
        self._daemon_pid = pid if isinstance(pid, int) and pid else -1
        self._session = _text_of(frame, "session") or self._session
        self._resume = _text_of(frame, "resume")
        self._is_coming_back = True
        self._refused_with = ""
        if self._starter is not None:
            self._starter.note_service()
        self._send_env(frame.get("want_env"))
        if not is_same:
            self._keep_in_outbox(lambda each: not each.is_reply)
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
        """Repeat the host's handshake to a daemon that has not seen it."""
        self._replay_key = self._own_key()
        self._link_out.append(_encode({**(self._initialize or {}), "id": self._replay_key}))
        self._phase = _REPLAYING
        self._deadline = time.monotonic() + _REPLAY_TIMEOUT

    def _replayed(self, line: "bytes | bytearray | _Cut") -> None:
        self._replay_key = ""
        self._is_replay_due = False
        self._is_list_due = True
        self._handshakes.note(_encode(self._initialize or {}), line)
        if self._initialized_line:
            self._link_out.append(self._initialized_line)
            self._keep_in_outbox(lambda each: each.line != self._initialized_line)
        self._go_up()

    def _tell_list_changed(self) -> None:
        """Let the host list again what it has listed, if it has said that it listens."""
        self._is_list_due = False
        for kind in sorted(self._listed):
            change: dict[str, object] = {
                "jsonrpc": "2.0",
                "method": f"notifications/{kind}/list_changed",
            }
            if self._initialized_line:
                self._tell_host(change)
            for request in self._pending.values():
                if request.method != _LISTEN or request.line is None:
                    continue
                if _object_of(_params_of(request.line), "notifications").get(f"{kind}ListChanged"):
                    params = {"_meta": {_META + "subscriptionId": request.key}}
                    self._tell_host({**change, "params": params})

    def _go_up(self) -> None:
        self._phase = _UP
        if self._is_list_due:
            self._tell_list_changed()
        self._has_given_up = False
        self._attempts = 0
        self._trouble = ""

    def _refused(self, frame: "dict[str, object]") -> None:
        code = _text_of(frame, "code")
        message = _text_of(frame, "message") or code or "no reason given"
        if code == "resume_refused" and self._resume:
            # The token is lost (a welcome that never arrived): go on as a session of its own.
            self._resume = ""
            self._session = self._env.get("CAPD_SESSION", "")
        elif code not in _PASSING_REFUSALS:
            if message != self._refused_with:
                _say(f"capd: refused by the daemon at {self._path}: {_printable(message)}")
            self._refused_with = message
            self._give_up()
        self._lose(message)

    def _send_env(self, keys: object) -> None:
        if not isinstance(keys, list) or not keys:
            return
        values = {
            key: self._env[key]
            for key in keys
            if isinstance(key, str)
            and key in self._env
            and _is_clean(self._env[key], or_empty=True)
        }
        self._link_out.append(_encode({"capd": "env", "env": values}))

    def _dispatched(self, key: "int | str | None") -> None:
        request = None if key is None else self._pending.get(key)
        if request is not None:
            request.is_dispatched = True
            self._release(request)

    def _read_daemon(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            chunk = sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(f"the connection broke: {error.strerror}")
            return
        if not chunk:
            self._lose("it closed the connection")
            return
        for line in self._from_daemon.feed(chunk):
            if self._sock is sock:
                self._take_daemon_line(line)
        if self._to_host and self._own_out >= 0:
            self._write_host(is_gone=False)

    def _take_daemon_line(self, line: "bytes | bytearray | _Cut") -> None:
        if not isinstance(line, _Cut) and line.startswith(LINK_PREFIX):
            self._take_frame(line)
            return
        if self._phase == _GREETING:
            self._lose("it does not speak capd's protocol")
            return
        shape = _shape_from_daemon(line)
        key = shape.key
        if key is not None and shape.kind in {"result", "error"}:
            if self._phase == _REPLAYING and key == self._replay_key:
                self._replayed(line)
                return
            if key in self._pings:
                self._due.pop(self._pings.pop(key), None)
                return
            if not self._take_outcome(key, shape, line):
                return
        if isinstance(line, _Cut) or (shape.method == _ACKNOWLEDGED and self._is_told(line)):
            return
        self._queue_for_host(line)

    def _is_told(self, line: "bytes | bytearray") -> bool:
        """Return whether the host has been told already that it listens: each daemon says so."""
        key = _key(_object_of(_params_of(line), "_meta").get(_META + "subscriptionId"))
        request = None if key is None else self._pending.get(key)
        was_told = request is not None and request.is_acknowledged
        if request is not None:
            request.is_acknowledged = True
            self._due.pop(request, None)
        return was_told

    def _take_outcome(
        self, key: "int | str", shape: _Shape, line: "bytes | bytearray | _Cut"
    ) -> bool:
        """Note that request `key` has its outcome; return whether the host shall see this one."""
        request = self._pending.get(key)
        if request is None:
            # Parked by the daemon for a request that was answered when the connection broke.
            is_second = key in self._answered
            self._answered.pop(key, None)
            if is_second and key == self._initialize_key:
                self._is_replay_due = False
                self._initialize_key = None
            return not is_second
        if isinstance(line, _Cut):
            text = f"the answer was longer than {DAEMON_LINE_LIMIT_BYTES} bytes; the call has run"
            self._fail(request, OUTCOME_UNKNOWN, text)
            return False
        if key == self._initialize_key:
            self._is_initialized = shape.kind == "result"
            self._is_replay_due = False
            self._initialize_key = None
        if request.method in _HANDSHAKES and request.line is not None:
            self._handshakes.note(request.line, line)
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
        """Have something in `_writing`; return whether there is anything."""
        if self._writing:
            return True
        if self._link_out:
            self._writing = memoryview(self._link_out.popleft())
            return True
        lines: list[bytes | bytearray] = []
        size = 0
        while self._phase == _UP and self._outbox:
            size += len(self._outbox[0].line)
            # What a line waits for, a sign of life behind a hook, goes before the next one.
            if lines and (size > _TOGETHER_BYTES or self._link_out):
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

    def _ping_behind(self, request: _Request) -> None:
        """Ask for a sign of life: a first turn may take seconds, a daemon that hangs is silent."""
        key = self._own_key()
        self._pings[key] = request
        self._due[request] = time.monotonic() + _SLOW
        self._link_out.append(_encode({"jsonrpc": "2.0", "id": key, "method": "ping"}))

    def _write_failed(self, sock: _socket.socket, error: OSError) -> None:
        # What the daemon wrote before it died still waits here, `dispatched` frames among it:
        # a request must not count as unsent because its frame was not read yet.
        try:
            while self._sock is sock and (chunk := sock.recv(_READ_BYTES)):
                for line in self._from_daemon.feed(chunk):
                    if self._sock is sock:
                        self._take_daemon_line(line)
        except OSError:
            pass
        if self._sock is sock:
            self._lose(f"the connection broke: {error.strerror}")

    def _read_host(self, *, is_gone: bool) -> None:
        if not self._is_reading_host():
            if is_gone:
                self._code = 0
            return
        try:
            chunk = posix.read(0, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._code = 0
            return
        for line in self._from_host.feed(chunk):
            self._take_host_line(line)
        # At once: the socket has room nearly always, and a poll for that is a turn of the loop.
        if self._has_output():
            self._write_daemon()

    def _take_host_line(self, line: "bytes | bytearray | _Cut") -> None:
        if isinstance(line, _Cut):
            text = f"the line is longer than {LINE_LIMIT_BYTES} bytes; nothing was sent"
            self._answer(_shape(line).key, INVALID_REQUEST, text)
            return
        if not line.strip():
            return
        if line.startswith(LINK_PREFIX):
            # Only the shim speaks to the daemon as the client's end of the link.
            shape = _shape(line)
            if shape.kind == "request":
                self._answer(shape.key, INVALID_REQUEST, "`capd` is not a member of MCP requests")
            return
        shape = _shape(line)
        if shape.kind == "request" and shape.key is not None:
            self._take_request(shape.key, shape.method, line)
        elif shape.kind == "notification":
            self._take_notification(shape.method, line)
        elif not self._has_given_up:
            self._post(_Outgoing(line, None, is_reply=shape.kind in {"result", "error"}))
        elif shape.kind not in {"result", "error"}:
            self._answer(None, NOT_SENT, f"capd is not running ({self._trouble})")

    def _take_request(self, key: "int | str", method: str, line: "bytes | bytearray") -> None:
        if method == "initialize":
            self._initialize = _parse(line)
            self._initialize_key = key
            self._is_initialized = False
            self._initialized_line = b""
        if method in _LISTS:
            self._listed.add(_LISTS[method][0])
        is_kept = self._held_bytes + len(line) <= _HELD_BYTES
        request = _Request(key, method, line if is_kept else None)
        self._held_bytes += len(line) if is_kept else 0
        self._pending[key] = request
        self._answered.pop(key, None)
        if request.is_hook and self._env.get("CAPD_ACP"):
            # `capd acp` has handed the prompt over before its agent saw it.
            self._answer_hook(request, line)
            return
        if self._has_given_up and not self._is_waiting(request):
            self._fail_without_daemon(request)
            return
        self._post(_Outgoing(line, request))
        self._set_due(request)

    def _take_notification(self, method: str, line: "bytes | bytearray") -> None:
        if method == "notifications/initialized":
            self._initialized_line = bytes(line)
        if method == "notifications/cancelled" and not self._cancel(line):
            return
        if not self._has_given_up:
            self._post(_Outgoing(line, None))

    def _cancel(self, line: "bytes | bytearray") -> bool:
        """Forget the request that the host cancels; return whether the daemon has heard of it."""
        params = (_parse(line) or {}).get("params")
        key = _key(params.get("requestId")) if isinstance(params, dict) else None
        request = None if key is None else self._pending.get(key)
        if request is None:
            return True
        self._forget(request)
        return request.is_sent

    def _post(self, item: _Outgoing) -> None:
        self._outbox.append(item)
        self._outbox_bytes += len(item.line)

    def _release(self, request: _Request) -> None:
        if request.line is not None:
            self._held_bytes -= len(request.line)
            request.line = None

    def _forget(self, request: _Request) -> None:
        self._release(request)
        self._due.pop(request, None)
        if self._pending.get(request.key) is request:
            del self._pending[request.key]

    def _fail(self, request: _Request, code: int, text: str) -> None:
        if request.is_hook:
            # A hook's error would be shown to the user; without capd the prompt just goes on.
            self._answer_hook(request, request.line or b"")
            return
        self._forget(request)
        self._note_answered(request)
        self._answer(request.key, code, text)

    def _answer(self, key: "int | str | None", code: int, text: str) -> None:
        error = {"code": code, "message": text, "data": {"code": _NAMES[code]}}
        self._tell_host({"jsonrpc": "2.0", "id": key, "error": error})

    def _tell_host(self, message: "dict[str, object]") -> None:
        self._queue_for_host(_encode(message))

    def _queue_for_host(self, line: "bytes | bytearray") -> None:
        self._to_host.append(memoryview(line))
        self._to_host_bytes += len(line)

    def _write_host(self, *, is_gone: bool) -> None:
        if is_gone:
            self._code = 0
            return
        # PIPE_BUF bytes are what a writable pipe takes without blocking.
        fd, most = (self._own_out, _READ_BYTES) if self._own_out >= 0 else (1, select.PIPE_BUF)
        text = self._to_host[0]
        if len(self._to_host) > 1 and len(text) < most:
            text = memoryview(b"".join(_first_of(self._to_host, most)))
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

    def _farewell(self) -> None:
        """End the session on purpose, behind what is on its way."""
        sock = self._sock
        if sock is None:
            return
        sock.settimeout(_FAREWELL_TIMEOUT)
        try:
            while self._next_output():
                sock.sendall(self._writing)
                self._writing = memoryview(b"")
            sock.sendall(_encode({"capd": "goodbye"}))
        except OSError:
            return
        finally:
            sock.close()


def _first_of(lines: "deque[memoryview]", most: int) -> "list[memoryview]":
    """Return as many of the first lines as make `most` bytes."""
    found: list[memoryview] = []
    for line in lines:
        found.append(line[:most])
        most -= len(line)
        if most <= 0:
            break
    return found


def _own_output() -> int:
    """Open the host's pipe once more, to write to it without ever blocking; -1 where it is none.

    Not by O_NONBLOCK on descriptor 1: its file description may be shared with the host's own
    processes.
    """
    try:
        if posix.fstat(1).st_mode & 0o170000 != 0o010000:
            return -1
        return posix.open("/proc/self/fd/1", posix.O_WRONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
    except OSError:
        return -1


def _wake_on_signals() -> int:
    """Turn SIGTERM, SIGINT and SIGHUP into a readable descriptor."""
    readable, writable = posix.pipe()
    posix.set_blocking(writable, False)
    _signal.set_wakeup_fd(writable)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, lambda *_: None)
    return readable


def _peer_uid(sock: _socket.socket) -> int:
    """Return the user at the far end; our own where the platform cannot say."""
    if sys.platform != "linux":
        return posix.getuid()
    credentials = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _working_directory() -> str:
    try:
        return posix.getcwd()
    except OSError:
        return ""


def _name_of(pid: int) -> str:
    try:
        fd = posix.open(f"/proc/{pid}/comm", posix.O_RDONLY)
    except OSError:
        return "unknown"
    try:
        return posix.read(fd, 64).decode("utf-8", "replace").strip() or "unknown"
    except OSError:
        return "unknown"
    finally:
        posix.close(fd)


def _is_clean(text: str, *, or_empty: bool = False) -> bool:
    """Return whether `text` can be said in JSON: a lone surrogate stands for a stray byte."""
    if not text:
        return or_empty
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _seconds(text: str, default: float) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return default


def _say(text: str) -> None:
    try:
        posix.write(2, text.encode("utf-8", "replace") + b"\n")
    except OSError:
        return


def _environment() -> "dict[str, str]":
    return {
        key.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for key, value in posix.environ.items()
    }


def main(arguments: "list[str]") -> int:
    """Serve the host on stdin and stdout; `arguments` may name the socket."""
    if len(arguments) > 1 or any(each.startswith("-") for each in arguments):
        _say("usage: capd mcp [SOCKET]")
        return EXIT_USAGE
    env = _environment()
    try:
        path = arguments[0] if arguments else socket_path(env, posix.getuid())
        is_named = bool(arguments) or not path.startswith("/")
        path = path if path.startswith("/") else _absolute(path)
    except OSError as error:
        _say(f"capd: the working directory is gone: {error.strerror}\nSet CAPD_SOCKET.")
        return EXIT_FAILED
    return Shim(path, env, is_named=is_named).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
