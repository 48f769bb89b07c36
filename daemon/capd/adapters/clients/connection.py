"""A client's connection after its hello, the first line that a client sends.

The gateway, the actor that accepts connections, gives it to the curator, the actor that owns the
sessions.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import trio

from capd.adapters.clients.line_sinks import LineSink
from capd.adapters.stdio_frames import Frame, Oversized


@dataclass(frozen=True, slots=True)
class Connection:
    """The stream to a client, with the facts from its hello."""

    sink: LineSink
    lines: AsyncIterator[Frame | Oversized]
    welcomed: trio.Event
    """Set when the welcome is written. Nothing else may be written before it."""
    may_be_servers: bool = False
    """Whether the client may be a process of a server (`[servers] may_connect`)."""
    is_far: bool = False
    """Whether the client is behind a bridge, so that it does not act for this machine's user."""
