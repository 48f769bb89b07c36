"""Turns a remote server's bodies and events into lines, and makes replies for failed requests."""

import msgspec

from capd.adapters.servers.server_lines import INCOMING, LINK_MARK, Incoming, own_id
from capd.core.protocol.outcomes import CallFailedError, OutcomeUnknownError
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.socket import INVALID_REQUEST, METHOD_NOT_FOUND

_NOT_FOUND_STATUSES = {404, 405}
MOST_BATCH_BYTES = 16 << 20
MOST_BATCH_MESSAGES = 1000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some libraries write it before a body. `fetch` skips it."""
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_BATCH: JsonCodec[list[msgspec.Raw]] = JsonCodec(list[msgspec.Raw])


class _OfBatch(msgspec.Struct, gc=False):
    """The member that every message of a batch has. Decoding stops at an element without it."""

    jsonrpc: str


_HEADS: JsonCodec[list[_OfBatch]] = JsonCodec(list[_OfBatch])

MessageId = int | str | float | None


def lines_of(body: bytes) -> list[bytes]:
    """Return each message of `body` as one line. A body is one message, or a batch (2025-03-26).

    Line breaks become spaces, because in JSON they can only stand between tokens.

    Raises:
        MalformedError: a batch is not valid JSON, or too large.
    """
    # Most bodies have no line break, so a body of 256 MiB is usually not copied.
    text = body.translate(_ONE_LINE) if b"\n" in body or b"\r" in body else body
    text = text.removeprefix(_BYTE_ORDER_MARK).strip()
    if text.startswith(b"["):  # 2025-03-26 has batches
        return _messages_of(text)
    return [text] if text else []


def _messages_of(batch: bytes) -> list[bytes]:
    # A hundred million zeros fit into 256 MiB, and take gigabytes as a list.
    if len(batch) > MOST_BATCH_BYTES:
        raise MalformedError(f"a batch of more than {MOST_BATCH_BYTES} bytes")
    if len(_HEADS.decode(batch)) > MOST_BATCH_MESSAGES:
        raise MalformedError(f"a batch of more than {MOST_BATCH_MESSAGES} messages")
    return [bytes(each) for each in _BATCH.decode(batch)]


def is_reply(message: Incoming) -> bool:
    """Tell whether a message is a response: a result or an error."""
    return not message.method and bool(len(message.result) or len(message.error))


def is_same_id(found: object, asked: object) -> bool:
    """Tell whether a reply's id is that of the request `asked`, perhaps as another JSON value."""
    return found == asked or own_id(found) == asked is not None


def error_of(body: bytes) -> bytes:
    """Return the error object in the body of an error response; empty if there is none."""
    try:
        message = INCOMING.decode(body.removeprefix(_BYTE_ORDER_MARK))
    except MalformedError:
        return b""
    error = b"" if message.method else bytes(message.error).translate(_ONE_LINE)
    # OAuth's errors also have a member `error`, but it is a string (RFC 6749, section 5.2).
    return error if error.startswith(b"{") else b""


def error_reply(message_id: MessageId, error: bytes) -> bytes:
    """Return the line that answers the request `message_id` with an error object in JSON."""
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (msgspec.json.encode(message_id), error)


def failure_reply(message_id: MessageId, failure: CallFailedError) -> bytes:
    """Return the line that answers the request `message_id`, which ended with `failure`."""
    text = str(failure)
    if isinstance(failure, OutcomeUnknownError):
        text += "; the call may have run, so check before repeating it"
    error = {
        "code": failure.code,
        "message": text,
        "data": {"capd": failure.outcome, "link": LINK_MARK},
    }
    return error_reply(message_id, msgspec.json.encode(error))


def status_reply(message_id: MessageId, name: str, status: int) -> bytes:
    """Return the line that answers a request which HTTP refused before MCP saw it.

    `name` is the server's, `status` the HTTP status.
    """
    code = METHOD_NOT_FOUND if status in _NOT_FOUND_STATUSES else INVALID_REQUEST
    error = {
        "code": code,
        "message": f"{name} answered with HTTP status {status}",
        "data": {"capd": "http_status", "status": status, "link": LINK_MARK},
    }
    return error_reply(message_id, msgspec.json.encode(error))
