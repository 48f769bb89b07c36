"""A cache of results made from the files of a folder, valid while the files stay unchanged.

Without it, a reload of ten thousand capabilities would parse twenty thousand unchanged files. A
file counts as unchanged if its name, inode, size and times are the same, and if it is a link, also
its target. A mark is a number that is computed from these facts, so equal marks mean unchanged
files. A file that has just been changed is not cached, because a second change within the same tick
of the clock would not alter its times.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

UNCHANGED_NS = 100_000_000
"""A file that changed less than this many nanoseconds ago is not cached. File systems count times
in steps of 10 ms at most. The clock of a network file system may differ by more; `capd check` reads
every file again."""


class UnchangedFiles(Generic[T]):
    """A cache of results of reading files. A result is valid until the mark of its files changes.

    The caller chooses the key of each result.
    """

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, T]] = {}
        self._used: set[str] = set()
        self.is_new = False
        """Whether an entry was added or dropped since the last `kept`."""

    def get(self, key: str, mark: int) -> T | None:
        """Return the result that is cached under `key`; None if its files have another mark."""
        self._used.add(key)
        found = self._made.get(key)
        return found[1] if found is not None and mark and found[0] == mark else None

    def put(self, key: str, mark: int, made: T) -> None:
        """Cache the result `made` of files with this mark; a mark of 0 is not cached."""
        self._used.add(key)
        if mark:
            self._made[key] = (mark, made)
            self.is_new = True
        elif self._made.pop(key, None) is not None:
            self.is_new = True

    def sweep(self) -> None:
        """Drop entries that nobody has requested since the last sweep."""
        for key in self._made.keys() - self._used:
            del self._made[key]
            self.is_new = True
        self._used.clear()

    def restore(self, made: dict[str, tuple[int, T]]) -> None:
        """Load entries that another process saved, each with the mark of its files."""
        self._made = made

    def kept(self) -> dict[str, tuple[int, T]]:
        """Return all entries, in the form that `restore` accepts."""
        self.is_new = False
        return self._made


@dataclass(slots=True)
class _Folder:
    """The cached names of the files in a folder, and the numbers that tell whether they changed."""

    state: int
    """A number that changes when a name comes or goes."""
    paths: tuple[str, ...]
    content: int
    """A number that changes with any of the files."""
    mark: int


class FolderMarks:
    """Marks of folders, whose names are read again only if the folder itself has changed.

    A folder's own times change when a name is added or removed. So an unchanged folder costs one
    `stat`, and one for each of its files: a third of the time for listing it again.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Folder] = {}
        self._used: set[str] = set()

    def mark(self, folder: str, suffix: str) -> int:
        """Return the mark of the files in `folder` with this suffix, as `mark_of_folder` does.

        Always pass the same suffix for a folder.

        Raises:
            OSError: the folder cannot be read.
        """
        self._used.add(folder)
        own = os.stat(folder)  # noqa: PTH116 - ten thousand at a time
        state = hash((own.st_dev, own.st_ino, own.st_mtime_ns, own.st_ctime_ns))
        known = self._known.get(folder)
        if known is not None and known.state == state:
            try:
                files = [(path, os.lstat(path)) for path in known.paths]
            except FileNotFoundError:
                # Some file systems keep a folder's times when a name goes.
                files = None
            if files is not None:
                content = _state_of(files)
                if content != known.content or not known.mark:
                    known.content, known.mark = content, _mark(files)
                return known.mark
        files = _files_in(folder, suffix)
        made = _Folder(state, tuple(path for path, _ in files), _state_of(files), _mark(files))
        self._known.pop(folder, None)
        # A name that comes within the same tick of the clock would not change a folder's times.
        if made.mark and max(own.st_mtime_ns, own.st_ctime_ns) <= time.time_ns() - UNCHANGED_NS:
            self._known[folder] = made
        return made.mark

    def sweep(self) -> None:
        """Drop folders that nobody has requested since the last sweep."""
        for folder in self._known.keys() - self._used:
            del self._known[folder]
        self._used.clear()


def mark_of_folder(folder: str, suffix: str) -> int:
    """Return a number that changes with the files in `folder` that have this suffix.

    The result is 0 if one of them may be changing.

    Raises:
        OSError: the folder cannot be read.
    """
    return FolderMarks().mark(folder, suffix)


def _files_in(folder: str, suffix: str) -> list[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        found = [
            (entry.path, entry.stat(follow_symlinks=False))
            for entry in entries
            if entry.name.endswith(suffix)
        ]
    return sorted(found, key=lambda file: file[0])


def _state_of(files: Iterable[tuple[str, os.stat_result]]) -> int:
    """Return a number that changes with any of the files; it is valid in this process only."""
    return hash(
        tuple(
            (own.st_mode, own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns)
            for _, own in files
        )
    )


def mark_of_file(file: str) -> int:
    """Return a mark of one file, a number that changes with the file.

    It is 0 if the file may be changing, or does not exist.
    """
    try:
        return _mark([(file, os.lstat(file))])
    except OSError:
        return 0


def _mark(files: Iterable[tuple[str, os.stat_result]]) -> int:
    """Return a mark of `files`, which are sorted: a number that changes with any of them."""
    latest = 0
    seen: list[str] = []
    for path, status in files:
        modified, changed = status.st_mtime_ns, status.st_ctime_ns
        latest = max(latest, modified, changed)
        mode = status.st_mode
        target = str(Path(path).readlink()) if stat.S_ISLNK(mode) else ""
        facts = f"{mode} {status.st_ino} {status.st_size} {modified} {changed}"
        seen.append(f"{path}\0{target}\0{facts}\0")
    if latest > time.time_ns() - UNCHANGED_NS:
        return 0
    # Not Python's `hash`, which differs in each process.
    digest = hashlib.blake2b("".join(seen).encode("utf-8", "surrogateescape"), digest_size=7)
    return int.from_bytes(digest.digest(), "big") or 1
