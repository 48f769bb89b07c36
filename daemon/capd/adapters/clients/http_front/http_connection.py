"""One HTTP/1.1 connection: requests in, each answered whole or as a stream of events.

    head ──admitted──> body ──> answered ──> the next head, or closed
      └──refused, or not HTTP──> answered, closed

Everything that a peer sends is limited in size and in time. If a peer disconnects during an answer,
only that answer ends.
"""

# h11 parses HTTP without I/O, and on trio the I/O takes only a few lines. A server such as
# hypercorn would report a client's disconnection late, through its application interface.
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

import h11
import trio

from capd.adapters.fair_share import FairShare
from capd.adapters.large_frames import LargeFrame

HEAD_LIMIT_BYTES = 32 * 1024
BODY_LIMIT_BYTES = 1024 * 1024
HEAD_TIMEOUT = 75.0
"""Seconds to wait for the head of a request, counted from the last answer."""
BODY_TIMEOUT = 30.0
WRITE_TIMEOUT = 60.0
_CHUNK_BYTES = 64 * 1024
_OK = 200
_NO_CONTENT = 204
_BAD_REQUEST = 400
_UNAUTHORIZED = 401
_TOO_LARGE = 413

JSON = "application/json"
EVENTS = "text/event-stream"

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: Headers
    body: bytes = b""

    def values(self, name: str) -> list[str]:
        """Return every value of a header."""
        return [value for each, value in self.headers if each == name]

    def value(self, name: str) -> str:
        """Return the first value of a header; empty if it was not sent."""
        return next(iter(self.values(name)), "")


