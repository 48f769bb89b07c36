"""How the daemon's actors send each other messages, addressed by name.

Every address is `inproc://`, so no other process can send or listen. The requests of an actor are a
msgspec union of tagged Structs with one codec, and so are its replies. No union has a member tagged
`failure`, so a `Failure` is never decoded as a reply.

The topic of an event is its tag, and a subscription is for all tags with a prefix, such as
`server.`. A subscriber that is slow or absent misses events.
"""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

import msgspec
import structlog
import trio
import zmq

from capd.core.errors import CapdError
from capd.runtime.arrivals import BODIES, ENVELOPES, LOST
from capd.runtime.endpoint import ActorEndpoint
from capd.runtime.handle_table import OFFERS
from capd.runtime.mailbox import Mailbox
from capd.runtime.zmq_socket import CannotBindError, Context, SocketFullError, TrioSocket
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.envelope import Envelope, Failure, Offered
from capd_protos.types import ActorName, Address, MessageId

Q = TypeVar("Q")
R = TypeVar("R")
E = TypeVar("E")

log = structlog.get_logger()

_FAILURES: MsgpackCodec[Failure | Offered] = MsgpackCodec(Failure | Offered)


class ActorUnavailableError(CapdError):
    """No usable reply came; the subclass says why."""


class AskTimeoutError(ActorUnavailableError):
    """The request was sent, but no answer came in time: it may have been carried out."""


class AskLostError(AskTimeoutError):
    """The request was passed on to a process that ended: it may have been carried out."""


class PeerUnreachableError(ActorUnavailableError):
    """The request could not be sent in time, so it was not carried out."""


class AskFailedError(ActorUnavailableError):
    """The other side answered with a `Failure`, or with something that is not a reply."""

    def __init__(self, actor: ActorName, code: str, message: str) -> None:
        super().__init__(f"{actor} did not answer ({code}): {message}")
        self.code = code
        self.message = message


@dataclass(eq=False, slots=True)
class _Question:
    """A call of `ask` that waits for its reply."""

    answered: trio.Event = field(default_factory=trio.Event)
    body: bytes | None = None
    is_sent: bool = False


class Peer:
    """Sends requests to one actor, and gives each caller the answer to its request."""

    def __init__(
        self,
        context: Context,
        actor: ActorName,
        address: Address,
        *,
        sender: ActorName,
        reply_to: Address,
        counts: Counter[str],
    ) -> None:
        self._actor = actor
        self._address = address
        self._sender = sender
        self._reply_to = reply_to
        self._counts = counts
        self._log = log.bind(peer=actor)
        self._questions: dict[MessageId, _Question] = {}
        self._socket = TrioSocket(context, zmq.SocketType.DEALER)
        self._socket.connect(address)

    async def listen(self) -> None:
        """Pass answers to their callers, until cancelled."""
        while True:
            self._take(await self._socket.recv())

    def _take(self, frames: list[bytes]) -> None:
        try:
            head, body = frames
            message_id = ENVELOPES.decode(head).id
        except ValueError:
            # Too few or too many frames, or a MalformedError.
            self._counts["garbage_reply"] += 1
            self._log.warning("garbage_reply", frames=len(frames))
            return
        question = self._questions.get(message_id)
        if question is None:
            self._counts["late_reply"] += 1
            self._log.info("late_reply", id=message_id)
            return
        question.body = body
        question.answered.set()

    async def ask(
        self,
        message_id: MessageId,
        request: msgspec.Struct,
        reply_codec: MsgpackCodec[R],
        timeout: float,
    ) -> R:
        """Send `request` to the actor and return the answer.

        Raises:
            AskTimeoutError, AskLostError, PeerUnreachableError, AskFailedError: as `Bus.ask`.
        """
        body = BODIES.encode(request)
        question = _Question()
        self._questions[message_id] = question
        try:
            with trio.move_on_after(timeout) as patience:
                await self._send(message_id, body, patience, question)
                await question.answered.wait()
        finally:
            del self._questions[message_id]
        if question.body is not None:
            return self._reply(question.body, reply_codec)
        if question.is_sent:
            raise AskTimeoutError(
                f"{self._actor} did not answer in {timeout:g} s; it may have acted all the same"
            )
        raise PeerUnreachableError(
            f"{self._actor} took nothing at {self._address} for {timeout:g} s; is it running?"
        )

    def close(self) -> None:
        """Close the socket; no request may follow."""
        self._socket.close()

    async def _send(
        self, message_id: MessageId, body: bytes, patience: trio.CancelScope, question: _Question
    ) -> None:
        while True:
            # Encoded again for each attempt, because the deadline counts from the sending.
            envelope = Envelope(
                id=message_id,
                sender=self._sender,
                deadline=patience.deadline - trio.current_time(),
                reply_to=self._reply_to,
            )
            try:
                self._socket.send_nowait([ENVELOPES.encode(envelope), body])
            except SocketFullError:
                await self._socket.wait_writable()
            else:
                question.is_sent = True
                return

    def _reply(self, body: bytes, reply_codec: MsgpackCodec[R]) -> R:
        # The reply is tried first, because failures are rare. No reply has the tag of a failure.
        try:
            return reply_codec.decode(body)
        except MalformedError as not_a_reply:
            reason = str(not_a_reply)
        try:
            failure = _FAILURES.decode(body)
        except MalformedError:
            raise AskFailedError(self._actor, "unreadable_reply", reason) from None
        if isinstance(failure, Offered):
            taken = OFFERS.take(failure.number)
            if taken is None:
                raise AskFailedError(self._actor, "unreadable_reply", "it is offered no longer")
            # No codec checks the object, but an actor of this process has put it there.
            return cast("R", taken)
        if failure.code == LOST:
            raise AskLostError(f"{self._actor}: {failure.message}; it may have acted all the same")
        raise AskFailedError(self._actor, failure.code, failure.message)


