"""The envelope around every message between actors.

On the wire it is two ZeroMQ frames: the envelope, then the body, both msgpack. The body is
decoded with the union of the actor that the envelope is addressed to, so a mailbox can answer
a body that it cannot read.
"""

from typing import Literal

import msgspec

from capd_protos.types import ActorName, Address, MessageId

FailureCode = Literal["malformed", "no_answer", "crashed", "stopping", "lost"]
"""`lost`: whom the request was passed on to has ended."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """Who asks, under which number, until when, and where the one answer goes."""

    id: MessageId
    sender: ActorName
    deadline: float
    """Seconds that the sender still waits, counted from the sending; clocks are never compared."""
    reply_to: Address
    """The mailbox the answer is meant for; in a reply, the mailbox that answers."""
    protocol: int = 1


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The answer of a mailbox whose actor gave none of its own."""

    code: FailureCode
    message: str


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Asks whether a mailbox is read; answered before anything else in it is looked at."""


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """The answer to `Ping`: the actor takes letters."""


class Offered(msgspec.Struct, frozen=True, tag="offered"):
    """The reply is a large value of this process, which is taken by this number."""

    number: int
