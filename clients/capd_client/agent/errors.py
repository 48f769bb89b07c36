"""The errors that an agent may catch: one class for each way to react."""

from capd_client.shim.replay import NOT_FOUND, NOT_SENT, OUTCOME_UNKNOWN, REFUSED, UNAVAILABLE


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
    """No daemon answers at the socket, and none was started."""


class OutcomeUnknownError(CapdError):
    """The call may have run: check its effects before you repeat it."""


class RefusedError(CapdError):
    """Refused by policy, limits or state; trying again does not help."""


class NotFoundError(CapdError):
    """There is no such tool; the text has similar names."""


class UnavailableError(CapdError):
    """A part of the daemon does not answer at present; a later attempt may succeed."""


class ServerError(CapdError):
    """The server answered with a JSON-RPC error of its own."""


class ClosedError(CapdError):
    """The session is closed: open another one."""


_BY_CODE: dict[int, type[CapdError]] = {
    NOT_SENT: NotSentError,
    OUTCOME_UNKNOWN: OutcomeUnknownError,
    REFUSED: RefusedError,
    NOT_FOUND: NotFoundError,
    UNAVAILABLE: UnavailableError,
}
_INVALID_PARAMS = -32602


def no_answer(method: str, timeout: float, *, may_have_run: bool) -> CapdError:
    """Return the exception for a request that got no answer within `timeout` seconds.

    `may_have_run` says whether a server may have the request.
    """
    text = f"{method} had no answer within {timeout:g} s"
    if may_have_run and method == "tools/call":
        return OutcomeUnknownError(f"{text}; it may have run", OUTCOME_UNKNOWN)
    return NotSentError(f"{text}; no tool has run", NOT_SENT)


def error_of(error: object) -> CapdError:
    """Return the exception for the member `error` of a JSON-RPC response."""
    found = error if isinstance(error, dict) else {}
    code = found.get("code")
    number = code if isinstance(code, int) else 0
    text = str(found.get("message") or "the daemon gave no reason")
    if number == _INVALID_PARAMS and found.get("data") == {"code": "not_found"}:
        # MCP has this code for an unknown tool. A server may use it for other errors.
        return NotFoundError(text, number)
    return _BY_CODE.get(number, ServerError)(text, number)
