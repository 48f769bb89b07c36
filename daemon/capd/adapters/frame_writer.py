"""The only writer of a stream of newline-framed messages.

If nothing is queued, the sender of a small frame writes it itself, because such a frame almost
always fits into its pipe. That costs one system call. Passing it to a writer task also costs two
task switches, which was a third of a call's time in the daemon (docs/benchmarks.md, "Where the time
goes"). One task for each stream writes everything else, so that a cancelled sender cannot leave
half a frame before the next one. After a stall the stream is unusable, because it is unknown what
the peer has read.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import trio

from capd.adapters.descriptors import descriptor_of
from capd.adapters.large_frames import LargeFrame
from capd.core.errors import CapdError

_LAST_PART_BYTES = 4 * 1024
_AT_ONCE_BYTES = 64 * 1024
"""The size of an empty pipe's buffer. A larger frame needs the writer's task anyway."""


class WriterFullError(CapdError):
    """The queue of frames is full, or the stream is dead; nothing of this frame was written."""


class FrameCutError(CapdError):
    """The stream died while this frame was written. The peer may have all of it or a part."""


class WriterStalledError(CapdError):
    """A frame could not be written to its end, so the stream has to be closed.

    The peer stopped reading, or the rest of the frame could not be read from its file.
    """


@dataclass(slots=True, eq=False)
class _Waiting:
    frame: bytes | LargeFrame
    held_bytes: int
    before_first_byte: Callable[[], None] | None
    rest: bytes = b""
    """The unwritten rest of a frame, with its newline, if part of it was written."""
    done: trio.Event = field(default_factory=trio.Event)
    is_begun: bool = False
    error: CapdError | None = None
    on_cut: Callable[[], None] | None = None
    """Called if the stream breaks during the write of a frame that no task waits for."""


class WriteBatch:
    """Collects frames while a `with` block runs, and writes those of each stream in one call.

    The block must not await anything.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._writers: list[FrameWriter] = []

    def add(self, writer: "FrameWriter") -> None:
        """Note that `writer` has frames, which are to be written at the end of the block."""
        self._writers.append(writer)

    def __enter__(self) -> None:
        self.is_open = True

    def __exit__(self, *_: object) -> None:
        self.is_open = False
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.flush()


WRITE_BATCH = WriteBatch()
"""The batch that is open while a task handles the lines that it has read, so that the answers to
one chunk go out together."""


