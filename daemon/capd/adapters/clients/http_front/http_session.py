"""One session of a client that uses HTTP: assigns each line to the request that it belongs to.

The requests of one session arrive on many connections and, in the stateless generation, from many
clients. So each request gets an id that is unique in the session, and its answer gets the client's
id back.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import msgspec
import trio

from capd.adapters.clients.http_front.outbox import MOST_BYTES, Outbox
from capd.adapters.clients.http_front.posted_message import Message
from capd.adapters.large_frames import LargeFrame
from capd.adapters.line_texts import one_line
from capd.adapters.stdio_frames import Frame, Oversized
from capd.core.protocol.generations import SUBSCRIPTION_ID
from capd_protos import socket as frames
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import SessionKey

MOST_KEPT = 64
"""Complete answers that are kept for clients that lost their connection."""
_GOODBYE = msgspec.json.encode(frames.Goodbye())
_FEED_LINES = 256

RequestId = int | str | float | None


class _Cancelled(msgspec.Struct):
    requestId: msgspec.Raw  # noqa: N815 - the protocol's name


_CANCELLED: JsonCodec[_Cancelled] = JsonCodec(_Cancelled)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request, and the stream of its answer."""

    name: str
    """The request's id within the session, which is also the name of its stream."""
    client_id: bytes
    takes_events: bool
    is_listening: bool
    outbox: Outbox = field(default_factory=Outbox)

    @property
    def head(self) -> bytes:
        """The first bytes of the response to the request, with the request's id inside capd."""
        return b'{"jsonrpc":"2.0","id":"%s",' % self.name.encode()

    def with_client_id(self, line: bytes) -> bytes:
        """Return `line` with the client's own id of the request in place of capd's."""
        if line.startswith(self.head):
            line = b'{"jsonrpc":"2.0","id":%s,' % self.client_id + line[len(self.head) :]
        if self.is_listening:
            mark = b'"%s":' % SUBSCRIPTION_ID.encode()
            line = line.replace(mark + b'"%s"' % self.name.encode(), mark + self.client_id, 1)
        return line