class _Publisher:
    """Sends the events of all actors of the process."""

    def __init__(self, context: Context, address: Address) -> None:
        self._socket = TrioSocket(context, zmq.SocketType.PUB)
        try:
            self._socket.bind(address)
        except CannotBindError:
            self._socket.close()
            raise

    def publish(self, event: msgspec.Struct) -> None:
        """Send `event` to the present subscribers. A subscriber whose queue is full misses it."""
        tag = event.__struct_config__.tag
        if not isinstance(tag, str):
            raise TypeError(f"{type(event).__name__} has no tag of text, so no topic")
        self._socket.send_nowait([tag.encode(), BODIES.encode(event)])

    def close(self) -> None:
        self._socket.close()


class Subscription(Generic[E]):
    """An endless iterator of events. Events that the codec does not know are skipped."""

    def __init__(
        self,
        context: Context,
        address: Address,
        codec: MsgpackCodec[E],
        prefixes: tuple[str, ...],
        counts: Counter[str],
    ) -> None:
        self._codec = codec
        self._counts = counts
        self._socket = TrioSocket(context, zmq.SocketType.SUB)
        self._socket.connect(address)
        for prefix in prefixes or ("",):
            self._socket.subscribe(prefix.encode())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        while True:
            frames = await self._socket.recv()
            try:
                return self._codec.decode(frames[-1])
            except MalformedError:
                self._counts["undecodable_event"] += 1
                log.info("undecodable_event", topic=frames[0][:100])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Bus:
    """Owns a process's ZeroMQ sockets and the tasks that read them; use it as `async with`.

    Mailboxes and subscriptions must be closed before the bus. `counts` has the number of dropped
    messages, by the name of the log event.
    """

    def __init__(
        self,
        addresses: Mapping[ActorName, Address],
        name: ActorName,
        *,
        events: Address | None = None,
        bind_events: bool = False,
        context: Context | None = None,
    ) -> None:
        """Create the bus of the process or actor `name`; `addresses` are those of all actors.

        `events` is the address of the events. Every bus can subscribe there; only the one with
        `bind_events` can publish. Buses reach each other only if they have the same `context`.
        """
        self.counts: Counter[str] = Counter()
        self._addresses = addresses
        self._name = name
        self._events = events
        self._bind_events = bind_events
        self._own_context: Context | None = None
        self._shared_context = context
        self._ids = itertools.count(1)
        self._peers: dict[ActorName, Peer] = {}
        self._endpoints: dict[ActorName, ActorEndpoint] = {}
        self._publisher: _Publisher | None = None

    async def __aenter__(self) -> Self:
        if self._shared_context is None:
            self._own_context = zmq.Context()
        if self._bind_events:
            try:
                self._publisher = _Publisher(self._context, self._events_address)
            except CannotBindError:
                self._close_context()
                raise
        self._nursery_manager = trio.open_nursery()
        self._nursery = await self._nursery_manager.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._nursery.cancel_scope.cancel()
        try:
            # Without `error`, so that the nursery does not wrap it in an exception group.
            await self._nursery_manager.__aexit__(None, None, None)
        finally:
            for endpoint in self._endpoints.values():
                endpoint.close()
            for peer in self._peers.values():
                peer.close()
            if self._publisher is not None:
                self._publisher.close()
            self._close_context()

    def mailbox(
        self, actor: ActorName, request_codec: MsgpackCodec[Q]
    ) -> AbstractAsyncContextManager[Mailbox[Q]]:
        """Receive the requests to `actor` within a `with` block; iterate over the mailbox for them.

        The address stays bound until the bus ends. Requests that arrive between two blocks, as in
        a restart of the actor, wait for the next block until their senders give up.
        """
        return self._mailbox(actor, request_codec)

    async def ask(
        self,
        actor: ActorName,
        request: msgspec.Struct,
        reply_codec: MsgpackCodec[R],
        timeout: float,
    ) -> R:
        """Return the reply of `actor` to `request`. The actor need not be listening yet.

        Raises:
            ActorUnavailableError: no usable reply came; the other four are its subclasses.
            AskTimeoutError: sent, and not answered within `timeout` seconds.
            AskLostError: passed on to another process, which ended.
            PeerUnreachableError: not sent within `timeout` seconds.
            AskFailedError: answered with a `Failure`, or with something unreadable.
        """
        peer = self._peers.get(actor)
        if peer is None:
            peer = self._peers[actor] = Peer(
                self._context,
                actor,
                self._addresses[actor],
                sender=self._name,
                reply_to=self._addresses.get(self._name, Address("")),
                counts=self.counts,
            )
            self._nursery.start_soon(peer.listen, name=f"answers of {actor}")
        return await peer.ask(MessageId(next(self._ids)), request, reply_codec, timeout)

    def publish(self, event: msgspec.Struct) -> None:
        """Send `event` to the present subscribers, without waiting."""
        if self._publisher is None:
            raise RuntimeError(f"{self._name} does not publish: its bus has no bind_events")
        self._publisher.publish(event)

    def subscribe(
        self, codec: MsgpackCodec[E], *topic_prefixes: str
    ) -> AbstractAsyncContextManager[Subscription[E]]:
        """Receive events whose tags start with one of `topic_prefixes`; without any, all events."""
        return self._subscribe(codec, topic_prefixes)

    @asynccontextmanager
    async def _mailbox(
        self, actor: ActorName, request_codec: MsgpackCodec[Q]
    ) -> AsyncIterator[Mailbox[Q]]:
        endpoint = self._endpoints.get(actor)
        if endpoint is None:
            endpoint = ActorEndpoint(self._context, actor, self._addresses[actor], self.counts)
            self._endpoints[actor] = endpoint
            self._nursery.start_soon(endpoint.collect, name=f"requests to {actor}")
        if endpoint.has_reader:
            raise RuntimeError(f"{actor} has a mailbox in this process already")
        endpoint.has_reader = True
        mailbox = Mailbox(endpoint, request_codec)
        try:
            yield mailbox
        finally:
            mailbox.close()
            endpoint.has_reader = False

    @asynccontextmanager
    async def _subscribe(
        self, codec: MsgpackCodec[E], topic_prefixes: tuple[str, ...]
    ) -> AsyncIterator[Subscription[E]]:
        subscription = Subscription(
            self._context, self._events_address, codec, topic_prefixes, self.counts
        )
        try:
            yield subscription
        finally:
            subscription.close()

    @property
    def _context(self) -> Context:
        context = self._shared_context or self._own_context
        if context is None:
            raise RuntimeError("the bus has not been entered")
        return context

    @property
    def _events_address(self) -> Address:
        if self._events is None:
            raise RuntimeError(f"the bus of {self._name} was given no address for events")
        return self._events

    def _close_context(self) -> None:
        if self._own_context is not None:
            self._own_context.destroy(linger=0)
            self._own_context = None
