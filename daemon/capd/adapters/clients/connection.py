"""A client's connection behind its hello, as the gateway hands it to the curator."""

from dataclasses import dataclass

import trio

from capd.adapters.stdio_frames import FrameReader


@dataclass(frozen=True, slots=True)
class Connection:
    """A client's stream, with what was read ahead of it."""

    stream: trio.SocketStream
    reader: FrameReader
    welcomed: trio.Event
    """Set when the welcome is written: before it nobody else may write."""
