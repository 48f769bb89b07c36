"""Finds facts about a call in its result, without decoding the whole result."""

from typing import Literal

import msgspec

from capd.core.protocol.outcomes import CallFailedError, OutcomeUnknownError, ServerError
from capd.core.results.half_pairs import decoded
from capd.core.results.large_results import LargeResult, Result
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.ledger import RecordedOutcome


class _Flag(msgspec.Struct):
    isError: bool = False  # noqa: N815 - the protocol's name


_FLAG: JsonCodec[_Flag] = JsonCodec(_Flag)


RESULT: Literal["result"] = "result"
TOOL_ERROR: Literal["error"] = "error"


def outcome_of(result: Result | None, error: Exception | None = None) -> RecordedOutcome:
    """Return the outcome of a call as the ledger records it.

    A call with neither a result nor an error was cancelled: its outcome is unknown.
    """
    if result is not None:
        return RESULT if is_success(result) else TOOL_ERROR
    if isinstance(error, ServerError):
        return TOOL_ERROR
    return error.outcome if isinstance(error, CallFailedError) else OutcomeUnknownError.outcome


def end_of(result: Result | None, error: Exception | None = None) -> tuple[RecordedOutcome, int]:
    """Return the outcome of a call, and the size of its result in bytes (0 if it has none)."""
    size = result.size_bytes if isinstance(result, LargeResult) else len(result or b"")
    return outcome_of(result, error), size


def is_success(result: Result) -> bool:
    """Tell whether a `tools/call` result is a success, which counts as a use of its tool."""
    if isinstance(result, LargeResult):
        return result.is_success
    # A search for the member's name is a hundred times faster than parsing a large result.
    if b'"isError"' not in result:
        return True
    try:
        return not decoded(_FLAG, result).isError
    except MalformedError:
        return False
