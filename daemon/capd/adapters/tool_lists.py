"""Tool lists on disk, so that everything can be searched with no server running.

One file a server identity, written whole or not at all, 0600 in a folder of 0700. The file is a
cache, never an authority: one that is damaged, too large, somebody else's or another server's is
as good as none, and is said once. What a server lists replaces what it listed before.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
import trio

from capd.core.protocol.generations import members_or_none
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.types import ServerIdentity, ServerName, ToolDefinition

MOST_BYTES = 32 << 20
"""As one line of a server may be long; what is larger is not kept."""
MOST_FILES = 2000
_SUFFIX = ".tools"

log = structlog.get_logger()


class ToolList(msgspec.Struct, frozen=True):
    """What a server listed, and when."""

    identity: ServerIdentity
    name: ServerName
    server_version: str
    """As the server gives it in its handshake; empty where it does not."""
    listed_at: float
    """Seconds since the epoch."""
    tools: list[ToolDefinition]


_LIST: MsgpackCodec[ToolList] = MsgpackCodec(ToolList)


class ToolLists:
    """The lists of all servers that were ever asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # One write at a time: of two lists of one server the later one must win.
        self._limiter = trio.CapacityLimiter(1)
        self._said: set[str] = set()

    async def keep(
        self,
        identity: ServerIdentity,
        name: ServerName,
        server_version: str,
        tools: list[ToolDefinition],
    ) -> None:
        """Keep what a server lists at this moment."""
        listed = ToolList(identity, name, server_version, time.time(), list(tools))
        await trio.to_thread.run_sync(self._save, listed, limiter=self._limiter)

    async def load(self, identity: ServerIdentity) -> ToolList | None:
        """Return what a server listed last, if it is known."""
        return await trio.to_thread.run_sync(self._load, identity, limiter=self._limiter)

    async def load_all(self, identities: list[ServerIdentity]) -> dict[ServerIdentity, ToolList]:
        """Return what these servers listed last, without those that are not known."""
        return await trio.to_thread.run_sync(self._load_all, identities, limiter=self._limiter)

    def _path(self, identity: ServerIdentity) -> Path | None:
        # It is 16 hex digits; nothing else may become a path.
        is_hex = identity.isascii() and identity.isalnum()
        return self._folder / f"{identity}{_SUFFIX}" if is_hex else None

    def _load_all(self, identities: list[ServerIdentity]) -> dict[ServerIdentity, ToolList]:
        found = {identity: self._load(identity) for identity in identities}
        return {identity: listed for identity, listed in found.items() if listed is not None}

    def _load(self, identity: ServerIdentity) -> ToolList | None:
        path = self._path(identity)
        if path is None:
            return None
        try:
            listed = _LIST.decode(_private_bytes(path))
        except FileNotFoundError:
            return None
        except (OSError, MalformedError) as error:
            self._say(path, str(error))
            return None
        if listed.identity != identity:
            self._say(path, "it is another server's")
            return None
        if not all(members_or_none(tool.json) for tool in listed.tools):
            self._say(path, "it has a definition that is no JSON object")
            return None
        return listed

    def _say(self, path: Path, reason: str) -> None:
        if path.name not in self._said:
            self._said.add(path.name)
            log.warning("tool_list_unreadable", file=path.name, reason=reason)

    def _save(self, listed: ToolList) -> None:
        path = self._path(listed.identity)
        if path is None:
            return
        content = _LIST.encode(listed)
        if len(content) > MOST_BYTES:
            reason = f"its {len(content)} bytes are too many"
            log.warning("tool_list_not_saved", server=listed.name, reason=reason)
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # One name a server: what a crash leaves behind, the next save removes.
            partial = path.with_suffix(".partial")
            partial.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(partial, flags, 0o600), "wb") as file:
                file.write(content)
            partial.replace(path)
            self._said.discard(path.name)
            self._sweep()
        except OSError as error:
            log.warning("tool_list_not_saved", server=listed.name, reason=str(error))

    def _sweep(self) -> None:
        """Keep the folder bounded: definitions change, and leave their lists behind."""
        files = [path for path in self._folder.iterdir() if path.suffix == _SUFFIX]
        if len(files) <= MOST_FILES:
            return
        for path in sorted(files, key=lambda path: path.stat().st_mtime)[:-MOST_FILES]:
            with suppress(OSError):
                path.unlink()


def _private_bytes(path: Path) -> bytes:
    """Return the content of a regular file that only its owner can write."""
    # Non-blocking: opening a FIFO must not wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError("somebody else can write it")
        if status.st_size > MOST_BYTES:
            raise OSError("it is too large")
        return file.read(MOST_BYTES)
