"""Saved runs of scripts: one file a run, so that another daemon can continue it.

    <digest of session and request>.script       frames, each: length, digest, msgpack

A suspension is the saved state of a script that waits for answers to its calls. A frame is appended
whenever a call is sent or answered. Before the first call of a suspension is sent, a frame with the
suspension is appended. A file that has grown beyond 4 MiB is replaced by one that begins with the
last suspension. The last frame may be cut off, if the daemon died while writing it; any other
damage makes the file unusable. The file is private (0600), contains the answers of tools, and is
removed when its script ends.
"""

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import structlog
import trio

from capd.adapters.private_files import read_private, write_whole
from capd.core.scripts.run import (
    RETENTION,
    Answer,
    Answered,
    Begun,
    DamagedRunError,
    Frame,
    Restored,
    Sent,
    Suspended,
    restored,
)
from capd_protos.codec import MalformedError

MOST_BYTES = 48 << 20
LONG_FILE_BYTES = 4 << 20
"""A longer file is replaced at the next suspension by one that begins with that suspension."""
MOST_FILES = 64
SUFFIX = ".script"
_LENGTH_BYTES = 4
_DIGEST_BYTES = 16
_FRAMES: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)

log = structlog.get_logger(actor="curator")


def encoded(frames: Iterable[Frame]) -> bytes:
    """Return `frames` in the format of a file with a saved run."""
    parts: list[bytes] = []
    for frame in frames:
        data = msgspec.msgpack.encode(frame)
        parts += [len(data).to_bytes(_LENGTH_BYTES, "big"), _digest(data), data]
    return b"".join(parts)


def decoded(data: bytes) -> list[Frame]:
    """Return the frames in a file with a saved run; a last frame that is cut off is left out.

    Raises:
        DamagedRunError: any other frame is damaged.
    """
    return list(_frames(data))


def _frames(data: bytes) -> Iterator[Frame]:
    position, head = 0, _LENGTH_BYTES + _DIGEST_BYTES
    while len(data) - position >= head:
        size = int.from_bytes(data[position : position + _LENGTH_BYTES], "big")
        digest = data[position + _LENGTH_BYTES : position + head]
        content = data[position + head : position + head + size]
        if len(content) < size:
            return
        if _digest(content) != digest:
            raise DamagedRunError("it was changed or damaged: its digest is wrong")
        try:
            yield _FRAMES.decode(content)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DamagedRunError(f"it cannot be read: {error}") from None
        position += head + size


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


class RunFiles:
    """The folder of saved runs: finds, reads and removes their files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, session: str, request: str) -> Path:
        """Return the path of the file for the run that the request `request` of `session` began."""
        name = hashlib.sha256(f"{session}\0{request}".encode()).hexdigest()[:32]
        return self._folder / f"{name}{SUFFIX}"

    async def load(self, path: Path) -> Restored | None:
        """Return the run in a file; None if there is no file.

        Raises:
            DamagedRunError: the file is damaged.
        """
        return await trio.to_thread.run_sync(_loaded, path)

    async def sweep(self) -> None:
        """Remove saved runs that were last written long ago.

        If too many are left, remove the oldest as well.
        """
        await trio.to_thread.run_sync(_swept, self._folder)


class RunJournal:
    """The file of one run, written as its calls are sent and answered."""

    def __init__(self, files: RunFiles, begun: Begun, known: frozenset[int] = frozenset()) -> None:
        """Create the journal of the run `begun`, whose file is in the folder of `files`.

        If the file exists, `known` has the ids of the calls in its last suspension.
        """
        self.path = files.path(begun.session, begun.request)
        self._begun = begun
        self._known = known
        self._has_begun = bool(known)
        self._size_bytes = LONG_FILE_BYTES if known else 0
        # One write at a time, so that frames are in order.
        self._limiter = trio.CapacityLimiter(1)

    async def sent(self, id_: int, suspended: Callable[[], Suspended]) -> None:
        """Record that the call with the id `id_` is about to be sent.

        `suspended` returns the state of the waiting script, which is saved with its first call.

        Raises:
            OSError: the file cannot be written.
        """
        if id_ in self._known:
            await self._append(Sent(id_))
            return
        now = suspended()
        self._known = frozenset(each.id for each in now.calls)
        if self._size_bytes < LONG_FILE_BYTES and self._has_begun:
            await self._append(now)
            return
        data = encoded([self._begun, now])
        self._has_begun, self._size_bytes = True, len(data)
        await trio.to_thread.run_sync(write_whole, self.path, data, limiter=self._limiter)

    async def answered(self, id_: int, answer: Answer) -> None:
        """Record the answer of the call with the id `id_`.

        Without this, the call's outcome would be unknown after a crash.
        """
        if id_ in self._known:
            with contextlib.suppress(OSError):
                await self._append(Answered(id_, answer))

    async def remove(self) -> None:
        """Remove the file of the run."""
        self._known = frozenset()
        await trio.to_thread.run_sync(_removed, self.path, limiter=self._limiter)

    async def _append(self, frame: Frame) -> None:
        data = encoded([frame])
        self._size_bytes += len(data)
        await trio.to_thread.run_sync(_append, self.path, data, limiter=self._limiter)


def _append(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _removed(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _loaded(path: Path) -> Restored | None:
    try:
        data = read_private(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedRunError(error.strerror or str(error)) from None
    except MalformedError as error:
        raise DamagedRunError(str(error)) from None
    return restored(decoded(data))


def _swept(folder: Path) -> None:
    with contextlib.suppress(OSError):
        kept = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for at, path in enumerate(kept):
            if at >= MOST_FILES or time.time() - path.stat().st_mtime > RETENTION:
                path.unlink(missing_ok=True)
