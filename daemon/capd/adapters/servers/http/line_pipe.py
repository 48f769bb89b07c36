"""In-memory byte streams, so that a remote server is read like the pipes of a process.

The ends have no buffer between them: the sender of a line waits until all of it was read. So when
the end of a connection is reported, all earlier lines have been read.
"""

import trio

_Sent = tuple[bytes, bytes, trio.Event | None]
"""Bytes, more bytes that follow them, and the event that is set when all were read. The line break
is separate, so that a long line is not copied to get it."""


class LineSender(trio.abc.SendStream):
    """The writing end of an in-memory stream."""

    def __init__(self, channel: trio.MemorySendChannel[_Sent]) -> None:
        self._channel = channel

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data`; return when the reader has begun to read it.

        Raises:
            trio.BrokenResourceError, trio.ClosedResourceError: the reading end is closed.
        """
        await self._channel.send((bytes(data), b"", None))

    async def send_line(self, line: bytes) -> None:
        """Send `line` and a line break; return when all of it has been read, or never will be.

        Raises:
            trio.BrokenResourceError, trio.ClosedResourceError: the reading end is closed.
        """
        is_read = trio.Event()
        await self._channel.send((line, b"\n", is_read))
        await is_read.wait()

    async def wait_send_all_might_not_block(self) -> None:
        """Return after a checkpoint; only `send_all` waits for the reader."""
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """End the stream. The reader gets what was sent, and then the end."""
        self._channel.close()

    async def aclose(self) -> None:
        """End the stream."""
        self.close()
        await trio.lowlevel.checkpoint()


class LineReceiver(trio.abc.ReceiveStream):
    """The reading end of an in-memory stream."""

    def __init__(self, channel: trio.MemoryReceiveChannel[_Sent]) -> None:
        self._channel = channel
        self._rest = memoryview(b"")
        self._end = b""
        self._is_read: trio.Event | None = None

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; return the available ones, at most `max_bytes`; empty at the end."""
        if self._rest:
            await trio.lowlevel.checkpoint()
        else:
            try:
                data, self._end, self._is_read = await self._channel.receive()
            except trio.EndOfChannel:
                return b""
            self._rest = memoryview(data)
        size_bytes = len(self._rest) + 1 if max_bytes is None else max_bytes
        taken, self._rest = bytes(self._rest[:size_bytes]), self._rest[size_bytes:]
        if not self._rest and self._end and len(taken) < size_bytes:
            taken, self._end = taken + self._end, b""
        elif not self._rest:
            self._rest, self._end = memoryview(self._end), b""
        if not self._rest:
            # An empty view would keep all of the line in memory until the next one comes.
            self._rest = memoryview(b"")
            self._note_read()
        return taken

    def _note_read(self) -> None:
        if self._is_read is not None:
            self._is_read.set()
            self._is_read = None

    def close(self) -> None:
        """Stop reading; the sender gets an error."""
        self._channel.close()
        self._note_read()

    async def aclose(self) -> None:
        """Stop reading."""
        self.close()
        await trio.lowlevel.checkpoint()


def line_pipe() -> tuple[LineSender, LineReceiver]:
    """Return the two ends of a stream; a write at one end waits for a read at the other."""
    sender, receiver = trio.open_memory_channel[_Sent](0)
    return LineSender(sender), LineReceiver(receiver)
