"""Newline-framed messages over a server's pipes, where the peer may be hostile.

Reading is linear in the bytes read, keeps at most `cap_bytes` of one line, and gives a line that
has begun a bounded time to end. Writing is one task per stream, so that no caller's end can leave
half a frame for the next one. A stall of the writer cannot be repaired, for nobody can know what
the peer has read: the stream is spent.
"""

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from capd.core.errors import CapdError
from capd_protos.codec import JsonCodec, MalformedError

_CHUNK_BYTES = 64 * 1024
_HEAD_BYTES = 4 * 1024
_FRAMES_BETWEEN_CHECKPOINTS = 32
_SCAN_BYTES = 64 * 1024
_MAX_ID_BYTES = 512


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
    """A line longer than the cap, of which only the beginning was kept."""

    size_bytes: int
    head: bytes


class FrameReader:
    """The lines of a stream; blank ones are skipped, and the end of the stream ends them."""

    def __init__(
        self,
        stream: trio.abc.ReceiveStream,
        cap_bytes: int = 32 * 1024 * 1024,
        *,
        assembly_timeout: float = 30.0,
    ) -> None:
        self._stream = stream
        self._cap_bytes = cap_bytes
        self._assembly_timeout = assembly_timeout
        self._ready: deque[Frame | Oversized] = deque()
        self._chunks: list[bytes] = []
        self._line_bytes = 0
        self._waited = 0.0
        self._taken = 0
        self._is_ended = False

    def allow(self, cap_bytes: int) -> None:
        """Take longer lines from here on."""
        self._cap_bytes = cap_bytes

    @property
    def partial(self) -> bytes:
        """What has arrived of a line that has not ended; past the cap, its head."""
        return b"".join(self._chunks)

    def __aiter__(self) -> "FrameReader":
        """Return itself."""
        return self

    async def __anext__(self) -> Frame | Oversized:
        """Return the next line.

        Raises:
            FrameStalledError: A line began and did not end in time.
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
        chunk: bytes | bytearray = b""
        began_at = trio.current_time()
        # Only the time spent waiting here counts: a reader kept busy is not the peer's fault.
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
        if not chunk:
            self._is_ended = True
            return
        first, *others = bytes(chunk).split(b"\n")
        self._waited = self._waited + trio.current_time() - began_at if self._line_bytes else 0.0
        self._extend(first)
        for part in others:
            self._end_line()
            self._extend(part)

    def _extend(self, part: bytes) -> None:
        if not part:
            return
        self._line_bytes += len(part)
        if self._line_bytes <= self._cap_bytes:
            self._chunks.append(part)
        elif self._line_bytes - len(part) <= self._cap_bytes:
            # The first bytes past the cap: keep the head, and nothing of what follows.
            self._chunks = [b"".join([*self._chunks, part])[:_HEAD_BYTES]]

    def _end_line(self) -> None:
        data = b"".join(self._chunks)
        if self._line_bytes > self._cap_bytes:
            self._ready.append(Oversized(self._line_bytes, data))
        elif data and not data.isspace():
            self._ready.append(Frame(data))
        self._chunks = []
        self._line_bytes = 0
        self._waited = 0.0


@dataclass(slots=True, eq=False)
class _Waiting:
    frame: bytes
    before_first_byte: Callable[[], None] | None
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
        self._is_dead = False

    @property
    def is_dead(self) -> bool:
        """Say whether every `send` is refused from here on."""
        return self._is_dead

    async def send(self, frame: bytes, before_first_byte: Callable[[], None] | None = None) -> None:
        """Write `frame` and a newline; return when the whole of it is in the pipe.

        `before_first_byte` is called if and only if some of it may be written: a caller that is
        cancelled or refused before that has sent nothing, one that is cancelled after it has sent
        it whole. A single frame may be larger than the queue's bytes, if the queue is empty.

        Raises:
            WriterFullError: Nothing was written.
            FrameCutError: It cannot be known what the peer has read.
        """
        assert b"\n" not in frame, "a frame is one line"
        self._admit(len(frame))
        waiting = _Waiting(frame, before_first_byte)
        self._queue.append(waiting)
        self._queued_bytes += len(frame)
        self._wake.set()
        try:
            await waiting.done.wait()
        finally:
            if not waiting.is_begun and waiting in self._queue:
                self._forget(waiting)
        if waiting.error is not None:
            raise waiting.error

    def post(self, frame: bytes) -> None:
        """Queue `frame` for a peer that need not get it: nobody waits for its end.

        Raises:
            WriterFullError: Nothing was queued.
        """
        self._admit(len(frame))
        self._queue.append(_Waiting(frame, None))
        self._queued_bytes += len(frame)
        self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write what is queued until the peer is gone; afterwards the stream is spent.

        Cancelling this task, unlike cancelling a sender, may cut a frame.

        Raises:
            WriterStalledError: A frame could not be written in time; the server has to be ended.
        """
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

    def _admit(self, size_bytes: int) -> None:
        if self._is_dead:
            raise WriterFullError("not sent: the server no longer reads")
        is_full = len(self._queue) >= self._max_frames
        if is_full or (self._queue and self._queued_bytes + size_bytes > self._max_bytes):
            raise WriterFullError(
                f"not sent: {len(self._queue)} requests already wait for the server to read them"
            )

    async def _write(self, waiting: _Waiting) -> None:
        waiting.is_begun = True
        if waiting.before_first_byte is not None:
            waiting.before_first_byte()
        with trio.move_on_after(self._timeout) as scope:
            await self._stream.send_all(waiting.frame + b"\n")
        if scope.cancelled_caught:
            raise WriterStalledError(
                f"the server did not read a frame of {len(waiting.frame)} bytes"
                f" within {self._timeout:g} s"
            )
        self._forget(waiting)
        waiting.done.set()

    def _forget(self, waiting: _Waiting) -> None:
        self._queue.remove(waiting)
        self._queued_bytes -= len(waiting.frame)

    def _die(self) -> None:
        self._is_dead = True
        for waiting in self._queue:
            if waiting.is_begun:
                waiting.error = FrameCutError("the server stopped reading while this was sent")
            else:
                waiting.error = WriterFullError("not sent: the server stopped reading")
            waiting.done.set()
        self._queue.clear()
        self._queued_bytes = 0


