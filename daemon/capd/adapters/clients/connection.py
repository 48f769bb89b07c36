"""A client's connection after its hello, as the gateway hands it to the curator."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import trio

from capd.adapters.clients.line_sinks import LineSink
from capd.adapters.stdio_frames import Frame, Oversized


@dataclass(frozen=True, slots=True)
class Connection:
    """A client's lines in both directions, after the hello."""

    sink: LineSink
    lines: AsyncIterator[Frame | Oversized]
    welcomed: trio.Event
    """Set when the welcome is written. Nothing else may be written before it."""
    may_be_servers: bool = False
    """Whether a process of a server may be the client (`[servers] may_connect`)."""
    is_far: bool = False
    """Whether the client is on the other side of a bridge: it speaks for itself, not for the user
    of this machine."""
