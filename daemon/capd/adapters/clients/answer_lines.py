"""The lines that answer a client's requests."""

from typing import Any

import msgspec

from capd.adapters.clients.conversation import RELAYED, UnknownNameError
from capd.adapters.clients.line_sinks import RequestId
from capd.adapters.large_frames import LargeFrame
from capd.core.protocol.generations import EnvelopeError
from capd.core.protocol.outcomes import ServerError, failed_result, internal_error, internal_failure
from capd.core.results.large_results import Result
from capd_protos import socket as frames
from capd_protos.codec import MalformedError


class NoMethodError(Exception):
    """capd does not support the method of the request."""


FAILURES = (ServerError, EnvelopeError, NoMethodError, MalformedError, UnknownNameError)
"""The exceptions that a client gets as JSON-RPC errors."""


def answer_line(request_id: RequestId, member: bytes, value: bytes) -> bytes:
    """Return the response line to the request `request_id`.

    `member` is `"result":` or `"error":`, and `value` its JSON.
    """
    return b'{"jsonrpc":"2.0","id":%s,%s%s}' % (msgspec.json.encode(request_id), member, value)


def error_line(request_id: RequestId, code: int, text: str, data: Any = None) -> bytes:
    """Return the response line to a request with a JSON-RPC error of this code, text and data."""
    return answer_line(
        request_id, b'"error":', msgspec.json.encode(frames.RpcError(code, text, data))
    )


def result_line(request_id: RequestId, result: Result) -> bytes | LargeFrame:
    """Return the response line to a request, with a result that may be too large for memory."""
    if isinstance(result, bytes):
        return answer_line(request_id, b'"result":', result)
    return LargeFrame(answer_line(request_id, b'"result":', b"")[:-1], result, b"}")


def failure_line(request_id: RequestId, method: str, failure: Exception) -> bytes:
    """Return the error response for `failure`, an exception of one of the classes in `FAILURES`."""
    match failure:
        case ServerError():
            return answer_line(request_id, b'"error":', failure.error)
        case EnvelopeError():
            return error_line(request_id, failure.code, str(failure), failure.data)
        case NoMethodError():
            text = f"no method {method[:100]!r}"
            return error_line(request_id, frames.METHOD_NOT_FOUND, text)
        case MalformedError():
            text = f"params of {method}: {failure}"
            return error_line(request_id, frames.INVALID_PARAMS, text)
        case _:
            # The MCP specification sets the code. A server's error may have it too, so `not_found`
            # marks the error as capd's.
            data = {"code": "not_found"}
            return error_line(request_id, frames.INVALID_PARAMS, str(failure), data)


def failed_line(
    request_id: RequestId, method: str, failure: Exception, may_have_run: bool
) -> bytes:
    """Return the response for a request that failed because of an error in capd itself.

    `failure` is that error. `may_have_run` says whether the request may have run, which the
    response tells the client.
    """
    if method not in RELAYED:
        return error_line(request_id, frames.INTERNAL_ERROR, internal_error(failure))
    outcome = internal_failure(failure, was_sent=may_have_run)
    if method != "tools/call":
        return error_line(request_id, outcome.code, str(outcome))
    return answer_line(request_id, b'"result":', failed_result(outcome))


def unreadable_line(request_id: RequestId, data: bytes, why: str) -> bytes:
    """Return the answer to the line `data`, which is not a valid message; `why` says why not."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return error_line(request_id, frames.PARSE_ERROR, f"not JSON: {why}")
    return error_line(request_id, frames.INVALID_REQUEST, f"not a request: {why}")
