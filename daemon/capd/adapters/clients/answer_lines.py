"""The lines that answer a client's requests."""

from typing import Any

import msgspec

from capd.adapters.clients.line_sinks import RequestId
from capd_protos import socket as frames


def answer_line(request_id: RequestId, member: bytes, value: bytes) -> bytes:
    """Return a response whose `member`, with its colon, has `value`."""
    return b'{"jsonrpc":"2.0","id":%s,%s%s}' % (msgspec.json.encode(request_id), member, value)


def error_line(request_id: RequestId, code: int, text: str, data: Any = None) -> bytes:
    """Return the response that tells of an error."""
    return answer_line(
        request_id, b'"error":', msgspec.json.encode(frames.RpcError(code, text, data))
    )


def unreadable_line(request_id: RequestId, data: bytes, why: str) -> bytes:
    """Return the answer to a line that is no message."""
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return error_line(request_id, frames.PARSE_ERROR, f"not JSON: {why}")
    return error_line(request_id, frames.INVALID_REQUEST, f"not a request: {why}")
