"""What came of memories, in one file of the state folder.

Written whole or not at all, 0600. A file that cannot be read is set aside under another name, and
a fresh one begun.
"""

import contextlib
import os
from pathlib import Path

import msgspec
import structlog
import trio

from capd.adapters.regular_files import opened_regular, read_up_to
from capd.core.memories.outcomes import Outcome, Outcomes
from capd_protos.codec import JsonCodec, MalformedError

MOST_BYTES = 4 << 20
VERSION = 1

log = structlog.get_logger()


class _Document(msgspec.Struct, frozen=True):
    version: int
    memories: dict[str, Outcome]


_DOCUMENT: JsonCodec[_Document] = JsonCodec(_Document)


class MemoryOutcomeFile:
    """The file of one daemon."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One write at a time: the later one must win.
        self._limiter = trio.CapacityLimiter(1)

    async def load(self) -> Outcomes:
        """Return what was written down last."""
        return await trio.to_thread.run_sync(self._load, limiter=self._limiter)

    async def save(self, outcomes: Outcomes) -> None:
        """Write it down."""
        counts = dict(outcomes.by_name)
        await trio.to_thread.run_sync(self._save, counts, limiter=self._limiter)

    def _load(self) -> Outcomes:
        try:
            with opened_regular(self._path, os.O_NOFOLLOW) as (descriptor, _):
                document = _DOCUMENT.decode(read_up_to(descriptor, MOST_BYTES))
        except FileNotFoundError:
            return Outcomes()
        except (OSError, MalformedError) as error:
            self._set_aside(str(error))
            return Outcomes()
        if document.version != VERSION:
            self._set_aside(f"version {document.version}, this daemon knows {VERSION}")
            return Outcomes()
        return Outcomes(dict(document.memories))

    def _set_aside(self, why: str) -> None:
        bad = self._path.with_name(self._path.name + ".bad")
        with contextlib.suppress(OSError):
            self._path.replace(bad)
        log.warning("memory_outcomes_set_aside", file=bad.name, reason=why)

    def _save(self, counts: dict[str, Outcome]) -> None:
        partial = self._path.with_suffix(".partial")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
                file.write(_DOCUMENT.encode(_Document(VERSION, counts)))
            partial.replace(self._path)
        except OSError as error:
            log.warning("memory_outcomes_not_saved", file=self._path.name, reason=str(error))