class Refused(Protocol):
    """The reason why a request is refused."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def text(self) -> str:
        """The reason, in words for a person."""
        ...


class HttpAnswer:
    """Writes the answer to one request: a document, or a stream of events."""

    def __init__(
        self, http: h11.Connection, stream: trio.abc.Stream, *, is_head: bool = False
    ) -> None:
        """Note where to write. With `is_head`, the method was HEAD, so the answer has no body."""
        self._http = http
        self._stream = stream
        self._is_head = is_head

    @property
    def is_begun(self) -> bool:
        """Whether the status has been sent."""
        return self._http.our_state is not h11.SEND_RESPONSE

    async def send(
        self, status: int, body: bytes = b"", headers: Headers = (), *, kind: str = JSON
    ) -> None:
        """Send the whole answer at once: the status, and a body of the content type `kind`."""
        head = [("cache-control", "no-store"), *headers]
        if status != _NO_CONTENT:
            head.append(("content-length", str(len(body))))
        if body:
            head.append(("content-type", kind))
        sent = b"" if self._is_head else body
        await self._send(h11.Response(status_code=status, headers=head), sent)

    async def refused(self, status: int, text: str) -> None:
        """Send an error status with `text` as the body, and `connection: close`."""
        head = [("connection", "close")]
        if status == _UNAUTHORIZED:
            head.append(("www-authenticate", "Bearer"))
        await self.send(status, text.encode() + b"\n", tuple(head), kind="text/plain")

    async def begin_events(self, headers: Headers = ()) -> None:
        """Begin a stream of events."""
        head = [("content-type", EVENTS), ("cache-control", "no-store"), *headers]
        await self._send(h11.Response(status_code=_OK, headers=head), end=False)

    async def event(self, data: bytes, number: str = "", *, retry: int | None = None) -> None:
        """Send the event with the data `data` and the id `number`; `retry` is in milliseconds."""
        # CR and LF end a line of an event. In JSON they stand only between tokens.
        lines = [b"data: " + data.replace(b"\r", b" ").replace(b"\n", b" ")]
        if retry is not None:
            lines.insert(0, b"retry: %d" % retry)
        if number:
            lines.insert(0, b"id: " + number.encode())
        await self._send(b"\n".join([*lines, b"", b""]), end=False)

    async def send_large(self, frame: LargeFrame, headers: Headers = ()) -> None:
        """Send the document in `frame`, which is too large for memory, as the whole answer.

        Raises:
            trio.BrokenResourceError: the client has disconnected, or the disk has a fault.
        """
        size_bytes = frame.size_bytes + len(b"\n")
        head = [("cache-control", "no-store"), *headers]
        head += [("content-length", str(size_bytes)), ("content-type", JSON)]
        await self._send(h11.Response(status_code=_OK, headers=head), end=False)
        await self._send_pieces(frame)
        await self.end()

    async def event_large(self, frame: LargeFrame, number: str = "") -> None:
        """Send an event with the data in `frame`, which are too large for memory.

        `number` is the id of the event.

        Raises:
            trio.BrokenResourceError: the client has disconnected, or the disk has a fault.
        """
        await self._send((f"id: {number}\n" if number else "").encode() + b"data: ", end=False)
        await self._send_pieces(frame, bytes.maketrans(b"\r\n", b"  "))
        await self._send(b"\n\n", end=False)

    async def _send_pieces(self, frame: LargeFrame, table: bytes | None = None) -> None:
        try:
            async with aclosing(frame.pieces()) as pieces:
                async for piece in pieces:
                    await self._send(piece.translate(table), end=False)
        except OSError:
            # A part is sent already, so only closing the connection shows that the rest is missing.
            raise trio.BrokenResourceError("the disk has a fault") from None

    async def comment(self) -> None:
        """Send a comment, which readers ignore, to show that the connection is alive."""
        await self._send(b":\n\n", end=False)

    async def end(self) -> None:
        """End the stream of events."""
        await self._send(b"")

    async def _send(
        self, first: h11.Response | bytes, body: bytes = b"", *, end: bool = True
    ) -> None:
        event = h11.Data(data=first) if isinstance(first, bytes) else first
        parts = [self._http.send(event) or b""]
        if body:
            parts.append(self._http.send(h11.Data(data=body)) or b"")
        if end:
            parts.append(self._http.send(h11.EndOfMessage()) or b"")
        with trio.move_on_after(WRITE_TIMEOUT) as patience:
            await self._stream.send_all(b"".join(parts))
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read")


class HttpConnection:
    """A client's HTTP connection; `serve` it in a task of its own."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT_BYTES)
        self._is_head = False

    async def serve(
        self,
        refusal: Callable[[HttpRequest], Awaitable[Refused | None]],
        respond: Callable[[HttpRequest, HttpAnswer], Awaitable[None]],
    ) -> None:
        """Answer requests until the client disconnects or violates HTTP.

        `refusal` is called before the body is read, and returns why the request is refused; None if
        it is accepted. `respond` answers an accepted request.
        """
        try:
            while await self._exchange(refusal, respond):
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            answer = self._answer()
            if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                await answer.refused(error.error_status_hint or _BAD_REQUEST, str(error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _exchange(
        self,
        refusal: Callable[[HttpRequest], Awaitable[Refused | None]],
        respond: Callable[[HttpRequest, HttpAnswer], Awaitable[None]],
    ) -> bool:
        """Read and answer one request; return whether another may follow on this connection.

        `refusal` and `respond` are those of `serve`.
        """
        head: HttpRequest | None = None
        with trio.move_on_after(HEAD_TIMEOUT):
            head = await self._head()
        if head is None:
            return False
        answer = self._answer()
        refused = await refusal(head)
        if refused is not None:
            await answer.refused(refused.status, refused.text)
            return False
        body: bytes | None = None
        with trio.move_on_after(BODY_TIMEOUT):
            body = await self._body()
        if body is None:
            text = f"a body is at most {BODY_LIMIT_BYTES} bytes, sent within {BODY_TIMEOUT:g} s"
            await answer.refused(_TOO_LARGE, text)
            return False
        request = HttpRequest(head.method, head.path, head.headers, body)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            await respond(request, answer)
            nursery.cancel_scope.cancel()
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def _answer(self) -> HttpAnswer:
        return HttpAnswer(self._http, self._stream, is_head=self._is_head)

    async def _head(self) -> HttpRequest | None:
        self._is_head = False
        event = await self._next()
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        headers = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in event.headers
        )
        path = event.target.decode("latin-1").partition("?")[0]
        return HttpRequest(event.method.decode("latin-1"), path, headers)

    async def _body(self) -> bytes | None:
        """Return the body of the request; None if it is over the limit."""
        if self._http.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            await self._stream.send_all(self._http.send(go_on) or b"")
        parts: list[bytes] = []
        size_bytes = 0
        # A body may come in parts of one byte, tens of thousands of which arrive at once.
        share = FairShare()
        while isinstance(event := await self._next(), h11.Data):
            parts.append(bytes(event.data))
            size_bytes += len(event.data)
            if size_bytes > BODY_LIMIT_BYTES:
                return None
            await share.give_way()
        return b"".join(parts)

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some(_CHUNK_BYTES)))
        return event

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Wait until the client has disconnected; then cancel `scope`, and so the answer."""
        try:
            chunk = bytes(await self._stream.receive_some(_CHUNK_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            chunk = b""
        if chunk:
            # The next request has arrived early. One chunk is buffered; the rest waits in the
            # socket.
            self._http.receive_data(chunk)
        else:
            scope.cancel()
