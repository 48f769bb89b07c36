"""The envelope around every message between actors.

On the wire a message is two ZeroMQ frames: the envelope, then the body, both msgpack. The body is
decoded with the union of the actor that the envelope is addressed to, so a mailbox can answer
a body that it cannot read.
"""

from typing import Literal

import msgspec

from capd_protos.types import ActorName, Address, MessageId

FailureCode = Literal["malformed", "no_answer", "crashed", "stopping", "lost"]
"""Why a request has no reply. `malformed`: the actor could not read it. `no_answer`: the actor gave
none. `crashed`: it raised an error. `stopping`: it ended before it answered. `lost`: the process
that it passed the request on to has ended."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """The data before a message: its sender, number and deadline, and the mailbox for the reply."""

    id: MessageId
    sender: ActorName
    deadline: float
    """Seconds that the sender still waits, from the moment of sending: two processes' clocks are
    never compared."""
    reply_to: Address
    """The mailbox that the answer goes to; in a reply, the mailbox that answers."""
    protocol: int = 1


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The mailbox's own reply to a request that its actor did not answer; `code` says why."""

    code: FailureCode
    message: str


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Ask whether an actor takes its requests. Its mailbox answers when it takes this one."""


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """The answer to `Ping`: the actor is reading its mailbox."""


class Offered(msgspec.Struct, frozen=True, tag="offered"):
    """Sent in place of a large reply, which is in this process's memory under the key `number`."""

    number: int