_NOT_STRUCTURE = re.compile(rb'[^"{}\[\]]*')
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ID_VALUE = re.compile(
    rb'\s*:\s*(-?(?:0|[1-9][0-9]{0,18})|"[^"\\]*(?:\\.[^"\\]*)*")(?=\s*[,}])', re.DOTALL
)
_ID_CODEC: JsonCodec[int | str] = JsonCodec(int | str)


def checked_text(data: bytes) -> bytes:
    """Return `data`, which is UTF-8 to its end; a decoder does not look into what stays raw.

    Raises:
        MalformedError: it is not, and whoever it is passed on to could break over it.
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        raise MalformedError("not valid UTF-8") from None
    return data


def recover_id(head: bytes) -> int | str | None:
    """Return the JSON-RPC id of a frame that cannot be read, if it stands near the beginning.

    A scan, not a parse: what follows may be cut, nested too deeply or not UTF-8. It is linear and
    looks at no more than 64 KiB.
    """
    text = head[:_SCAN_BYTES].lstrip()
    if not text.startswith(b"{"):
        return None
    depth = 0
    at = 0
    while (at := _end_of(_NOT_STRUCTURE, text, at)) < len(text):
        if text[at : at + 1] != b'"':
            depth += 1 if text[at : at + 1] in b"{[" else -1
            at += 1
            continue
        string = _STRING.match(text, at)
        if string is None:
            return None
        at = string.end()
        value = _ID_VALUE.match(text, at) if depth == 1 and string[0] == b'"id"' else None
        if value is not None:
            return _id_from(value[1])
    return None


def _end_of(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _id_from(value: bytes) -> int | str | None:
    if len(value) > _MAX_ID_BYTES:
        return None
    try:
        return _ID_CODEC.decode(value)
    except MalformedError:
        return None
