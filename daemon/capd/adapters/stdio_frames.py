"""Newline-framed messages over a server's pipes, where the peer may be hostile.

Reading is linear in the bytes read, holds at most `cap_bytes` of one line, and gives a line that
has begun a bounded time to go on. Writing is one task per stream, so that no caller's end can
leave half a frame for the next one. A stall of the writer cannot be repaired, for nobody can know
what the peer has read: the stream is spent.
"""

from collections import deque
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

import trio

from capd.adapters.descriptors import descriptor_of, read_when_ready, written_at_once
from capd.adapters.large_frames import LargeFrame
from capd.adapters.spool import ServerSpool, SpoolFile, SpoolFullError
from capd.core.errors import CapdError

_CHUNK_BYTES = 64 * 1024
_AT_ONCE_BYTES = 64 * 1024
"""What an empty pipe takes; more would need the writer's task anyway."""
_END_BYTES = 4 * 1024
_PROGRESS_BYTES = 1024 * 1024
_FRAMES_BETWEEN_CHECKPOINTS = 32


class FrameStalledError(CapdError):
    """A line began and did not end in time."""


class WriterFullError(CapdError):
    """The queue is full or the stream is dead; nothing of this frame was written."""


class FrameCutError(CapdError):
    """The stream died while this frame was being written; the peer may have all of it or a part."""


class WriterStalledError(CapdError):
    """The peer stopped reading in the middle of a frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line without its newline."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line that is too long to be held, of which the ends are."""

    size_bytes: int
    head: bytes
    tail: bytes
    kept: SpoolFile | None = None
    """Where all of it is, unless it was discarded."""


class FrameReader:
    """The lines of a stream; blank ones are skipped, and the end of the stream ends them.

    A line of more than `cap_bytes` goes to the spool; without one, or without room, all but its
    ends is discarded.
    """

    def __init__(
        self,
        stream: trio.abc.ReceiveStream,
        cap_bytes: int = 32 * 1024 * 1024,
        *,
        assembly_timeout: float = 30.0,
        spool: ServerSpool | None = None,
    ) -> None:
        self._stream = stream
        self._cap_bytes = cap_bytes
        self._spool = spool
        self._assembly_timeout = assembly_timeout
        self._ready: deque[Frame | Oversized] = deque()
        self._chunks: list[bytes] = []
        self._tail = b""
        self._file: SpoolFile | None = None
        self._line_bytes = 0
        self._bytes_in_time = 0
        self._waited = 0.0
        self._taken = 0
        self._is_ended = False

    def allow(self, cap_bytes: int) -> None:
        """Take longer lines from here on."""
        self._cap_bytes = cap_bytes

    @property
    def partial(self) -> bytes:
        """What has arrived of a line that has not ended; of one that is too long, its head."""
        return b"".join(self._chunks)

    def __aiter__(self) -> "FrameReader":
        """Return itself."""
        return self

    async def __anext__(self) -> Frame | Oversized:
        """Return the next line.

        Raises:
            FrameStalledError: A line began and did not go on in time.
        """
        while not self._ready:
            if self._is_ended:
                raise StopAsyncIteration
            await self._receive()
        self._taken += 1
        if self._taken % _FRAMES_BETWEEN_CHECKPOINTS == 0:
            # A flood of small lines arrives thousands to a chunk; others must run too.
            await trio.lowlevel.checkpoint()
        return self._ready.popleft()

    async def _receive(self) -> None:
        descriptor = descriptor_of(self._stream)
        if descriptor >= 0 and not self._line_bytes:
            # No line has begun, so nothing has to be timed.
            read = await read_when_ready(descriptor, _CHUNK_BYTES)
            if read is not None:
                await self._take(read)
            return
        chunk: bytes | bytearray = b""
        began_at = trio.current_time()
        # Only the time spent waiting here counts: a reader kept busy is not the peer's fault.
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
        first, *others = chunk.split(b"\n")
        self._extend(first)
        for part in others:
            self._end_line()
            self._extend(part)
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
        """Hold no more than the ends of a line; the last of `chunks` is the one too many."""
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

    def _end_line(self) -> None:
        data = b"".join(self._chunks)
        if self._line_bytes > self._cap_bytes:
            self._ready.append(Oversized(self._line_bytes, data, self._tail, self._file))
            self._file = None
        elif data and not data.isspace():
            self._ready.append(Frame(data))
        self._chunks = []
        self._line_bytes = self._bytes_in_time = 0
        self._waited = 0.0


def _ends_of(chunks: list[bytes]) -> tuple[bytes, bytes]:
    """Return the first and the last bytes, without a copy of what is between them."""
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


@dataclass(slots=True, eq=False)
class _Waiting:
    frame: bytes | LargeFrame
    held_bytes: int
    before_first_byte: Callable[[], None] | None
    rest: bytes = b""
    """What of a frame is still to be written, newline included, where some of it is out."""
    done: trio.Event = field(default_factory=trio.Event)
    is_begun: bool = False
    error: CapdError | None = None


