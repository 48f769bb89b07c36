"""Which servers answer in the stateless generation, in one file of the cache folder.

A cache, never an authority: a file that cannot be read is as good as none, and a server that
speaks another generation by now is met as what it is. Written whole or not at all, 0600.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import structlog
import trio

from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ServerIdentity

MOST_BYTES = 1 << 20

Generations = dict[ServerIdentity, str]
_GENERATIONS: JsonCodec[Generations] = JsonCodec(Generations)

log = structlog.get_logger()


class GenerationFile:
    """The file of one daemon."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One write at a time: the later one must win.
        self._limiter = trio.CapacityLimiter(1)

    async def load(self) -> Generations:
        """Return what was written down last, by server."""
        return await trio.to_thread.run_sync(self._load, limiter=self._limiter)

    async def save(self, generations: Mapping[ServerIdentity, str]) -> None:
        """Write it down."""
        await trio.to_thread.run_sync(self._save, dict(generations), limiter=self._limiter)

    def _load(self) -> Generations:
        try:
            # Non-blocking: opening a FIFO must not wait for a writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags), "rb") as file:
                return _GENERATIONS.decode(file.read(MOST_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, MalformedError) as error:
            log.warning("eras_unreadable", file=self._path.name, reason=str(error))
            return {}

    def _save(self, generations: Generations) -> None:
        partial = self._path.with_suffix(".partial")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
                file.write(_GENERATIONS.encode(generations))
            partial.replace(self._path)
        except OSError as error:
            log.warning("eras_not_saved", file=self._path.name, reason=str(error))
