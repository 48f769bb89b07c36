"""The errors that an agent may catch: one class for each way to react."""


class CapdError(Exception):
    """The base class of the library's errors.

    `code` is a JSON-RPC error code, one of docs/protocol.md or a server's; 0 if there is none.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class NotSentError(CapdError):
    """No byte reached a server, so it is safe to try again."""


class NoDaemonError(NotSentError):
    """No daemon answers at the socket, and none could be started."""


class OutcomeUnknownError(CapdError):
    """The call may have run: check its effects before you repeat it."""


class RefusedError(CapdError):
    """Refused by policy, limits or state; trying again does not help."""


class NotFoundError(CapdError):
    """There is no such tool or capability; the text has similar names."""


class UnavailableError(CapdError):
    """A part of the daemon does not answer at present; a later attempt may succeed."""


class ServerError(CapdError):
    """The server answered with a JSON-RPC error of its own."""


class ClosedError(CapdError):
    """The session is closed: open another one."""


NOT_SENT = 4001
OUTCOME_UNKNOWN = 4002
REFUSED = 4003
_BY_CODE: dict[int, type[CapdError]] = {
    NOT_SENT: NotSentError,
    OUTCOME_UNKNOWN: OutcomeUnknownError,
    REFUSED: RefusedError,
    4004: NotFoundError,
    4005: UnavailableError,
}


def error_of(error: object) -> CapdError:
    """Return the exception for the member `error` of a JSON-RPC response."""
    found = error if isinstance(error, dict) else {}
    code = found.get("code")
    number = code if isinstance(code, int) else 0
    text = str(found.get("message") or "the daemon gave no reason")
    return _BY_CODE.get(number, ServerError)(text, number)
