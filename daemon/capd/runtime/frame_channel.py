"""Requests and replies between the daemon and a process that it has started, over a socket pair.

The process inherits its end of the pair. Neither end has an address, so no other process can
connect to it.

A frame is four bytes of length, most significant first, and that many bytes of msgpack: the
number of the request, the seconds that its sender still waits (0 in a reply), and the message
itself. Every request gets one reply with its number: a message, or a `Failure`.

    open ──end of file, garbage, a frame over the limit──> over (all waiting requests fail)
"""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Self, TypeVar

import msgspec
import structlog
import trio

from capd.core.errors import CapdError
from capd.runtime.arrivals import BODIES, Arrival
from capd.runtime.mailbox import Mailbox
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.envelope import Envelope, Failure, FailureCode
from capd_protos.types import ActorName, Address, MessageId

Q = TypeVar("Q")

MOST_FRAME_BYTES = 16 << 20
"""The largest frame. A batch of 64 texts takes about 100 kB, and so do its vectors."""
_LENGTH_BYTES = 4
_QUEUED_FRAMES = 64
_READ_BYTES = 256 << 10

log = structlog.get_logger()


class ChannelOverError(CapdError):
    """The channel cannot be used: the other process has ended, or wrote something invalid."""


class FrameTooLargeError(CapdError):
    """A message is larger than the largest frame. Nothing of it was sent."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """One message, with the number of its request and the seconds that its sender still waits."""

    id: MessageId
    deadline: float
    body: msgspec.Raw


FRAMES: MsgpackCodec[Frame] = MsgpackCodec(Frame)


class FrameChannel:
    """Sends and receives messages over one stream, each as a frame with its length.

    `write` has to run in a task of its own.
    """

    def __init__(self, stream: trio.abc.Stream, most_bytes: int = MOST_FRAME_BYTES) -> None:
        self._stream = stream
        self._most_bytes = most_bytes
        self._unread = bytearray()
        self._put, self._queued = trio.open_memory_channel[bytes](_QUEUED_FRAMES)

    async def send(self, frame: Frame) -> None:
        """Queue a frame, waiting for room in the queue. If this is cancelled, nothing is sent.

        Raises:
            FrameTooLargeError: the message is larger than the largest frame.
            ChannelOverError: the channel was closed.
        """
        try:
            await self._put.send(self._encoded(frame))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ChannelOverError("nothing is written any more") from error

    def send_nowait(self, frame: Frame) -> None:
        """Queue a frame.

        Raises:
            trio.WouldBlock: there is no room.
            FrameTooLargeError, ChannelOverError: as `send`.
        """
        try:
            self._put.send_nowait(self._encoded(frame))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ChannelOverError("nothing is written any more") from error

    async def write(self) -> None:
        """Write queued frames in order until `finish` is called. Only one task may call this.

        Raises:
            ChannelOverError: the other end has closed.
        """
        async for data in self._queued:
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ChannelOverError("the other end is gone") from error

    async def receive(self) -> Frame:
        """Return the next frame.

        Raises:
            ChannelOverError: the channel has ended.
        """
        size_bytes = int.from_bytes(await self._exactly(_LENGTH_BYTES), "big")
        if size_bytes > self._most_bytes:
            raise ChannelOverError(f"a frame of {size_bytes:,} bytes is announced")
        try:
            return FRAMES.decode(await self._exactly(size_bytes))
        except MalformedError as error:
            raise ChannelOverError(f"a frame cannot be read: {error}") from error

    def finish(self) -> None:
        """Accept no more frames, and let `write` return when all queued ones are written."""
        self._put.close()

    async def aclose(self) -> None:
        """Close the stream; a `send` that waits for room raises ChannelOverError."""
        self._queued.close()
        await trio.aclose_forcefully(self._stream)

    def _encoded(self, frame: Frame) -> bytes:
        data = FRAMES.encode(frame)
        if len(data) > self._most_bytes:
            raise FrameTooLargeError(f"a message of {len(data):,} bytes is over the limit")
        return len(data).to_bytes(_LENGTH_BYTES, "big") + data

    async def _exactly(self, size_bytes: int) -> bytes:
        while len(self._unread) < size_bytes:
            try:
                chunk = await self._stream.receive_some(_READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise ChannelOverError("the other end is gone") from error
            if not chunk:
                raise ChannelOverError("the other end has closed")
            self._unread += chunk
        data = bytes(self._unread[:size_bytes])
        del self._unread[:size_bytes]
        return data


class _Question:
    def __init__(self) -> None:
        self.answered = trio.Event()
        self.body: msgspec.Raw | None = None


class FrameClient:
    """The daemon's end of the socket pair: sends requests, and matches the replies to them."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._channel = FrameChannel(stream)
        self._ids = itertools.count(1)
        self._questions: dict[MessageId, _Question] = {}
        self._is_over = False

    async def run(self) -> None:
        """Read and write until the other end closes; requests that still wait then fail."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, nursery.cancel_scope)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self._is_over = True
            for question in self._questions.values():
                question.answered.set()
            with trio.CancelScope(shield=True):
                await self._channel.aclose()

    async def ask(self, request: msgspec.Struct, deadline: float) -> msgspec.Raw:
        """Send a request to the process and return the body of its reply.

        `deadline` is the number of seconds for which the caller waits, and is sent to the other
        process. The caller has to limit the wait itself.

        Raises:
            ChannelOverError: the other process ended; it may have carried the request out.
            FrameTooLargeError: the request was not sent.
        """
        if self._is_over:
            raise ChannelOverError("its process has ended")
        id_ = MessageId(next(self._ids))
        question = self._questions[id_] = _Question()
        try:
            await self._channel.send(Frame(id_, deadline, msgspec.Raw(BODIES.encode(request))))
            await question.answered.wait()
        finally:
            del self._questions[id_]
        if question.body is None:
            raise ChannelOverError("its process ended before it answered")
        return question.body

    async def _write(self, scope: trio.CancelScope) -> None:
        try:
            await self._channel.write()
        except ChannelOverError:
            scope.cancel()

    async def _read(self) -> None:
        while True:
            try:
                frame = await self._channel.receive()
            except ChannelOverError as error:
                log.info("channel_over", reason=str(error))
                return
            # The sender of a request that is answered too late has gone.
            question = self._questions.get(frame.id)
            if question is not None:
                question.body = frame.body
                question.answered.set()


class FrameEndpoint:
    """The other process's end of the socket pair: receives the requests to its only actor.

    It also sends the actor's answers.
    """

    def __init__(self, actor: ActorName, stream: trio.abc.Stream) -> None:
        self.actor = actor
        self._channel = FrameChannel(stream)

    @asynccontextmanager
    async def mailbox(
        self, actor: ActorName, request_codec: MsgpackCodec[Q]
    ) -> AsyncIterator[Mailbox[Q]]:
        """Open the mailbox of the actor while a `with` block runs."""
        assert actor == self.actor, "a process of its own has one actor"
        mailbox = Mailbox(self, request_codec)
        try:
            yield mailbox
        finally:
            mailbox.close()

    async def write(self) -> None:
        """Write answers until cancelled, or until `finish` was called and all are written.

        Raises:
            ChannelOverError: the daemon is gone.
        """
        await self._channel.write()

    def finish(self) -> None:
        """Let `write` return when every answer has been written."""
        self._channel.finish()

    @property
    def requests(self) -> AsyncIterator[Arrival]:
        """The requests, until ChannelOverError says that the daemon is gone."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Arrival:
        frame = await self._channel.receive()
        envelope = Envelope(frame.id, ActorName("daemon"), frame.deadline, Address(""))
        return Arrival(b"", envelope, bytes(frame.body), trio.current_time() + frame.deadline)

    def drain(self) -> Iterator[Arrival]:
        """Yield nothing: when the channel has ended, nobody waits for an answer."""
        yield from ()

    async def answer(self, arrival: Arrival, body: bytes) -> None:
        """Queue `body`, the actor's encoded answer to a request."""
        await self._channel.send(Frame(arrival.envelope.id, 0.0, msgspec.Raw(body)))

    def fail(self, arrival: Arrival, code: FailureCode, message: str) -> None:
        """Answer a request with a failure, for an actor that gave no answer.

        The answer is lost if the daemon does not read.
        """
        body = msgspec.Raw(BODIES.encode(Failure(code=code, message=message)))
        try:
            self._channel.send_nowait(Frame(arrival.envelope.id, 0.0, body))
        except (trio.WouldBlock, ChannelOverError):
            self.count("undeliverable_answer", arrival.envelope)

    def stop(self, arrival: Arrival) -> None:
        """Answer a request with the failure `stopping`: the actor ends without answering it."""
        self.fail(arrival, "stopping", f"{self.actor} is stopping; ask again in a moment")

    def count(self, event: str, envelope: Envelope) -> None:
        """Log, under the name `event`, a request that got no reply; it is not counted."""
        log.info(event, actor=self.actor, id=envelope.id)
