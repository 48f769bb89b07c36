"""Writes the answers to requests: as one JSON document, or as a stream of events."""

from dataclasses import dataclass

import msgspec
import trio

from capd.adapters.clients.http_front.http_connection import (
    EVENTS,
    JSON,
    Headers,
    HttpAnswer,
    HttpRequest,
)
from capd.adapters.clients.http_front.http_session import Exchange
from capd.adapters.clients.http_front.outbox import Outbox
from capd.adapters.clients.http_front.stateless_headers import HEADER_MISMATCH
from capd.core.protocol.generations import MISSING_CAPABILITY, UNSUPPORTED_VERSION
from capd_protos import socket as frames
from capd_protos.codec import JsonCodec, MalformedError

KEEPALIVE = 15.0
STATUS = {
    frames.PARSE_ERROR: 400,
    frames.INVALID_REQUEST: 400,
    frames.INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    frames.METHOD_NOT_FOUND: 404,
}
"""The HTTP status of an error in the stateless generation. The handshake generation answers 200."""


class _Error(msgspec.Struct):
    code: int


class _Errored(msgspec.Struct):
    error: _Error | None = None


_ERRORED: JsonCodec[_Errored] = JsonCodec(_Errored)


class HttpRefusedError(Exception):
    """Raised for a request that has to be answered with an HTTP status and a JSON-RPC error."""

    def __init__(self, status: int, text: str, code: int = frames.INVALID_REQUEST) -> None:
        super().__init__(text)
        self.status = status
        self.error = frames.RpcError(code, text)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The content types that a client accepts for an answer: JSON, events, or both."""

    json: bool
    events: bool

    @classmethod
    def of(cls, request: HttpRequest) -> "Accepted":
        """Return which of JSON and events the `Accept` header of a request allows.

        Raises:
            HttpRefusedError: the header allows neither.
        """
        said = ",".join(request.values("accept")).lower()
        kinds = {part.partition(";")[0].strip() for part in said.split(",")} - {""}
        anything = not kinds or "*/*" in kinds
        found = cls(
            anything or JSON in kinds or "application/*" in kinds,
            anything or EVENTS in kinds or "text/*" in kinds,
        )
        if not found.json and not found.events:
            raise HttpRefusedError(406, f"an answer is {JSON} or {EVENTS}")
        return found


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A reader's position in an event stream.

    It has the stream's name, the number of the last event that was sent, and the reader's own
    number (`Outbox.claim`). If the stream has no name, its events have no ids.
    """

    name: str
    number: int
    claim: int


async def follow(answer: HttpAnswer, outbox: Outbox, place: StreamPosition, until: float) -> bool:
    """Send the lines of `outbox` after `place` as events; return whether the stream was sent whole.

    `answer` writes the events. Sending stops at the end of the stream, when another reader takes
    over, or at the time `until`.
    """
    number = place.number
    while True:
        line = None
        pause_ends_at = min(until, trio.current_time() + KEEPALIVE)
        with trio.CancelScope(deadline=pause_ends_at) as waiting:
            line = await outbox.after(number, place.claim)
        if line is not None:
            number = line[0]
            name = f"{place.name}/{number}" if place.name else ""
            if isinstance(line[1], bytes):
                await answer.event(line[1], name)
            else:
                await answer.event_large(line[1], name)
        elif not waiting.cancelled_caught or trio.current_time() >= until:
            await answer.end()
            return line is None and outbox.is_over
        else:
            await answer.comment()


async def only(exchange: Exchange) -> bytes:
    """Wait for the response to a request that has no other lines, and return it.

    Return empty bytes if none comes, or if the response is too large for memory.
    """
    line = await exchange.outbox.after(0, exchange.outbox.claim())
    return line[1] if line is not None and isinstance(line[1], bytes) else b""


def status(line: bytes) -> int:
    """Return the HTTP status for `line`, a response of the stateless generation."""
    # Cheap also for a large result, which the decoder skips without creating objects.
    try:
        error = _ERRORED.decode(line).error
    except MalformedError:
        return 200
    return STATUS.get(error.code, 200) if error is not None else 200


def error_line(message_id: msgspec.Raw | None, error: frames.RpcError) -> bytes:
    """Return a response line with `error`; `message_id` is the request's id, None if not known."""
    said = bytes(message_id) if message_id is not None else b"null"
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (said, msgspec.json.encode(error))


async def send_line(
    answer: HttpAnswer, accepted: Accepted, line: bytes, headers: Headers = ()
) -> None:
    """Send one line as the whole `answer`: as JSON if the client accepts that, else as an event."""
    if accepted.json:
        await answer.send(200, line, headers)
        return
    await answer.begin_events(headers)
    await answer.event(line)
    await answer.end()
