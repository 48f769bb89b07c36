"""A cache of parsed taps, in memory and on disk, so that only changed folders are read again.

A tap is a folder of capabilities and skills, each of which is a folder of its own.

Reading the files of ten thousand capabilities takes four seconds, during which the daemon serves
nobody. The parsed result of a folder is cached with the mark of its files, a number that changes
with any of them (`unchanged_files`). When the mark changes, the folder is parsed again. The file on
disk is used only by the version of capd that wrote it, because other code may parse the same files
differently.
"""

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

import capd
import capd_protos
from capd.adapters.private_files import read_private, write_whole
from capd.adapters.unchanged_files import FolderMarks, UnchangedFiles
from capd.core.taps.tap_format import CapabilityRead
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.types import Finding

FILE = "taps.bin"
MOST_BYTES = 256 << 20
_MAGIC = b"capd-taps-1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size

Made = tuple[bytes, CapabilityRead]
"""The digest of a capability's files, and the parsed capability."""


class _Kept(msgspec.Struct):
    capabilities: dict[str, tuple[int, Made]]


_KEPT: MsgpackCodec[_Kept] = MsgpackCodec(_Kept)


class ParsedTaps:
    """The cache of parsed taps. All methods block."""

    def __init__(self, file: Path | None = None) -> None:
        """Start with an empty cache. Without `file`, it is lost when the process ends."""
        self.folders = FolderMarks()
        self.capabilities: UnchangedFiles[Made] = UnchangedFiles()
        self.vectors: UnchangedFiles[tuple[str, tuple[Finding, ...]]] = UnchangedFiles()
        self._file = file
        self._was_restored = file is None

    def restore(self) -> None:
        """Load the entries that an earlier daemon saved. Only the first call does something."""
        if self._was_restored or self._file is None:
            return
        self._was_restored = True
        try:
            data = read_private(self._file, MOST_BYTES)
            head = len(_MAGIC) + _DIGEST_BYTES
            if data[:head] == _MAGIC + _checksum(data[head:]):
                self.capabilities.restore(_KEPT.decode(data[head:]).capabilities)
        except (OSError, MalformedError):
            return

    def keep(self) -> None:
        """Drop entries that were not used since the last call; save the others if any is new."""
        self.folders.sweep()
        self.capabilities.sweep()
        self.vectors.sweep()
        if self._file is None or not self.capabilities.is_new:
            return
        data = _KEPT.encode(_Kept(self.capabilities.kept()))
        try:
            write_whole(self._file, [_MAGIC + _checksum(data), data])
        except OSError:
            # Only the next daemon is affected: it parses everything again.
            return


def _checksum(data: bytes) -> bytes:
    return hashlib.sha256(_code_mark() + data).digest()


@cache
def _code_mark() -> bytes:
    """Return a digest of the code that parses taps, which changes with the code.

    It is made of capd's version and of the paths, sizes and times of the modules of `capd.core` and
    `capd_protos`.
    """
    roots = [Path(capd.__file__).parent / "core", Path(capd_protos.__file__).parent]
    marks = sorted(mark for root in roots for mark in _marks_below(str(root)))
    return hashlib.sha256(repr((capd.__version__, marks)).encode()).digest()


def _marks_below(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _marks_below(entry.path)
            elif entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
