"""The interface between a mailbox and the transport of its messages, and the messages' encoding.

The transport is ZeroMQ in the daemon, and a socket pair in the embedder's process.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from capd_protos.codec import MsgpackCodec
from capd_protos.envelope import Envelope, FailureCode
from capd_protos.types import ActorName

ENVELOPES: MsgpackCodec[Envelope] = MsgpackCodec(Envelope)
BODIES: MsgpackCodec[msgspec.Struct] = MsgpackCodec(msgspec.Struct)
"""Encodes any message. The receiver decodes it with the codec of its own messages."""

LOST: Literal["lost"] = "lost"
"""The code of a `Failure` which says that the actor passed the request on to a process that ended.
"""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that has arrived, with its body still encoded."""

    peer: bytes
    """The transport's name for the sender, to which the answer goes."""
    envelope: Envelope
    body: bytes
    expires_at: float
    """When the sender gives up, on this process's `trio.current_time()`."""


class Arrivals(Protocol):
    """Delivers the requests to one actor, and sends its answers, over a socket or a socket pair."""

    @property
    def actor(self) -> ActorName:
        """The actor's name."""
        ...

    @property
    def requests(self) -> AsyncIterator[Arrival]:
        """The requests, in the order of their arrival."""
        ...

    def drain(self) -> Iterator[Arrival]:
        """Yield the requests that have arrived and that the actor has not taken."""
        ...

    async def answer(self, arrival: Arrival, body: bytes) -> None:
        """Send `body`, the actor's encoded answer to a request."""
        ...

    def fail(self, arrival: Arrival, code: FailureCode, message: str) -> None:
        """Answer a request with a failure, for an actor that gave no answer; never waits."""
        ...

    def stop(self, arrival: Arrival) -> None:
        """Answer a request with the failure `stopping`: the actor ends without answering it."""
        ...

    def count(self, event: str, envelope: Envelope) -> None:
        """Log, under the name `event`, a request that got no reply from its actor.

        It may be counted as well.
        """
        ...
