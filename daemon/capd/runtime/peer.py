"""The connection over which all tasks of a bus send requests to one actor."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeVar, cast

import msgspec
import structlog
import trio
import zmq

from capd.core.errors import CapdError
from capd.runtime.arrivals import BODIES, ENVELOPES, LOST
from capd.runtime.handle_table import OFFERS
from capd.runtime.zmq_socket import Context, SocketFullError, TrioSocket
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.envelope import Envelope, Failure, Offered
from capd_protos.types import ActorName, Address, MessageId

R = TypeVar("R")

log = structlog.get_logger()

_FAILURES: MsgpackCodec[Failure | Offered] = MsgpackCodec(Failure | Offered)


class ActorUnavailableError(CapdError):
    """No usable reply came; the subclass says whether the request may have been carried out."""


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
    """One caller that waits."""

    answered: trio.Event = field(default_factory=trio.Event)
    body: bytes | None = None
    is_sent: bool = False


class Peer:
    """Sends requests to one actor, and matches its answers by message id."""

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
        """Send `request` and return the answer to it.

        Raises:
            AskTimeoutError, AskLostError, PeerUnreachableError, AskFailedError: see above.
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
