"""A cache of what was made from the files of a folder, valid while they do not change.

Without it, a reload of ten thousand capabilities would parse twenty thousand unchanged files. A
file counts as unchanged with the same name, inode, size and times; a link with the same target. A
file that was changed just now is not cached: a second change within the same tick of the clock
would not alter its times.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

SETTLED_NS = 100_000_000
"""File systems count times in steps of 10 ms at most; a network's clock may differ more, and
`capd check` reads everything."""


class UnchangedFiles(Generic[T]):
    """Cached results by a key that the caller chooses; each is valid for one mark of its files."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, T]] = {}
        self._used: set[str] = set()
        self.is_new = False
        """Whether an entry was added or dropped since the last `kept`."""

    def get(self, key: str, mark: int) -> T | None:
        """Return the result under `key`, if its files still have this mark; otherwise None."""
        self._used.add(key)
        found = self._made.get(key)
        return found[1] if found is not None and mark and found[0] == mark else None

    def put(self, key: str, mark: int, made: T) -> None:
        """Cache the result of files with this mark; a mark of 0 is not cached."""
        self._used.add(key)
        if mark:
            self._made[key] = (mark, made)
            self.is_new = True
        elif self._made.pop(key, None) is not None:
            self.is_new = True

    def sweep(self) -> None:
        """Drop entries that were not asked for since the last sweep."""
        for key in self._made.keys() - self._used:
            del self._made[key]
            self.is_new = True
        self._used.clear()

    def restore(self, made: dict[str, tuple[int, T]]) -> None:
        """Load entries that another process saved, each with the mark of its files."""
        self._made = made

    def kept(self) -> dict[str, tuple[int, T]]:
        """Return all entries, for `restore`."""
        self.is_new = False
        return self._made


def mark_of_folder(folder: str, suffix: str) -> int:
    """Return a mark of all files in `folder` with this suffix; 0 if one may be changing.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        return _mark(
            (entry.path, entry.stat(follow_symlinks=False))
            for entry in entries
            if entry.name.endswith(suffix)
        )


def mark_of_file(file: str) -> int:
    """Return a mark of one file; 0 if it may be changing, or does not exist."""
    try:
        return _mark([(file, os.lstat(file))])
    except OSError:
        return 0


def _mark(files: Iterable[tuple[str, os.stat_result]]) -> int:
    latest = 0
    seen: list[tuple[str | int, ...]] = []
    for path, status in files:
        latest = max(latest, status.st_ctime_ns, status.st_mtime_ns)
        target = str(Path(path).readlink()) if stat.S_ISLNK(status.st_mode) else ""
        seen.append(
            (
                path,
                target,
                status.st_mode,
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            )
        )
    if latest > time.time_ns() - SETTLED_NS:
        return 0
    # Not Python's `hash`, which differs in each process.
    digest = hashlib.blake2b(repr(sorted(seen)).encode("utf-8", "surrogateescape"), digest_size=7)
    return int.from_bytes(digest.digest(), "big") or 1
