"""How a tool call ends, and how the client learns it (docs/design/outcomes.md).

A call ends in a result of its server, or in `not_sent` (no byte reached a server),
`outcome_unknown` (it may have run), or `refused` (capd did not send it). The last three become
results with `isError`, because clients show those to the model. A JSON-RPC error would often end
the turn.
"""

import msgspec

from capd.core.errors import CapdError
from capd_protos.types import FailedOutcome


class CallFailedError(CapdError):
    """A call ended without a result of its server."""

    outcome: FailedOutcome = "refused"
    code = 4003
    """The JSON-RPC error code for requests other than `tools/call` (docs/protocol.md)."""
    is_retriable = False


class NotSentError(CallFailedError):
    """A call of which no byte reached a server, so that it is safe to repeat."""

    outcome: FailedOutcome = "not_sent"
    code = 4001
    is_retriable = True


class OutcomeUnknownError(CallFailedError):
    """A call that the server may have run: check before repeating it."""

    outcome: FailedOutcome = "outcome_unknown"
    code = 4002


class RefusedError(CallFailedError):
    """A call that capd decided not to send."""


def internal_failure(error: BaseException, *, was_sent: bool) -> CallFailedError:
    """Return the outcome of a call during which capd itself had an unexpected error.

    `was_sent` says whether any byte of the call had reached a server.
    """
    what = f"capd itself failed over this call ({type(error).__name__}; its log says where)."
    if was_sent:
        return OutcomeUnknownError(f"{what} The call may have run: check before you repeat it.")
    return NotSentError(f"{what} The call was not sent to a server.")


def internal_error(error: BaseException) -> str:
    """Return the text of the error for a request, other than a call, that failed inside capd."""
    return f"capd itself failed over this request ({type(error).__name__}; its log says where)"


class ServerError(Exception):
    """The server answered with a JSON-RPC error, which is passed on unchanged."""

    def __init__(self, error: bytes) -> None:
        super().__init__("the server answered with an error")
        self.error = error
        """The error object as the server wrote it."""


def failed_result(error: CallFailedError) -> bytes:
    """Return the MCP result that tells a model how its call ended."""
    return msgspec.json.encode(
        {
            "content": [{"type": "text", "text": str(error)}],
            "isError": True,
            "_meta": {"capd/outcome": error.outcome, "capd/retriable": error.is_retriable},
        }
    )


def text_result(text: str, *, is_error: bool = False) -> bytes:
    """Return a text as the MCP result of one of capd's own tools."""
    return msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": is_error})
