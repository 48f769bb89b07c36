"""The rules for what follows when the connection to the daemon is lost. No I/O.

The shim and the agent library (`capd_client.agent.link`) both follow them:

    - Every request gets exactly one outcome.
    - A request that may have run is not sent again, unless the next daemon continues it.
    - A session continues if it reconnects to the same daemon; otherwise it starts again.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

PROTOCOL = 1
LINK_PREFIX = b'{"capd":'
DAEMON_LINE_LIMIT_BYTES = 257 * 1024 * 1024

# JSON-RPC error codes (docs/protocol.md).
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
NOT_SENT = 4001
OUTCOME_UNKNOWN = 4002
REFUSED = 4003
NOT_FOUND = 4004
UNAVAILABLE = 4005
ERROR_NAMES = {
    INVALID_REQUEST: "invalid_request",
    METHOD_NOT_FOUND: "method_not_found",
    NOT_SENT: "not_sent",
    OUTCOME_UNKNOWN: "outcome_unknown",
    REFUSED: "refused",
}

MOST_SENDS = 3
"""A request that was sent this often, and each time without an answer, is not sent again."""
_TEMPORARY_REFUSALS = ("overloaded", "stopping", "session_in_use")
"""Codes of refusals after which another attempt may succeed."""


class Request:
    """A request without an answer, and the facts that decide what follows a lost connection."""

    __slots__ = ("is_dispatched", "is_durable", "is_sent", "key", "line", "sends")

    def __init__(self, key: "int | str | float", line: "bytes | bytearray | None") -> None:
        self.key = key
        self.line = line
        """The line, to be sent again; None if it was too large to keep."""
        self.is_sent = False
        """Whether it was written to the current connection."""
        self.is_dispatched = False
        """Whether the daemon has sent `dispatched` for it: from then on it may have run."""
        self.is_durable = False
        """Whether the daemon has sent `durable` for it: the next daemon continues it, so it is sent
        again although it may have run."""
        self.sends = 0


def after_loss(
    request: Request, *, is_endless: bool = False
) -> "Literal['unknown', 'not_sent', 'again', 'waiting']":
    """Return what to do with `request` when the connection is lost.

    `is_endless` says that the request stays open indefinitely, and is sent to every new daemon.

    - `unknown`: a server has it, so it may have run. Its outcome is OUTCOME_UNKNOWN.
    - `not_sent`: no server has it, and it cannot be sent again. Its outcome is NOT_SENT.
    - `again`: no server has it, or the next daemon resumes it; it is sent on the next connection.
    - `waiting`: it was not written to this connection, and goes on waiting for one.
    """
    if request.is_dispatched:
        return "unknown"
    if not request.is_sent:
        return "waiting"
    if request.line is None or (request.sends >= MOST_SENDS and not is_endless):
        return "unknown" if request.is_durable else "not_sent"
    return "again"


def after_refusal(code: str, *, has_token: bool) -> "Literal['start_anew', 'retry', 'end']":
    """Return what to do after the daemon refused the hello with `code`.

    `start_anew` means to connect without the resume token, which is not valid: the welcome with a
    newer one was lost. `has_token` says that the hello had one.
    """
    if code == "resume_refused" and has_token:
        return "start_anew"
    return "retry" if code in _TEMPORARY_REFUSALS else "end"


def is_same_session(known_pid: int, pid: object, welcome: "Mapping[str, object]") -> bool:
    """Tell whether the session continues: the same daemon has answered, and has resumed it.

    `known_pid` is the pid of the earlier daemon, and `pid` the one in the `welcome` frame.
    """
    return pid == known_pid and welcome.get("resumed") is True


def hello(client: "dict[str, object]", **members: str) -> "dict[str, object]":
    """Return the hello frame of `client` with these members.

    Members that are empty, or no valid text, are left out.
    """
    frame: dict[str, object] = {
        "capd": "hello",
        "protocol": PROTOCOL,
        "role": "mcp",
        "client": client,
    }
    frame.update({name: value for name, value in members.items() if value and is_encodable(value)})
    frame["dispatched"] = True
    return frame


def requested_values(env: "Mapping[str, str]", keys: object) -> "dict[str, str]":
    """Return the variables of `env` that the daemon asks for, if they are set and valid text.

    `keys` are the names, as the daemon sent them.
    """
    names = keys if isinstance(keys, list) else []
    known = {key: env[key] for key in names if isinstance(key, str) and key in env}
    return {key: value for key, value in known.items() if is_encodable(value)}


def is_encodable(text: str) -> bool:
    """Tell whether `text` can be encoded in UTF-8.

    That fails for a lone surrogate, by which Python represents an invalid byte.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encodable(text: str) -> str:
    """Return `text` with `?` in place of invalid bytes."""
    return text.encode("utf-8", "replace").decode()
