"""Writes lines to a client on the public socket."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import trio

from capd.adapters.descriptors import descriptor_of
from capd.adapters.frame_writer import FrameWriter, WriterStalledError
from capd.adapters.large_frames import LargeFrame
from capd.adapters.line_texts import one_line

WRITE_TIMEOUT = 60.0
_QUEUED_FRAMES = 1024
_QUEUED_BYTES = 256 * 1024 * 1024
_POSTED_BYTES = 32 * 1024 * 1024
"""Notifications and questions are queued only while the queue has at most this many bytes. If a
client does not read, the newest are dropped."""


class SocketSink:
    """Writes all lines for one client to one stream, whichever request they belong to."""

    # Slots, because every idle session has such an object.
    __slots__ = ("_stream", "_writer")

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._writer = FrameWriter(
            stream,
            max_frames=_QUEUED_FRAMES,
            max_bytes=_QUEUED_BYTES,
            timeout=WRITE_TIMEOUT,
            max_posted_bytes=_POSTED_BYTES,
        )

    async def send(self, line: bytes, related: str | float | None = None) -> None:
        """Write a line to the client.

        Raises:
            WriterFullError, FrameCutError: the line cannot be written.
        """
        del related
        await self._writer.send(one_line(line))

    async def send_large(self, frame: LargeFrame) -> None:
        """Write a line that is too large for memory.

        Raises:
            WriterFullError, FrameCutError: the line cannot be written.
        """
        await self._writer.send(frame)

    def post(self, line: bytes, related: str | float | None = None) -> None:
        """Queue a line for the client.

        Raises:
            WriterFullError: the queue is full.
        """
        del related
        self._writer.post(one_line(line))

    def put(self, line: bytes) -> bool:
        """Queue a line if that is possible without waiting; return whether it was queued."""
        return self._writer.put(one_line(line))

    def is_out(self, lines: Sequence[bytes]) -> bool:
        """Write lines to the client without waiting; return whether all of them were written whole.

        The rest of a line that was written in part is queued.
        """
        return (
            self._writer.begin([one_line(each) for each in lines]) == len(lines)
            and self._writer.is_idle
        )

    def open(self, nursery: trio.Nursery, on_gone: Callable[[], None]) -> None:
        """Start writing. A task in `nursery` writes the lines that cannot be written at once.

        `on_gone` is called when the client has disconnected.
        """

        def on_backlog() -> None:
            # A nursery that is cancelled may close, and then cannot start a task.
            if not nursery.cancel_scope.cancel_called:
                nursery.start_soon(self._drain, on_gone)

        self._writer.open(on_backlog)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written."""
        return self._writer.is_idle

    def park(self, on_backlog: Callable[[], None]) -> int:
        """Go on without a nursery; return the socket's descriptor.

        `on_backlog` is called when a line cannot be written at once. The line stays in the queue
        until the sink is opened again.
        """
        self._writer.open(on_backlog)
        return descriptor_of(self._stream)()

    def abandon(self) -> None:
        """Close the connection without waiting."""
        self._writer.close()
        if isinstance(self._stream, trio.SocketStream):
            self._stream.socket.close()

    async def _drain(self, on_gone: Callable[[], None]) -> None:
        is_there = False
        with suppress(WriterStalledError):
            is_there = await self._writer.drain()
        if not is_there:
            on_gone()

    async def aclose(self) -> None:
        """Close the connection."""
        self._writer.close()
        await trio.aclose_forcefully(self._stream)