class FrameWriter:
    """The only writer of a stream: whole frames, in the order of `send`, from a bounded queue."""

    def __init__(
        self,
        stream: trio.abc.SendStream,
        *,
        max_frames: int = 64,
        max_bytes: int = 4 * 1024 * 1024,
        timeout: float = 10.0,
    ) -> None:
        self._stream = stream
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._queue: deque[_Waiting] = deque()  # the first is the one being written
        self._queued_bytes = 0
        self._wake = trio.Event()
        self._is_running = False
        self._is_dead = False

    @property
    def is_dead(self) -> bool:
        """Say whether every `send` is refused from here on."""
        return self._is_dead

    async def send(
        self, frame: bytes | LargeFrame, before_first_byte: Callable[[], None] | None = None
    ) -> None:
        """Write `frame` and a newline; return when the whole of it is in the pipe.

        `before_first_byte` is called if and only if some of it may be written: a caller that is
        cancelled or refused before that has sent nothing, one that is cancelled after it has sent
        it whole. A single frame may be larger than the queue's bytes, if the queue is empty.

        Raises:
            WriterFullError: Nothing was written.
            FrameCutError: It cannot be known what the peer has read.
        """
        assert not isinstance(frame, bytes) or b"\n" not in frame, "a frame is one line"
        held_bytes = len(frame) if isinstance(frame, bytes) else 0
        await trio.lowlevel.checkpoint_if_cancelled()
        self._admit(held_bytes)
        waiting = _Waiting(frame, held_bytes, before_first_byte)
        if self._is_out(waiting):
            return
        try:
            await waiting.done.wait()
        finally:
            if not waiting.is_begun and waiting in self._queue:
                self._forget(waiting)
        if waiting.error is not None:
            raise waiting.error

    def post(self, frame: bytes) -> None:
        """Queue `frame` for a peer that need not get it: nobody waits for its end.

        It may take half of the queue: a flood of notices must leave room for answers.

        Raises:
            WriterFullError: Nothing was queued.
        """
        self._admit(len(frame), share=2)
        self._is_out(_Waiting(frame, len(frame), None))

    def _is_out(self, waiting: _Waiting) -> bool:
        """Write a small frame where nothing is before it; queue what is left; say if all is out."""
        frame = waiting.frame
        descriptor = descriptor_of(self._stream)
        is_small = isinstance(frame, bytes) and len(frame) < _AT_ONCE_BYTES
        if is_small and descriptor >= 0 and not self._queue and self._is_running:
            assert isinstance(frame, bytes)
            waiting.is_begun = True
            if waiting.before_first_byte is not None:
                waiting.before_first_byte()
            line = frame + b"\n"
            waiting.rest = line[written_at_once(descriptor, line) :]
            if not waiting.rest:
                return True
        self._queue.append(waiting)
        self._queued_bytes += waiting.held_bytes
        self._wake.set()
        return False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write what is queued until the peer is gone; afterwards the stream is spent.

        Cancelling this task, unlike cancelling a sender, may cut a frame.

        Raises:
            WriterStalledError: A frame could not be written in time; the server has to be ended.
        """
        self._is_running = True
        task_status.started()
        try:
            while True:
                while not self._queue:
                    self._wake = trio.Event()
                    await self._wake.wait()
                await self._write(self._queue[0])
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self._die()

    def _admit(self, size_bytes: int, share: int = 1) -> None:
        if self._is_dead:
            raise WriterFullError("not sent: the server no longer reads")
        is_full = len(self._queue) >= self._max_frames // share
        most_bytes = self._max_bytes // share
        if is_full or (self._queue and self._queued_bytes + size_bytes > most_bytes):
            raise WriterFullError(
                f"not sent: {len(self._queue)} requests already wait for the server to read them"
            )

    async def _write(self, waiting: _Waiting) -> None:
        if not waiting.is_begun and waiting.before_first_byte is not None:
            waiting.before_first_byte()
        waiting.is_begun = True
        frame = waiting.frame
        if isinstance(frame, bytes):
            with trio.move_on_after(self._timeout) as scope:
                await self._stream.send_all(waiting.rest or frame + b"\n")
            if scope.cancelled_caught:
                raise self._stalled(len(frame))
        else:
            await self._write_large(frame)
        self._forget(waiting)
        waiting.done.set()

    async def _write_large(self, frame: LargeFrame) -> None:
        try:
            async with aclosing(frame.pieces()) as pieces:
                async for piece in pieces:
                    # The time is a piece's: a slow reader of a large frame is no stalled one.
                    with trio.move_on_after(self._timeout) as scope:
                        await self._stream.send_all(piece)
                    if scope.cancelled_caught:
                        raise self._stalled(frame.size_bytes)
        except OSError as error:
            raise WriterStalledError(f"a frame was lost while it was written: {error}") from None

    def _stalled(self, size_bytes: int) -> WriterStalledError:
        return WriterStalledError(
            f"the server did not read a frame of {size_bytes} bytes within {self._timeout:g} s"
        )

    def _forget(self, waiting: _Waiting) -> None:
        self._queue.remove(waiting)
        self._queued_bytes -= waiting.held_bytes

    def _die(self) -> None:
        self._is_dead = True
        self._is_running = False
        for waiting in self._queue:
            if waiting.is_begun:
                waiting.error = FrameCutError("the server stopped reading while this was sent")
            else:
                waiting.error = WriterFullError("not sent: the server stopped reading")
            waiting.done.set()
        self._queue.clear()
        self._queued_bytes = 0
