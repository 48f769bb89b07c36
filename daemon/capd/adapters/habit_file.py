"""What clients were seen to do with their lists, in one file of the state folder.

Written whole or not at all, 0600. A file that cannot be read is set aside under another name, so
that a person may look at it, and a fresh one begun: all of it is seen again.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog
import trio

from capd.core.sessions.habits import Habit
from capd_protos.codec import JsonCodec, MalformedError

MOST_BYTES = 1 << 20
VERSION = 1

log = structlog.get_logger()


class _Document(msgspec.Struct, frozen=True):
    version: int
    clients: list[Habit]


_DOCUMENT: JsonCodec[_Document] = JsonCodec(_Document)


class HabitFile:
    """The file of one daemon."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One write at a time: the later one must win.
        self._limiter = trio.CapacityLimiter(1)

    async def load(self) -> list[Habit]:
        """Return what was written down last."""
        return await trio.to_thread.run_sync(self._load, limiter=self._limiter)

    async def save(self, habits: Sequence[Habit]) -> bool:
        """Write it down; tell whether it is kept."""
        return await trio.to_thread.run_sync(self._save, list(habits), limiter=self._limiter)

    def _load(self) -> list[Habit]:
        try:
            # Non-blocking: opening a FIFO must not wait for a writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags), "rb") as file:
                document = _DOCUMENT.decode(file.read(MOST_BYTES))
        except FileNotFoundError:
            return []
        except (OSError, MalformedError) as error:
            self._set_aside(str(error))
            return []
        if document.version != VERSION:
            self._set_aside(f"version {document.version}, this daemon knows {VERSION}")
            return []
        return document.clients

    def _set_aside(self, why: str) -> None:
        bad = self._path.with_name(self._path.name + ".bad")
        with contextlib.suppress(OSError):
            self._path.replace(bad)
        log.warning("habits_set_aside", file=bad.name, reason=why)

    def _save(self, habits: list[Habit]) -> bool:
        partial = self._path.with_suffix(".partial")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
                file.write(_DOCUMENT.encode(_Document(VERSION, habits)))
            partial.replace(self._path)
        except OSError as error:
            log.warning("habits_not_saved", file=self._path.name, reason=str(error))
            return False
        return True
