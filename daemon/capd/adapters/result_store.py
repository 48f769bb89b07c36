"""Stores whole results on disk: content-addressed, private, bounded, and checked when read.

    <sha256>.result   the bytes of one result, or of the line that contains it
    <handle>.handle   who got it, when, and the digest of each block
    secret            the key from which handles are made

A handle is the name by which a session reads a stored result.

A result that was spooled to a file without a name is stored by giving that file a name, or else by
copying it. A disk may be slow, full or broken, so all work is done in one separate thread. If a
result cannot be stored, the caller gets an error, and still has the result.
"""

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec
import structlog
import trio

from capd.adapters.private_files import write_whole
from capd.adapters.regular_files import opened_regular, read_up_to
from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern
from capd.core.results.handles import RETENTION, handle_of, is_handle
from capd.core.results.large_results import LargeResult, Result
from capd.core.results.store_index import StoreIndex
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.places import make_folders
from capd_protos.types import SessionKey

MOST_BYTES = 1 << 30
MOST_HANDLES = 1 << 13
"""The most handles that are kept, including those whose results had to make room. Each takes 0.3 to
0.6 KB of the daemon's memory."""
BLOCK_BYTES = 1 << 20
"""The size of a checked block. Reading a page of a large result checks only the blocks of the page.
"""
_SECRET_BYTES = 32
_MOST_RECORD_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18
_FARTHEST = 1 << 32
"""The largest possible offset of a result in its line."""
_SHA256 = lazy_pattern("[0-9a-f]{64}")

T = TypeVar("T")

log = structlog.get_logger()


class NotKeptError(CapdError):
    """The result is not in the store, or does not fit; the text says why."""


class StoredResult(msgspec.Struct, frozen=True):
    """The record of one stored result: its session, its time, and digests to check the bytes by."""

    handle: str
    session: SessionKey
    tool: str
    sha256: str
    size_bytes: int
    kept_at: float
    """Seconds since the epoch."""
    blocks: list[bytes]
    """The digest of each block of bytes."""
    start: int = 0
    """The offset of the result in its file."""


_RECORD: MsgpackCodec[StoredResult] = MsgpackCodec(StoredResult)


class _Entry(NamedTuple):
    """What is kept in memory of a handle. The rest of its record is read from its file."""

    kept_at: float
    sha256: str


@runtime_checkable
class Linkable(Protocol):
    """Bytes in a temporary file without a name, which can get one."""

    async def link(self, path: Path) -> None:
        """Give the file a name; raise OSError if that is impossible."""
        ...


