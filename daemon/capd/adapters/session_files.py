"""Saves session records in the state folder.

Each session has one file, which is written whole or not at all.

An unreadable file counts as missing and is logged: a session that starts empty is better than one
that does not start (docs/design/operation.md). But while the machine has no descriptor or memory
left, a session is not opened at all: it would be empty, and saved over its record.

Each file ends with a digest of its content. A record contains the commands of servers, so the
digest keeps a flipped bit on the disk from starting another command.
"""

import contextlib
import errno
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog
import trio

from capd.adapters.platform.credentials import NO_DESCRIPTORS
from capd.adapters.state_file import StateFile
from capd.core.sessions.session_record import SessionRecord, has_anything, is_kept
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.types import SessionKey

MOST_BYTES = 64 << 20
"""The most bytes of one record, which contains the definition of each active tool."""

_SHORTAGES = NO_DESCRIPTORS | {errno.ENOMEM}

_RECORD: MsgpackCodec[SessionRecord] = MsgpackCodec(SessionRecord)
_DIGEST_LENGTH = 32

log = structlog.get_logger()


class SessionFiles:
    """Saves and loads the records of one daemon's sessions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # One write at a time, so that the later record of a session is not overwritten.
        self._limiter = trio.CapacityLimiter(1)

    async def load(self, key: SessionKey) -> SessionRecord | None:
        """Return the saved record of `key`; None if there is none, or it is damaged or too old.

        Raises:
            OSError: the machine has no descriptor or memory left to read it.
        """
        return await trio.to_thread.run_sync(self._load, key, limiter=self._limiter)

    async def save(self, record: SessionRecord) -> bool:
        """Save `record`, or remove its file if the record is empty; return whether that worked."""
        return await trio.to_thread.run_sync(self._save, record, limiter=self._limiter)

    async def forget(self, prefix: str) -> None:
        """Remove the records of sessions whose keys begin with `prefix`."""
        await trio.to_thread.run_sync(
            self._remove, lambda record: record.key.startswith(prefix), limiter=self._limiter
        )

    async def sweep(self) -> None:
        """Remove records that are older than the retention time."""
        await trio.to_thread.run_sync(
            self._remove, lambda record: not is_kept(record, time.time()), limiter=self._limiter
        )

    def _file(self, key: SessionKey) -> StateFile[SessionRecord]:
        # A digest, because a key may contain characters that a file name must not.
        return _file(self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.session")

    def _load(self, key: SessionKey) -> SessionRecord | None:
        file = self._file(key)
        try:
            record = file.decoded()
        except FileNotFoundError:
            return None
        except (OSError, MalformedError) as error:
            if isinstance(error, OSError) and error.errno in _SHORTAGES:
                raise
            log.warning("state_unreadable", file=file.path.name, reason=str(error))
            return None
        if record.key != key or not is_kept(record, time.time()):
            return None
        return record

    def _save(self, record: SessionRecord) -> bool:
        file = self._file(record.key)
        try:
            if has_anything(record):
                file.write(record)
            else:
                file.path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("session_not_saved", session=record.key, reason=str(error))
            return False
        return True

    def _remove(self, is_over: Callable[[SessionRecord], bool]) -> None:
        """Remove the records for which `is_over` is true, and files that are not records."""
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                # A file that cannot be read may be readable later: there may be no free descriptor.
                with contextlib.suppress(OSError):
                    if path.suffix != ".session" or _is_damaged_or(path, is_over):
                        path.unlink(missing_ok=True)


class _WithDigest:
    """Encodes a record of a session with a digest of its bytes at the end, and decodes it."""

    def encode(self, record: SessionRecord, /) -> bytes:
        """Return a record as the bytes of its file."""
        with_room = msgspec.structs.replace(record, digest="0" * _DIGEST_LENGTH)
        content = _RECORD.encode(with_room)[:-_DIGEST_LENGTH]
        return content + _digest(content)

    def decode(self, data: bytes, /) -> SessionRecord:
        """Return the record in a file.

        Raises:
            MalformedError: the data are not a record, or were changed since they were written.
        """
        record = _RECORD.decode(data)
        if record.digest and data[-_DIGEST_LENGTH:] != _digest(data[:-_DIGEST_LENGTH]):
            raise MalformedError("it was changed or damaged: its digest is wrong")
        return msgspec.structs.replace(record, digest="")


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH].encode()


def _is_damaged_or(path: Path, is_over: Callable[[SessionRecord], bool]) -> bool:
    try:
        return is_over(_file(path).decoded())
    except MalformedError as error:
        log.warning("state_unreadable", file=path.name, reason=str(error))
        return True


def _file(path: Path) -> StateFile[SessionRecord]:
    return StateFile(path, _WithDigest(), most_bytes=MOST_BYTES)
