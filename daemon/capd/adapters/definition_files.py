"""Saves the trusted definitions of servers: one file for each server in the state folder.

The trusted definitions of one server's tools, with the changes since they were trusted, are its
*baseline*.

A file is written whole or not at all, with mode 0600 in a folder of mode 0700, and has its own
checksum. A damaged file is set aside and reported: what was trusted is lost, and the server's next
list must not silently replace it.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
import trio

from capd.adapters.state_file import StateFile
from capd.core.definitions.baseline import Baseline
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.types import ServerIdentity, ServerName

MOST_BYTES = 64 << 20
"""The most bytes of one file: twice the limit of the texts in a baseline, and room for their names.
"""
MOST_FILES = 2000
_SUFFIX = ".definitions"
_DAMAGED = ".damaged"

log = structlog.get_logger()

_BASELINE: MsgpackCodec[Baseline] = MsgpackCodec(Baseline)


class _Checksummed:
    """Encodes and decodes a baseline with a checksum of its bytes in front."""

    def decode(self, data: bytes) -> Baseline:
        """Return the baseline in the bytes of a file.

        Raises:
            MalformedError: the checksum is wrong, or the bytes are no baseline.
        """
        digest, _, text = data.partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != digest:
            raise MalformedError("its checksum is wrong: it was edited or damaged")
        return _BASELINE.decode(text)

    def encode(self, message: Baseline) -> bytes:
        """Return a baseline as the bytes of a file, with their checksum in front."""
        text = _BASELINE.encode(message)
        return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


@dataclass(frozen=True, slots=True)
class LoadedDefinitions:
    """A server's baseline as it was read from its file, and what was wrong with the file."""

    baseline: Baseline | None
    """None if there is no file, or if it cannot be read. A damaged file gives a baseline that is
    marked as lost."""
    problem: str = ""
    """Why the file was set aside or cannot be read; empty if neither."""


class DefinitionFiles:
    """The baselines of trusted definitions, one file for each server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # One thread at a time, so that writes of one server keep their order.
        self._limiter = trio.CapacityLimiter(1)

    async def load(self, identity: ServerIdentity) -> LoadedDefinitions:
        """Return the saved baseline of the server `identity`. A damaged file is set aside."""
        return await trio.to_thread.run_sync(self._load, identity, limiter=self._limiter)

    async def load_all(self) -> list[LoadedDefinitions]:
        """Return the saved baseline of every server."""
        return await trio.to_thread.run_sync(self._load_all, limiter=self._limiter)

    async def save(self, baseline: Baseline) -> str:
        """Save a server's baseline; return why that failed, or an empty text."""
        return await trio.to_thread.run_sync(self._save, baseline, limiter=self._limiter)

    def _file(self, identity: ServerIdentity) -> StateFile[Baseline]:
        # An identity is 16 hex digits. The check keeps any other text out of the path.
        if not (identity.isascii() and identity.isalnum()):
            raise ValueError(f"{identity!r} is not a server's identity")
        return StateFile(
            self._folder / f"{identity}{_SUFFIX}",
            _Checksummed(),
            most_bytes=MOST_BYTES,
            refuse=lambda it: "" if it.identity == identity else "it is another server's",
            is_private=True,
            # Synced to disk: a power failure must not lose what a person has trusted.
            is_durable=True,
        )

    def _load_all(self) -> list[LoadedDefinitions]:
        try:
            names = sorted(path.stem for path in self._folder.iterdir() if path.suffix == _SUFFIX)
        except OSError:
            return []
        return [self._load(ServerIdentity(name)) for name in names if name.isalnum()]

    def _load(self, identity: ServerIdentity) -> LoadedDefinitions:
        file = self._file(identity)
        path = file.path
        try:
            baseline = file.decoded()
        except FileNotFoundError:
            return LoadedDefinitions(None)
        except OSError as error:
            # The next attempt may succeed, so the file stays and is not overwritten.
            reason = error.strerror or str(error)
            log.error("definitions_unreadable", file=path.name, reason=reason)
            return LoadedDefinitions(None, f"{path} cannot be read: {reason}")
        except MalformedError as error:
            log.error("definitions_damaged", file=path.name, reason=str(error))
            lost = Baseline(identity, ServerName(""), is_lost=True)
            with suppress(OSError):
                path.replace(path.with_suffix(_DAMAGED))
            # Save the loss; otherwise the next daemon would treat the server as new, and trust its
            # current definitions.
            self._save(lost)
            return LoadedDefinitions(lost, f"{path} was damaged ({error}) and is set aside")
        return LoadedDefinitions(baseline)

    def _save(self, baseline: Baseline) -> str:
        try:
            self._file(baseline.identity).write(baseline)
            self._sweep()
        except OSError as error:
            reason = error.strerror or str(error)
            log.error("definitions_not_saved", server=baseline.name, reason=reason)
            return reason
        return ""

    def _sweep(self) -> None:
        """Delete the oldest files if there are too many.

        A server whose definition changes gets a new identity, and leaves its old file behind.
        """
        files = [path for path in self._folder.iterdir() if path.suffix in {_SUFFIX, _DAMAGED}]
        if len(files) <= MOST_FILES:
            return
        for path in sorted(files, key=lambda path: path.stat().st_mtime)[:-MOST_FILES]:
            with suppress(OSError):
                path.unlink()
