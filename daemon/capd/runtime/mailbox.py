"""An actor's mailbox: requests, each of which gets exactly one answer.

a request:  taken -> answered   by `reply`, by leaving its block, or by the mailbox's end

`serve` takes the requests of an actor and runs each in its own task with its own error boundary. A
request that raises an error is answered as `crashed`, and the error is logged; other requests are
not affected. An error outside of a request ends the actor, and supervision starts it again.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from capd.core.errors import CapdError
from capd.runtime.arrivals import BODIES, LOST, Arrival, Arrivals
from capd.runtime.boundary import contained
from capd.runtime.handle_table import OFFERS
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.envelope import Offered, Ping, Pong
from capd_protos.types import ActorName

Q = TypeVar("Q")

_PING = BODIES.encode(Ping())
_PONG = BODIES.encode(Pong())


class AlreadyAnsweredError(CapdError):
    """A request was answered a second time."""


class IncomingRequest(Generic[Q]):
    """A request that has to be answered once.

    Leaving `async with request:` without an answer sends a `Failure`.
    """

    def __init__(self, mailbox: "Mailbox[Q]", arrival: Arrival, request: Q) -> None:
        self.request = request
        self.expires_at = arrival.expires_at
        """When the sender gives up, on this process's `trio.current_time()`."""
        self._mailbox = mailbox
        self._arrival = arrival

    @property
    def sender(self) -> ActorName:
        """The actor that sent the request."""
        return self._arrival.envelope.sender

    @property
    def is_answered(self) -> bool:
        """Whether the one answer has been given."""
        return self not in self._mailbox.unanswered

    @property
    def remaining(self) -> float:
        """The seconds for which the sender still waits; 0.0 if it has given up."""
        return max(0.0, self.expires_at - trio.current_time())

    async def offer(self, message: msgspec.Struct) -> None:
        """Answer with the object `message` itself, which the receiver must not change.

        Raises:
            AlreadyAnsweredError: as for `reply`.
        """
        await self.reply(Offered(OFFERS.put(message)))

    async def reply(self, message: msgspec.Struct) -> None:
        """Answer with `message`; if the sender has given up, nothing is sent.

        Raises:
            AlreadyAnsweredError: the request was answered already, or its mailbox has closed.
        """
        body = BODIES.encode(message)
        self._close()
        await self._mailbox.endpoint.answer(self._arrival, body)

    def lose(self, message: str) -> None:
        """Answer with a failure, because the process that should reply has ended.

        `message` is the failure's text.

        Raises:
            AlreadyAnsweredError: as for `reply`.
        """
        self._close()
        self._mailbox.endpoint.fail(self._arrival, LOST, message)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_answered:
            return
        self._close()
        endpoint = self._mailbox.endpoint
        if error is None:
            endpoint.fail(self._arrival, "no_answer", f"{endpoint.actor} gave no answer")
        elif isinstance(error, trio.Cancelled):
            endpoint.stop(self._arrival)
        else:
            # Without the text of the error, which may contain parts of another actor's request.
            endpoint.fail(self._arrival, "crashed", f"{endpoint.actor}: {type(error).__name__}")

    def _close(self) -> None:
        if self.is_answered:
            raise AlreadyAnsweredError(f"{self._mailbox.endpoint.actor} answered this already")
        del self._mailbox.unanswered[self]


class Mailbox(Generic[Q]):
    """The requests to an actor during one run of it: iterate over the mailbox.

    A body that is not a valid request is answered as `malformed`, and skipped. A request whose
    sender has given up is skipped without an answer.
    """

    def __init__(self, endpoint: Arrivals, request_codec: MsgpackCodec[Q]) -> None:
        self.endpoint = endpoint
        self.unanswered: dict[IncomingRequest[Q], Arrival] = {}
        self._codec = request_codec
        self._requests = endpoint.requests

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> IncomingRequest[Q]:
        while True:
            arrival = await anext(self._requests)
            # False also if the deadline is not a number.
            is_awaited = arrival.expires_at > trio.current_time()
            if not is_awaited:
                self.endpoint.count("expired_request", arrival.envelope)
                continue
            if arrival.body == _PING:
                # Answered here, so that the answer proves that the actor takes its requests.
                await self.endpoint.answer(arrival, _PONG)
                continue
            try:
                request = self._codec.decode(arrival.body)
            except MalformedError as error:
                self.endpoint.count("malformed_request", arrival.envelope)
                self.endpoint.fail(arrival, "malformed", str(error))
                continue
            incoming = IncomingRequest(self, arrival, request)
            self.unanswered[incoming] = arrival
            return incoming

    def close(self) -> None:
        """Answer every open and every waiting request with `stopping`."""
        for arrival in self.unanswered.values():
            self.endpoint.stop(arrival)
        self.unanswered.clear()
        for arrival in self.endpoint.drain():
            self.endpoint.stop(arrival)


class Mailboxes(Protocol):
    """The bus, or the end of a frame channel: either can open an actor's mailbox."""

    def mailbox(
        self, actor: ActorName, request_codec: MsgpackCodec[Q]
    ) -> AbstractAsyncContextManager[Mailbox[Q]]:
        """Open the mailbox of `actor` for as long as the block runs."""
        ...


async def serve(
    mailboxes: Mailboxes,
    actor: ActorName,
    requests: MsgpackCodec[Q],
    replied: Callable[[Q], Awaitable[msgspec.Struct]],
    *,
    log: FilteringBoundLogger,
    task_status: trio.TaskStatus[None],
    offers: tuple[type[msgspec.Struct], ...] = (),
) -> None:
    """Answer every request to `actor` with `await replied(request)`, until cancelled.

    Replies of the types in `offers` are large, and are passed as objects without being encoded.
    """

    async def answer(incoming: IncomingRequest[Q]) -> None:
        async with incoming:
            reply = await replied(incoming.request)
            await (incoming.offer if isinstance(reply, offers) else incoming.reply)(reply)

    in_boundary = partial(contained, log=log)
    async with trio.open_nursery() as nursery, mailboxes.mailbox(actor, requests) as mailbox:
        task_status.started()
        async for incoming in mailbox:
            nursery.start_soon(in_boundary, type(incoming.request).__name__, answer, incoming)
