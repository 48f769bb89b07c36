"""Reads newline-framed messages from a pipe or a socket whose other end may be hostile.

Reading takes linear time, and keeps at most `cap_bytes` of one line. A line that has begun must
continue within a time limit. Writing is in `frame_writer`.
"""

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

import trio

from capd.adapters.descriptors import descriptor_of
from capd.adapters.spool import ServerSpool, SpoolFile, SpoolFullError
from capd.core.errors import CapdError

_CHUNK_BYTES = 64 * 1024
_END_BYTES = 4 * 1024
_PROGRESS_BYTES = 1024 * 1024
_READS_AT_ONCE = 16
_FRAMES_BETWEEN_CHECKPOINTS = 32
"""A flood of small lines brings thousands in one chunk, and other tasks must run too."""


class FrameStalledError(CapdError):
    """A line of the stream began and did not go on in time."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stream, without its newline."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Oversized:
    """The beginning and the end of a line that is too long for memory."""

    size_bytes: int
    head: bytes
    tail: bytes
    kept: SpoolFile | None = None
    """The file that contains all of it; None if the middle was discarded."""


class FrameReader:
    """Iterates over the lines of a stream; blank lines are skipped.

    A line of more than `cap_bytes` is written to a file of `spool`. Without `spool`, or if that is
    full, all but its beginning and its end is discarded. A line that has begun may keep the reader
    waiting for `assembly_timeout` seconds in each MiB.
    """

    # Slots, because every idle session has such an object.
    __slots__ = (
        *("_assembly_timeout", "_bytes_in_time", "_cap_bytes", "_chunks", "_descriptor", "_file"),
        *("_is_ended", "_line_bytes", "_next_cap_bytes", "_reads_at_once", "_ready", "_spool"),
        *("_stream", "_tail", "_taken", "_waited"),
    )

    def __init__(
        self,
        stream: trio.abc.ReceiveStream,
        cap_bytes: int = 32 * 1024 * 1024,
        *,
        assembly_timeout: float = 30.0,
        spool: ServerSpool | None = None,
    ) -> None:
        self._stream = stream
        self._descriptor = descriptor_of(stream)
        self._cap_bytes = self._next_cap_bytes = cap_bytes
        self._spool = spool
        self._assembly_timeout = assembly_timeout
        # None while no line waits, because an empty deque takes 600 bytes in each session.
        self._ready: deque[Frame | Oversized] | None = None
        self._chunks: list[bytes] = []
        self._tail = b""
        self._file: SpoolFile | None = None
        self._line_bytes = 0
        self._bytes_in_time = 0
        self._waited = 0.0
        self._taken = 0
        self._reads_at_once = 0
        self._is_ended = False

    def allow(self, cap_bytes: int) -> None:
        """Keep lines of up to `cap_bytes` bytes in memory from now on.

        The old limit stays in force for a line that has begun, if the line is already longer than
        the old or the new limit.
        """
        self._next_cap_bytes = cap_bytes
        if self._line_bytes <= min(cap_bytes, self._cap_bytes):
            self._cap_bytes = cap_bytes

    @property
    def is_between_lines(self) -> bool:
        """Whether every byte that was read has been passed on, and the stream has not ended."""
        return not self._ready and not self._line_bytes and not self._is_ended

    @property
    def partial(self) -> bytes:
        """The part of an unfinished line that has arrived; if it is too long, its beginning."""
        return b"".join(self._chunks)

    def __aiter__(self) -> "FrameReader":
        """Return itself."""
        return self

    async def __anext__(self) -> Frame | Oversized:
        """Return the next line of the stream.

        Raises:
            FrameStalledError: a line began and did not go on in time.
        """
        while not self._ready:
            if self._is_ended:
                raise StopAsyncIteration
            await self._receive()
        self._taken += 1
        if self._taken % _FRAMES_BETWEEN_CHECKPOINTS == 0:
            await trio.lowlevel.checkpoint()
        line = self._ready.popleft()
        self._ready = self._ready or None
        return line

    async def some(self) -> list[Frame | Oversized]:
        """Return the lines that have arrived, 1 to 32 of them; none at the end of the stream.

        Raises:
            FrameStalledError: a line began and did not go on in time.
        """
        while not self._ready:
            if self._is_ended:
                return []
            await self._receive()
        ready = self._ready
        if len(ready) <= _FRAMES_BETWEEN_CHECKPOINTS:
            self._ready = None
            return list(ready)
        await trio.lowlevel.checkpoint()
        return [ready.popleft() for _ in range(_FRAMES_BETWEEN_CHECKPOINTS)]

    async def _receive(self) -> None:
        descriptor = self._descriptor()
        if descriptor >= 0 and not self._line_bytes:
            # No line has begun, so no timeout is needed. Wait before reading, because a read that
            # finds nothing wastes a system call.
            try:
                await trio.lowlevel.wait_readable(descriptor)
                read = os.read(descriptor, _CHUNK_BYTES)
            except BlockingIOError:
                return
            except (OSError, trio.ClosedResourceError):
                read = b""
            await self._take(read)
            return
        if descriptor >= 0 and self._reads_at_once < _READS_AT_ONCE:
            # More of a large line has often arrived already, and a turn of the loop for each chunk
            # takes longer than the reads. Other tasks run after each megabyte.
            self._reads_at_once += 1
            try:
                read = os.read(descriptor, _CHUNK_BYTES)
            except OSError:
                # Nothing has arrived, or the stream is broken; the read below reports that.
                pass
            else:
                await self._take(read)
                return
        self._reads_at_once = 0
        chunk: bytes | bytearray = b""
        began_at = trio.current_time()
        # Only the time spent waiting here counts, not that of a busy reader.
        if self._line_bytes - self._bytes_in_time >= _PROGRESS_BYTES:
            self._bytes_in_time, self._waited = self._line_bytes, 0.0
        timeout = self._assembly_timeout - self._waited if self._line_bytes else float("inf")
        with trio.move_on_after(timeout) as scope:
            try:
                chunk = await self._stream.receive_some(_CHUNK_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                chunk = b""
        if scope.cancelled_caught:
            raise FrameStalledError(
                f"a line began, and after {self._assembly_timeout:g} s it has not ended"
                f" ({self._line_bytes} bytes so far)"
            )
        if chunk and self._line_bytes:
            self._waited += trio.current_time() - began_at
        await self._take(bytes(chunk))

    async def _take(self, chunk: bytes) -> None:
        if not chunk:
            self._is_ended = True
            return
        if b"\n" in chunk:
            first, *others = chunk.split(b"\n")
            self._extend(first)
            for part in others:
                self._end_line()
                self._extend(part)
        else:
            # Chunks in the middle of a large line: a search is ten times as fast as `split`.
            self._extend(chunk)
        if self._file is not None and self._file.is_flush_due:
            try:
                await self._file.flush()
            except OSError:
                self._discard()

    def _extend(self, part: bytes) -> None:
        if not part:
            return
        self._line_bytes += len(part)
        if self._line_bytes <= self._cap_bytes:
            self._chunks.append(part)
        elif self._line_bytes - len(part) <= self._cap_bytes:
            self._let_go([*self._chunks, part])
        else:
            self._tail = (self._tail + part[-_END_BYTES:])[-_END_BYTES:]
            self._spool_on([part])

    def _let_go(self, chunks: list[bytes]) -> None:
        """Keep only the two ends of a line that `chunks` has made too long for memory."""
        head, self._tail = _ends_of(chunks)
        self._chunks = [head]
        if self._spool is not None:
            with suppress(SpoolFullError):
                self._file = self._spool.file()
        self._spool_on(chunks)

    def _spool_on(self, parts: list[bytes]) -> None:
        if self._file is None:
            return
        try:
            for part in parts:
                self._file.add(part)
        except SpoolFullError:
            self._discard()

    def _discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _add(self, line: Frame | Oversized) -> None:
        if self._ready is None:
            self._ready = deque()
        self._ready.append(line)

    def _end_line(self) -> None:
        data = b"".join(self._chunks)
        if self._line_bytes > self._cap_bytes:
            self._add(Oversized(self._line_bytes, data, self._tail, self._file))
            self._file = None
        elif data and not data.isspace():
            self._add(Frame(data))
        self._chunks = []
        self._line_bytes = self._bytes_in_time = 0
        self._waited = 0.0
        self._cap_bytes = self._next_cap_bytes


def _ends_of(chunks: list[bytes]) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of the line in `chunks`, without joining all of them."""
    head = tail = b""
    for chunk in chunks:
        head += chunk[: _END_BYTES - len(head)]
        if len(head) == _END_BYTES:
            break
    for chunk in reversed(chunks):
        tail = chunk[-(_END_BYTES - len(tail)) :] + tail
        if len(tail) == _END_BYTES:
            break
    return head, tail
