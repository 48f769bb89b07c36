"""The log file of a daemon without a journal: limited in size, with a few older files.

The program that started the daemon (a thin client, `capd daemon start`, launchd) opened
`<state>/capd.log` as its standard error. The daemon moves a full `capd.log` aside only while that
is its standard error: a terminal, the journal, or a file that a person chose is left alone.
"""

import contextlib
import os
import threading
from pathlib import Path

BOUND_BYTES = 8 << 20
"""The size at which a log file is full. A quiet daemon writes this much in months; one whose server
fails every second, in two days."""
GENERATIONS = 3
"""How many old files are kept; `capd.log.1` is the newest of them."""


class LogFile:
    """Standard error, if it is capd's own log file; moved aside whenever it is full."""

    def __init__(self, path: Path, fd: int, bound_bytes: int = BOUND_BYTES) -> None:
        self._path = path
        self._fd = fd
        self._bound_bytes = bound_bytes
        # Worker threads log too.
        self._lock = threading.Lock()

    def keep_bounded(self) -> None:
        """Start another file if this one is full.

        Raises:
            OSError: the full file cannot be moved; new lines are still appended to it.
        """
        with self._lock:
            there = os.fstat(self._fd)
            if there.st_size >= self._bound_bytes and self._is_ours(there):
                self._begin_another()

    def _begin_another(self) -> None:
        fresh = self._generation(".next")
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(fresh, flags, 0o600)
        try:
            for number in range(GENERATIONS, 1, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._generation(f".{number - 1}").replace(self._generation(f".{number}"))
            self._path.replace(self._generation(".1"))
            fresh.replace(self._path)
            # `dup2` onto standard error, because the interpreter writes tracebacks there.
            os.dup2(fd, self._fd)
        finally:
            os.close(fd)

    def _generation(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _is_ours(self, there: os.stat_result) -> bool:
        try:
            named = os.lstat(self._path)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (there.st_dev, there.st_ino)