class ResultStore:
    """The stored results of one daemon, as files in `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._clock = clock
        # One thread at a time, so that no result is dropped while it is read.
        self._thread = trio.CapacityLimiter(1)
        self._is_loaded = False
        # Both are in the order of creation, which is the order of expiry.
        self._live: dict[str, _Entry] = {}
        self._expired: dict[str, _Entry] = {}
        """Expired handles, which are kept so that whoever reads one is told that it has expired."""
        self._results: dict[str, tuple[int, int]] = {}
        """By a result's digest: the number of its live handles, and its offset in its file."""
        self._index = StoreIndex(most_bytes)
        self._secret = b""

    async def keep(self, result: Result, session: SessionKey, tool: str) -> str:
        """Store a whole result that `session` got from `tool`; return its handle.

        Raises:
            OSError: it cannot be written.
            NotKeptError: the result is larger than the store may be.
        """
        size_bytes = len(result) if isinstance(result, bytes) else result.size_bytes
        if size_bytes > self._most_bytes:
            raise NotKeptError(f"{size_bytes} bytes are more than the store may have")
        if isinstance(result, bytes):
            return await self._run(lambda: self._keep(result, session, tool))
        path = self._folder / f"{secrets.token_hex(8)}.partial"
        try:
            start = await self._adopted(result, path)
            return await self._run(lambda: self._named(path, start, size_bytes, session, tool))
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise

    async def record(self, handle: str) -> StoredResult:
        """Return the record of the result that a handle names.

        Raises:
            NotKeptError: the handle is unknown, or has expired.
            OSError: the disk fails.
        """
        return await self._run(lambda: self._found(handle))

    async def read(self, record: StoredResult, start: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes of a stored result from the offset `start`; fewer at its end.

        `record` is the result's record, by whose digests the bytes are checked.

        Raises:
            NotKeptError: the result was removed, or its file was changed.
            OSError: the disk fails.
        """
        return await self._run(lambda: self._read(record, start, size_bytes))

    async def sweep(self) -> None:
        """Remove expired results, and files without a handle."""
        with contextlib.suppress(OSError):
            await self._run(self._sweep)

    async def _run(self, what: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(what, limiter=self._thread)

    # In the thread

    def _keep(self, result: bytes, session: SessionKey, tool: str) -> str:
        self._load()
        sha256 = hashlib.sha256(result).hexdigest()
        handle = handle_of(self._secret, session, sha256)
        path = self._path(sha256)
        known = self._record(handle)
        if known is None or known.start or not _is_whole(path, sha256, len(result)):
            self._make_room(len(result), sha256)
            write_whole(path, result)
        # Computed again even if the result is stored: an old record may be damaged.
        blocks = [hashlib.sha256(block).digest() for block in _blocks(result)]
        return self._put(
            StoredResult(handle, session, tool, sha256, len(result), self._clock(), blocks)
        )

    async def _adopted(self, result: LargeResult, path: Path) -> int:
        """Store a spooled result in the file `path`; return the offset of the result in it.

        The spool's own file gets this name if possible. Otherwise the result is copied.
        """
        await self._run(self._load)
        spooled = result.spooled
        if isinstance(spooled, Linkable) and not result.spliced:
            with contextlib.suppress(OSError):
                await spooled.link(path)
                return result.start
        # The spool's file cannot get a name on this file system, or the result begins with other
        # bytes than the file has. So copy it piece by piece.
        file = await trio.open_file(path, "wb", opener=_private)
        async with file:
            await file.write(result.spliced)
            for at in range(result.start, result.end, _PIECE_BYTES):
                await file.write(await spooled.read(at, min(_PIECE_BYTES, result.end - at)))
        return 0

    def _named(
        self, path: Path, start: int, size_bytes: int, session: SessionKey, tool: str
    ) -> str:
        whole, blocks = hashlib.sha256(), []
        with path.open("rb") as file:
            file.seek(start)
            for at in range(0, size_bytes, BLOCK_BYTES):
                block = file.read(min(BLOCK_BYTES, size_bytes - at))
                whole.update(block)
                blocks.append(hashlib.sha256(block).digest())
        sha256 = whole.hexdigest()
        self._make_room(size_bytes, sha256)
        path.replace(self._path(sha256))
        handle = handle_of(self._secret, session, sha256)
        return self._put(
            StoredResult(handle, session, tool, sha256, size_bytes, self._clock(), blocks, start)
        )

    def _put(self, record: StoredResult) -> str:
        # Equal results share one file, whichever line contained them first.
        _, start = self._results.get(record.sha256, (0, record.start))
        if start != record.start:
            for handle, entry in [*self._expired.items(), *self._live.items()]:
                if entry.sha256 == record.sha256 and (other := self._record(handle)) is not None:
                    self._write_record(msgspec.structs.replace(other, start=record.start))
        self._write_record(record)
        self._forget(record.handle)
        self._note(record)
        self._index.add(record.sha256, self._path(record.sha256).stat().st_size)
        return record.handle

    def _write_record(self, record: StoredResult) -> None:
        write_whole(self._record_path(record.handle), _RECORD.encode(record))

    def _note(self, record: StoredResult) -> None:
        self._live[record.handle] = _Entry(record.kept_at, record.sha256)
        handles, _ = self._results.get(record.sha256, (0, 0))
        self._results[record.sha256] = (handles + 1, record.start)

    def _forget(self, handle: str) -> None:
        """Forget a handle. The file of its result stays."""
        self._expire(handle)
        self._expired.pop(handle, None)

    def _expire(self, handle: str) -> str:
        """End a handle; return the digest of its result if no other live handle has it.

        Return an empty text otherwise.
        """
        entry = self._live.pop(handle, None)
        if entry is None:
            return ""
        self._expired[handle] = entry
        handles, start = self._results.pop(entry.sha256)
        if handles == 1:
            return entry.sha256
        self._results[entry.sha256] = (handles - 1, start)
        return ""

    def _found(self, handle: str) -> StoredResult:
        self._load()
        record = None
        if is_handle(handle) and (handle in self._live or handle in self._expired):
            with contextlib.suppress(FileNotFoundError):
                record = self._read_record(self._record_path(handle))
        if record is None:
            raise NotKeptError(
                "No result is kept under this handle. Copy it exactly from the result that gave "
                "it, or call the tool again."
            )
        if self._clock() - record.kept_at >= RETENTION:
            raise NotKeptError(
                f"This handle has expired: results are kept for {RETENTION / 3600:g} hours. Call "
                f"{record.tool} again."
            )
        return record

    def _read(self, record: StoredResult, start: int, size_bytes: int) -> bytes:
        first = start // BLOCK_BYTES
        end = min(start + size_bytes, record.size_bytes)
        pieces: list[bytes] = []
        path = self._path(record.sha256)
        try:
            with (
                opened_regular(path, os.O_NOFOLLOW) as (descriptor, _),
                open(descriptor, "rb", closefd=False) as file,
            ):
                file.seek(record.start + first * BLOCK_BYTES)
                for index in range(first, -(-end // BLOCK_BYTES)):
                    left = record.size_bytes - index * BLOCK_BYTES
                    block = file.read(min(BLOCK_BYTES, left))
                    if hashlib.sha256(block).digest() != record.blocks[index]:
                        raise NotKeptError(
                            "The stored copy of this result is damaged: it is not what was kept "
                            f"(block {index}). Nothing of it is shown; call {record.tool} again."
                        )
                    pieces.append(block)
        except FileNotFoundError:
            raise NotKeptError(
                "This result is no longer kept: it had to make room for later ones. Call "
                f"{record.tool} again."
            ) from None
        self._index.use(record.sha256)
        with contextlib.suppress(OSError):
            os.utime(path)
        at = start - first * BLOCK_BYTES
        return b"".join(pieces)[at : at + max(end - start, 0)]

    # The folder

    def _path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.result"

    def _record_path(self, handle: str) -> Path:
        return self._folder / f"{handle}.handle"

    def _load(self) -> None:
        """Read the folder, if that has not been done."""
        if self._is_loaded:
            return
        make_folders(self._folder)
        self._folder.chmod(0o700)
        self._secret = self._kept_secret()
        self._is_loaded = True
        found: list[StoredResult] = []
        for path in self._folder.glob("*.handle"):
            with contextlib.suppress(OSError):
                record = self._read_record(path)
                if record is None:
                    log.warning("result_record_unreadable", file=path.name)
                    path.unlink(missing_ok=True)
                    continue
                found.append(record)
        for record in sorted(found, key=lambda each: each.kept_at):
            self._note(record)
        self._read_folder()

    def _record(self, handle: str) -> StoredResult | None:
        """Return the record of a handle; None if it is unknown, or its file cannot be used."""
        if handle in self._live or handle in self._expired:
            with contextlib.suppress(OSError):
                return self._read_record(self._record_path(handle))
        return None

    def _read_folder(self) -> None:
        """Fill the index with the files in the folder, in the order of their last use."""
        files: list[tuple[float, str, int]] = []
        for path in self._folder.glob("*.result"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, path.stem, status.st_size))
        there = {name for _, name, _ in files}
        for name in self._index.names():
            if name not in there:
                self._index.remove(name)
        for _, name, size_bytes in sorted(files):
            self._index.add(name, size_bytes)

    def _read_record(self, path: Path) -> StoredResult | None:
        """Return the record in a file; None if it is damaged."""
        try:
            record = _RECORD.decode(_bytes_of(path, _MOST_RECORD_BYTES))
        except MalformedError:
            return None
        if not _SHA256.fullmatch(record.sha256):
            return None
        # The handle is computed again, so that a changed session or digest is noticed.
        if path.stem != record.handle or record.handle != handle_of(
            self._secret, record.session, record.sha256
        ):
            return None
        if not 0 <= record.start < _FARTHEST or len(record.blocks) != -(
            -record.size_bytes // BLOCK_BYTES
        ):
            return None
        # A time in the future would keep the result for ever.
        now = self._clock()
        return record if record.kept_at <= now else msgspec.structs.replace(record, kept_at=now)

    def _kept_secret(self) -> bytes:
        path = self._folder / "secret"
        with contextlib.suppress(OSError):
            secret = _bytes_of(path, _SECRET_BYTES)
            if len(secret) == _SECRET_BYTES:
                return secret
        secret = secrets.token_bytes(_SECRET_BYTES)
        write_whole(path, secret)
        return secret

    def _make_room(self, size_bytes: int, sha256: str) -> None:
        self._end_old()
        dropped = self._index.make_room(size_bytes, keep=sha256)
        for each in dropped:
            self._path(each).unlink(missing_ok=True)
        if dropped:
            log.info("results_dropped", results=len(dropped))

    def _end_old(self) -> None:
        """Remove expired results, the oldest first."""
        self._load()
        now = self._clock()
        while self._live:
            handle, entry = next(iter(self._live.items()))
            if now - entry.kept_at < RETENTION:
                break
            if sha256 := self._expire(handle):
                self._index.remove(sha256)
                self._path(sha256).unlink(missing_ok=True)
        while oldest := self._expired or self._live:
            handle, entry = next(iter(oldest.items()))
            # The handle is kept for as long again, so that reading it says that it has expired.
            is_many = len(self._live) + len(self._expired) > MOST_HANDLES
            if now - entry.kept_at < 2 * RETENTION and not is_many:
                break
            # The file of the result stays until room is needed, or until the next `sweep`.
            self._forget(handle)
            self._record_path(handle).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove expired results, results without a handle, and old `.partial` files."""
        self._end_old()
        now = self._clock()
        for path in self._folder.glob("*.result"):
            if path.stem not in self._results:
                path.unlink(missing_ok=True)
        for path in self._folder.glob("*.partial"):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime >= RETENTION:
                    path.unlink(missing_ok=True)
        self._read_folder()


def _bytes_of(path: Path, most_bytes: int) -> bytes:
    """Return the content of a file of the store.

    Raises OSError if it is too large or not a regular file: whoever can write in the folder may
    have put a pipe or a link to a device in its place.
    """
    with opened_regular(path, os.O_NOFOLLOW) as (descriptor, _):
        return read_up_to(descriptor, most_bytes)


def _is_whole(path: Path, sha256: str, size_bytes: int) -> bool:
    try:
        data = _bytes_of(path, size_bytes)
    except OSError:
        return False
    return hashlib.sha256(data).hexdigest() == sha256


def _blocks(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
