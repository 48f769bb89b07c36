"""A client's connection behind its hello, as the gateway hands it to the curator."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import trio

from capd.adapters.clients.line_sinks import LineSink
from capd.adapters.stdio_frames import Frame, Oversized


@dataclass(frozen=True, slots=True)
class Connection:
    """Both ways of a client's lines, behind what opened them."""

    sink: LineSink
    lines: AsyncIterator[Frame | Oversized]
    welcomed: trio.Event
    """Set when the welcome is written: before it nobody else may write."""
