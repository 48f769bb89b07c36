"""What a mailbox reads from, and how its messages are written down.

Apart from ZeroMQ, which the embedder's own process does without.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from capd_protos.codec import MsgpackCodec
from capd_protos.envelope import Envelope, FailureCode
from capd_protos.types import ActorName

ENVELOPES: MsgpackCodec[Envelope] = MsgpackCodec(Envelope)
BODIES: MsgpackCodec[msgspec.Struct] = MsgpackCodec(msgspec.Struct)
"""Encodes any message; what comes in is decoded by the codec of its reader."""

LOST: Literal["lost"] = "lost"
"""The code of a `Failure` that says: whom the request was passed on to has ended."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it came in, its body unread."""

    peer: bytes
    envelope: Envelope
    body: bytes
    expires_at: float


class Arrivals(Protocol):
    """Where requests to one actor come in, and its answers go out."""

    @property
    def actor(self) -> ActorName:
        """Whose they are."""
        ...

    async def take(self) -> Arrival:
        """Return the next request whose sender still waits for the answer."""
        ...

    def drain(self) -> Iterator[Arrival]:
        """Yield what has arrived and was not taken."""
        ...

    async def answer(self, arrival: Arrival, body: bytes) -> None:
        """Send the answer."""
        ...

    def fail(self, arrival: Arrival, code: FailureCode, message: str) -> None:
        """Answer for an actor that does not; never waits."""
        ...

    def stop(self, arrival: Arrival) -> None:
        """Answer that the actor ended before it got to this request."""
        ...

    def count(self, event: str, envelope: Envelope) -> None:
        """Count what became of a request that got no good answer."""
        ...
