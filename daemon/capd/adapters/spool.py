"""Disk space for lines that are too long for memory.

Its files have no names, so they vanish when they are closed or when the process ends. The space is
limited for the daemon as a whole, and the number of files for each server.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

import trio

MOST_BYTES = 1 << 30
MOST_FILES = 4
"""The most files of one server at a time."""
LONGEST_BYTES = 256 * 1024 * 1024
"""The most bytes of one file."""
_WRITE_BYTES = 1 << 20


class SpoolFullError(Exception):
    """There is no room in the spool."""


class Spool:
    """The disk space for long lines of one daemon, with files in `folder`."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self.used_bytes = 0
        # Separate threads, so that a disk that hangs does not block other work.
        self.threads = trio.CapacityLimiter(4)

    def of_server(
        self, most_files: int = MOST_FILES, longest_bytes: int = LONGEST_BYTES
    ) -> "ServerSpool":
        """Return a part of the spool for one server, with these limits of its own."""
        return ServerSpool(self, most_files, longest_bytes)


class ServerSpool:
    """The part of the spool for one server, which may have a limited number of files."""

    def __init__(self, spool: Spool, most_files: int, longest_bytes: int) -> None:
        self.spool = spool
        self.files = 0
        self.longest_bytes = longest_bytes
        self._most_files = most_files

    def file(self) -> "SpoolFile":
        """Return a new, empty file of the spool.

        Raises:
            SpoolFullError: the server has too many files.
        """
        if self.files >= self._most_files:
            raise SpoolFullError
        return SpoolFile(self)


class SpoolFile:
    """A file to which bytes are appended. One task at a time may read from any position."""

    def __init__(self, share: ServerSpool) -> None:
        self.size_bytes = 0
        self._share = share
        self._share.files += 1
        self._is_open = True
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._file: BinaryIO | None = None

    def add(self, data: bytes) -> None:
        """Append `data` to the buffer; `flush` writes it.

        Raises:
            SpoolFullError: the file would be too large, or the spool is full.
        """
        spool = self._share.spool
        is_too_long = self.size_bytes + len(data) > self._share.longest_bytes
        if is_too_long or spool.used_bytes + len(data) > spool.most_bytes:
            raise SpoolFullError
        spool.used_bytes += len(data)
        self.size_bytes += len(data)
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)

    @property
    def is_flush_due(self) -> bool:
        """Whether the buffer is large enough to be written."""
        return self._unwritten_bytes >= _WRITE_BYTES

    async def flush(self) -> None:
        """Write the buffer. If cancelled, all of it or nothing was written.

        Raises:
            OSError: the disk fails or is full.
        """
        await trio.to_thread.run_sync(self._write, limiter=self._share.spool.threads)
        self._unwritten, self._unwritten_bytes = [], 0

    async def read(self, start: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes of the file from the offset `start`; fewer at its end.

        Raises:
            OSError: the disk fails.
        """
        if self._unwritten:
            await self.flush()
        threads = self._share.spool.threads
        return await trio.to_thread.run_sync(self._read, start, size_bytes, limiter=threads)

    async def link(self, path: Path) -> None:
        """Give the file the name `path`, so that it stays when this object is closed.

        Raises:
            OSError: the file system does not support it.
        """
        if self._unwritten:
            await self.flush()
        await trio.to_thread.run_sync(self._link, path, limiter=self._share.spool.threads)

    def close(self) -> None:
        """Close the file and free its space."""
        if not self._is_open:
            return
        self._is_open = False
        self._unwritten = []
        self._share.files -= 1
        self._share.spool.used_bytes -= self.size_bytes
        if self._file is None:
            return
        if sys.is_finalizing():
            # At the interpreter's end, a new thread would never run.
            self._file.close()
        else:
            # In a thread: freeing 256 MiB takes the kernel a tenth of a second.
            trio.lowlevel.start_thread_soon(self._file.close, _ignore)

    def __del__(self) -> None:
        # A result may be dropped in many places, so its file is closed with the last reference.
        self.close()

    def _write(self) -> None:
        if self._file is None:
            # The file is created without a name if the file system supports that; its mode is 0600.
            self._file = _file_in(self._share.spool.folder)
        for data in self._unwritten:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]

    def _link(self, path: Path) -> None:
        assert self._file is not None, "named before anything was added"
        folder = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
        try:
            # With a folder descriptor, because Python otherwise ignores `follow_symlinks`.
            os.link(str(self._file.fileno()), path, src_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(folder)

    def _read(self, start: int, size_bytes: int) -> bytes:
        assert self._file is not None, "read before anything was added"
        pieces = []
        while size_bytes and (piece := os.pread(self._file.fileno(), size_bytes, start)):
            pieces.append(piece)
            start += len(piece)
            size_bytes -= len(piece)
        return b"".join(pieces)


def _file_in(folder: Path) -> BinaryIO:
    """Return a new file in `folder` without a name, of mode 0600.

    If the system supports that, the file can be given a name later.
    """
    flag: int = getattr(os, "O_TMPFILE", 0)
    if flag:
        with contextlib.suppress(OSError):
            # Not `TemporaryFile`, which opens the file with O_EXCL, so that it can get no name.
            return os.fdopen(os.open(folder, os.O_RDWR | flag, 0o600), "w+b", buffering=0)
    return tempfile.TemporaryFile(dir=folder, buffering=0)


def _ignore(_: object) -> None:
    """Ignore the result of closing a file: its space is free in any case."""