class FrameWriter:
    """The only writer of a stream: whole frames, in the order of `send`, from a bounded queue.

    The texts of its errors call the peer a server, because nobody reads errors of clients' streams.
    """

    # Slots, because every idle session has such an object.
    __slots__ = (
        *("_descriptor", "_gathered", "_is_draining", "_is_running", "_max_bytes", "_max_frames"),
        *("_max_posted_bytes", "_on_backlog", "_queue", "_queued_bytes", "_stream", "_timeout"),
        *("_wake", "is_dead"),
    )

    def __init__(
        self,
        stream: trio.abc.SendStream,
        *,
        max_frames: int = 64,
        max_bytes: int = 4 * 1024 * 1024,
        timeout: float = 10.0,
        max_posted_bytes: int = 0,
    ) -> None:
        """Create the writer of `stream`, with a queue for `max_frames` frames or `max_bytes` bytes.

        A frame is posted only if the queue then has at most `max_posted_bytes` bytes; 0 for half of
        `max_bytes`. `timeout` is the number of seconds for the write of one frame, or of one piece
        of a large frame.
        """
        self._stream = stream
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._max_posted_bytes = max_posted_bytes or max_bytes // 2
        self._timeout = timeout
        self._descriptor = descriptor_of(stream)
        # The first entry is being written. A list, because an empty deque takes 600 bytes, and
        # most of the sessions' queues are empty.
        self._queue: list[_Waiting] = []
        self._queued_bytes = 0
        self._gathered: list[bytes] = []
        self._wake: trio.Event | None = None
        self._on_backlog: Callable[[], None] | None = None
        self._is_draining = False
        self._is_running = False
        self.is_dead = False
        """Whether every later `send` is refused."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued."""
        return not self._queue

    @property
    def is_prompt(self) -> bool:
        """Whether a frame can probably be written at once."""
        return self._is_running and not self._queue and self._descriptor() >= 0

    async def send(
        self, frame: bytes | LargeFrame, before_first_byte: Callable[[], None] | None = None
    ) -> None:
        """Write `frame` and a newline; return when the whole of it is in the pipe.

        `before_first_byte` is called directly before the first byte may be written. A caller that
        is cancelled before that has sent nothing; one that is cancelled later has sent the whole
        frame. A frame may be larger than the queue's limit in bytes, if the queue is empty.

        Raises:
            WriterFullError: nothing was written.
            FrameCutError: it cannot be known what the peer has read.
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
        """Queue `frame` without waiting for its write. It may be lost, so it is for notifications.

        It is refused if half of the queue's frames are taken, or if the queue would have more than
        `max_posted_bytes`. So a flood of notifications leaves room for answers.

        Raises:
            WriterFullError: nothing was queued.
        """
        self._admit(len(frame), is_posted=True)
        if not self.put(frame):
            self._is_out(_Waiting(frame, len(frame), None))

    def put(self, frame: bytes) -> bool:
        """Write a small frame at once, or add it to the open batch.

        Return False, and do nothing, if other frames are queued, the frame is large, or the stream
        accepts nothing at the moment.
        """
        if self._queue or not self._is_running or len(frame) >= _AT_ONCE_BYTES:
            return False
        if WRITE_BATCH.is_open:
            if not self._gathered:
                WRITE_BATCH.add(self)
            self._gathered.append(frame)
            return True
        return self.begin([frame]) > 0

    def flush(self) -> None:
        """Write the frames of the batch; queue those that the stream does not accept at once."""
        frames, self._gathered = self._gathered, []
        for frame in frames[self.begin(frames) :]:
            self._queue_up(_Waiting(frame, len(frame), None))

    def begin(self, frames: Sequence[bytes], on_cut: Callable[[], None] | None = None) -> int:
        """Write frames at once, if nothing is queued; return how many were begun.

        The rest of a frame that was written in part is queued. `on_cut` is called if that rest
        cannot be written.
        """
        descriptor = self._descriptor()
        if descriptor < 0 or self._queue or self._gathered or not self._is_running:
            return 0
        data = b"\n".join(frames) + b"\n"
        written = _written_at_once(descriptor, data)
        if written == len(data):
            return len(frames)
        begun = end = 0
        while end < written:
            end += len(frames[begun]) + 1
            begun += 1
        if rest := data[written:end]:
            frame = frames[begun - 1]
            waiting = _Waiting(frame, len(frame), None, rest, is_begun=True, on_cut=on_cut)
            self._queue_up(waiting)
        return begun

    def _queue_up(self, waiting: _Waiting) -> None:
        self._queue.append(waiting)
        self._queued_bytes += waiting.held_bytes
        if self._wake is not None:
            self._wake.set()
        elif self._on_backlog is not None and not self._is_draining:
            self._is_draining = True
            self._on_backlog()

    def _is_out(self, waiting: _Waiting) -> bool:
        """Write a small frame at once, if nothing is queued. Otherwise queue it, or the rest of it.

        Return whether the whole frame was written.
        """
        if self._gathered:
            self.flush()
        frame = waiting.frame
        descriptor = self._descriptor()
        is_small = isinstance(frame, bytes) and len(frame) < _AT_ONCE_BYTES
        if is_small and descriptor >= 0 and not self._queue and self._is_running:
            assert isinstance(frame, bytes)
            waiting.is_begun = True
            if waiting.before_first_byte is not None:
                waiting.before_first_byte()
            line = frame + b"\n"
            waiting.rest = line[_written_at_once(descriptor, line) :]
            if not waiting.rest:
                return True
        self._queue_up(waiting)
        return False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write the queue until the peer disconnects; afterwards the stream is unusable.

        Cancelling this task may cut a frame; cancelling a sender does not.

        Raises:
            WriterStalledError: a frame was not written whole in time; the stream has to be closed.
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
            self.close()

    def open(self, on_backlog: Callable[[], None]) -> None:
        """Let senders write from now on, without a task that runs `run`.

        `on_backlog` is called when something is queued, and must arrange a call of `drain`.
        """
        self._is_running = True
        self._on_backlog = on_backlog
        if self._queue:
            self._is_draining = True
            on_backlog()

    async def drain(self) -> bool:
        """Write the queue; return whether the peer is still there. If not, the stream is unusable.

        Raises:
            WriterStalledError: as `run`.
        """
        is_spent = True
        try:
            while self._queue:
                await self._write(self._queue[0])
            is_spent = False
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        finally:
            self._is_draining = False
            if is_spent:
                self.close()
        return True

    def _admit(self, size_bytes: int, *, is_posted: bool = False) -> None:
        if self.is_dead:
            raise WriterFullError("not sent: the server no longer reads")
        is_full = len(self._queue) >= (self._max_frames // 2 if is_posted else self._max_frames)
        most_bytes = self._max_posted_bytes if is_posted else self._max_bytes
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
                for part in [waiting.rest] if waiting.rest else _parts(frame):
                    await self._stream.send_all(part)
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
                    # The timeout is for each piece, because a large frame takes long to read.
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

    def close(self) -> None:
        """Refuse everything from now on; waiting senders get an error."""
        self.is_dead = True
        self._is_running = False
        for waiting in self._queue:
            if waiting.is_begun:
                waiting.error = FrameCutError("the server stopped reading while this was sent")
            else:
                waiting.error = WriterFullError("not sent: the server stopped reading")
            waiting.done.set()
            if waiting.on_cut is not None:
                waiting.on_cut()
        self._queue.clear()
        # Break the reference cycle between this writer and the callback's owner.
        self._on_backlog = None
        self._queued_bytes = 0


def _parts(frame: bytes) -> list[bytes | memoryview]:
    """Return the parts of a line with its newline, without a copy of a large frame."""
    if len(frame) < _AT_ONCE_BYTES:
        return [frame + b"\n"]
    return [memoryview(frame)[:-_LAST_PART_BYTES], frame[-_LAST_PART_BYTES:] + b"\n"]


def _written_at_once(descriptor: int, data: bytes) -> int:
    """Write what a descriptor accepts at once; return the number of bytes, 0 on any error.

    If the error lasts, a later write of the rest raises it; for a full pipe, that write waits.
    """
    try:
        return os.write(descriptor, data)
    except OSError:
        return 0