class HttpSession:
    """The lines of a session in both directions: what clients post, and what they get."""

    def __init__(self) -> None:
        self.key = SessionKey("")
        """The session's key, once it is open."""
        self.version = ""
        """The version agreed on in the handshake; empty in the stateless generation."""
        self.standalone = Outbox()
        """The events that belong to no request."""
        self.is_over = trio.Event()
        self.open_answers = 0
        """How many connections get answers at this moment."""
        self.used_at = trio.current_time()
        self._feed, self.lines = trio.open_memory_channel[Frame | Oversized](_FEED_LINES)
        self._ids = count(1)
        self._under_way: dict[str, Exchange] = {}
        self._complete: OrderedDict[str, Exchange] = OrderedDict()

    # What clients post

    async def request(self, message: Message, *, takes_events: bool) -> Exchange:
        """Pass a client's request on to the session; return the exchange, which gets the answer.

        `takes_events` says whether the client accepts the answer as events. After the end of the
        session, the exchange gets no answer: its stream has ended.
        """
        exchange = Exchange(
            f"http-{next(self._ids)}",
            bytes(message.id),
            takes_events,
            message.method == "subscriptions/listen",
        )
        if self.is_over.is_set():
            exchange.outbox.finish()
            return exchange
        self._under_way[exchange.name] = exchange
        line = exchange.head + b'"method":%s' % msgspec.json.encode(message.method)
        await self._pass_on(line, b"params", message.params)
        return exchange

    async def note(self, message: Message) -> None:
        """Pass a notification, or an answer to a server's request, on to the session."""
        if not message.method:
            head = b'{"jsonrpc":"2.0","id":%s' % bytes(message.id)
            is_result = bool(len(message.result))
            value = message.result if is_result else message.error
            await self._pass_on(head, b"result" if is_result else b"error", value)
        elif message.method == "notifications/cancelled":
            with suppress(MalformedError):
                cancelled = bytes(_CANCELLED.decode(message.params).requestId)
                for exchange in list(self._under_way.values()):
                    if exchange.client_id == cancelled:
                        self.cancel(exchange)
        else:
            head = b'{"jsonrpc":"2.0","method":%s' % msgspec.json.encode(message.method)
            await self._pass_on(head, b"params", message.params)

    def cancel(self, exchange: Exchange) -> None:
        """Cancel the request of `exchange`. It gets no answer."""
        if self._under_way.pop(exchange.name, None) is None:
            return
        exchange.outbox.finish()
        params = msgspec.json.encode({"requestId": exchange.name})
        line = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}' % params
        with suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self._feed.send_nowait(Frame(line))

    def forget(self, exchange: Exchange) -> None:
        """Drop an answer that was sent whole and that no client can request again."""
        self._complete.pop(exchange.name, None)

    def sent(self, exchange: Exchange) -> None:
        """Drop an answer that was sent whole, if it is in a file.

        Other answers may be requested again.
        """
        if exchange.outbox.holds_large:
            self.forget(exchange)

    def exchange(self, name: str) -> Exchange | None:
        """Return the exchange whose stream has this name; None if there is none."""
        return self._under_way.get(name) or self._complete.get(name)

    async def end(self) -> None:
        """End the session, and release the servers that it holds."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._feed.send(Frame(_GOODBYE))

    async def _pass_on(self, head: bytes, name: bytes, value: msgspec.Raw) -> None:
        line = head
        if len(value):
            line += b',"%s":%s' % (name, bytes(value))
        # A newline can only stand between tokens, and would end a line to a server.
        line = line.replace(b"\n", b" ").replace(b"\r", b" ") + b"}"
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._feed.send(Frame(line))

    # What clients get: the methods of a `LineSink`

    async def send(self, line: bytes, related: RequestId = None) -> None:
        """Put a line into the event stream of the request `related`, as `post` does."""
        self.post(line, related)
        await trio.lowlevel.checkpoint()

    async def send_large(self, frame: LargeFrame) -> None:
        """Put an answer that is too large for memory into the stream that it belongs to."""
        for exchange in list(self._under_way.values()):
            if frame.begins_with(exchange.head):
                del self._under_way[exchange.name]
                client_head = b'{"jsonrpc":"2.0","id":%s,' % exchange.client_id
                exchange.outbox.put(frame.with_head(exchange.head, client_head), is_last=True)
                self._keep(exchange)
        await trio.lowlevel.checkpoint()

    def post(self, line: bytes, related: RequestId = None) -> None:
        """Put a line into the stream of the request `related`.

        Without `related`, the line goes to the stream of events that belong to no request. So does
        a line before the response if the client does not accept the answer as events; in the
        stateless generation it is dropped. A line for a request that has ended is dropped, too.

        Raises:
            WriterFullError: the client does not read its events.
        """
        if line.startswith(frames.LINK_PREFIX):
            return  # frames of capd's own protocol are not for HTTP clients
        line = one_line(line)
        exchange = self._under_way.get(related) if isinstance(related, str) else None
        if exchange is None:
            if related is None:
                self.standalone.put(line)
            return
        if line.startswith(exchange.head):
            del self._under_way[exchange.name]
            exchange.outbox.put(exchange.with_client_id(line), is_last=True)
            self._keep(exchange)
        elif exchange.takes_events:
            exchange.outbox.put(exchange.with_client_id(line))
        elif self.version:
            # The answer is one JSON document, so other lines go to the standalone stream.
            self.standalone.put(line)

    def open(self, nursery: trio.Nursery, on_gone: Callable[[], None]) -> None:
        """Start a task in `nursery` that calls `on_gone` when the session is over.

        No task writes lines, because clients fetch them.
        """
        nursery.start_soon(self._watch, on_gone)

    async def _watch(self, on_gone: Callable[[], None]) -> None:
        await self.is_over.wait()
        on_gone()

    async def aclose(self) -> None:
        """End the session for its clients: finish all answers and event streams."""
        self.is_over.set()
        self.lines.close()
        self.standalone.finish()
        for exchange in self._under_way.values():
            exchange.outbox.finish()
        await trio.lowlevel.checkpoint()

    def _keep(self, exchange: Exchange) -> None:
        if not self.version or not exchange.takes_events:
            return
        self._complete[exchange.name] = exchange
        while len(self._complete) > MOST_KEPT or (
            len(self._complete) > 1
            and sum(each.outbox.size_bytes for each in self._complete.values()) > MOST_BYTES
        ):
            self._complete.popitem(last=False)
