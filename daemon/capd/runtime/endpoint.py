"""The bound ZeroMQ socket of one actor's address, which receives requests and sends answers.

An endpoint outlives the restarts of its actor, because peers never reconnect to an `inproc://`
address whose socket was closed. A request that arrives between two runs of the actor waits.
"""

from collections import Counter
from collections.abc import Iterator

import structlog
import trio
import zmq

from capd.runtime.arrivals import BODIES, ENVELOPES, Arrival
from capd.runtime.zmq_socket import (
    CannotBindError,
    Context,
    NoSuchPeerError,
    SocketFullError,
    TrioSocket,
)
from capd_protos.codec import MalformedError
from capd_protos.envelope import Envelope, Failure, FailureCode
from capd_protos.types import ActorName, Address

log = structlog.get_logger()

_HELD_LIMIT = 1000


class ActorEndpoint:
    """Receives the requests to one actor, and sends its answers.

    Only one reader at a time may take the requests.
    """

    def __init__(
        self, context: Context, actor: ActorName, address: Address, counts: Counter[str]
    ) -> None:
        self.actor = actor
        self.has_reader = False
        self.counts = counts
        self._address = address
        self._log = log.bind(actor=actor)
        self._socket = TrioSocket(context, zmq.SocketType.ROUTER)
        try:
            self._socket.bind(address)
        except CannotBindError:
            self._socket.close()
            raise
        self._put, self.requests = trio.open_memory_channel[Arrival](_HELD_LIMIT)

    async def collect(self) -> None:
        """Receive requests until cancelled.

        While 1000 requests wait to be taken, no more are received. A sender has to wait once
        ZeroMQ's own queue is full, too.
        """
        while True:
            arrival = self._read(await self._socket.recv())
            if arrival is not None:
                await self._put.send(arrival)

    def drain(self) -> Iterator[Arrival]:
        """Yield the requests that have arrived and that the actor has not taken."""
        while True:
            try:
                yield self.requests.receive_nowait()
            except trio.WouldBlock:
                return

    async def answer(self, arrival: Arrival, body: bytes) -> None:
        """Send `body`, the actor's encoded answer to a request.

        If the socket is full, wait at most as long as the sender waits.
        """
        frames = self._frames(arrival, body)
        wait = arrival.expires_at - trio.current_time()
        if wait <= 0:
            self.count("late_answer", arrival.envelope)
        else:
            try:
                # No checkpoint comes before it, so an actor that is being cancelled still answers.
                self._socket.send_nowait(frames)
            except SocketFullError:
                await self._answer_later(arrival, frames, wait)
            except NoSuchPeerError:
                self.count("undeliverable_answer", arrival.envelope)
        await trio.lowlevel.checkpoint()

    def fail(self, arrival: Arrival, code: FailureCode, message: str) -> None:
        """Answer a request with a failure, for an actor that gave no answer.

        This never waits, so it also works in a cancelled task.
        """
        body = BODIES.encode(Failure(code=code, message=message))
        try:
            self._socket.send_nowait(self._frames(arrival, body))
        except (NoSuchPeerError, SocketFullError):
            self.count("undeliverable_answer", arrival.envelope)

    def stop(self, arrival: Arrival) -> None:
        """Answer a request with the failure `stopping`: the actor ends without answering it."""
        self.fail(arrival, "stopping", f"{self.actor} is stopping; ask again in a moment")

    def count(self, event: str, envelope: Envelope) -> None:
        """Count and log, under the name `event`, a request that got no reply from its actor."""
        self.counts[event] += 1
        self._log.info(event, sender=envelope.sender, id=envelope.id)

    def close(self) -> None:
        """Answer every request that was not taken, and close the socket."""
        for arrival in self.drain():
            self.stop(arrival)
        self._put.close()
        self.requests.close()
        self._socket.close()

    async def _answer_later(self, arrival: Arrival, frames: list[bytes], wait: float) -> None:
        with trio.move_on_after(wait) as patience:
            try:
                await self._socket.send(frames)
            except NoSuchPeerError:
                self.count("undeliverable_answer", arrival.envelope)
        if patience.cancelled_caught:
            self.count("late_answer", arrival.envelope)

    def _frames(self, arrival: Arrival, body: bytes) -> list[bytes]:
        envelope = Envelope(
            id=arrival.envelope.id, sender=self.actor, deadline=0.0, reply_to=self._address
        )
        return [arrival.peer, ENVELOPES.encode(envelope), body]

    def _read(self, frames: list[bytes]) -> Arrival | None:
        try:
            peer, head, body = frames
            envelope = ENVELOPES.decode(head)
        except ValueError as error:
            # Too few or too many frames, or a MalformedError: nobody can be answered.
            reason = "envelope" if isinstance(error, MalformedError) else "frames"
            self.counts["garbage_request"] += 1
            self._log.warning("garbage_request", reason=reason, frames=len(frames))
            return None
        return Arrival(peer, envelope, body, trio.current_time() + envelope.deadline)
