"""Saves tool lists on disk, so that all tools can be searched while no server runs.

There is one file for each server identity (a hash of the server's definition), written whole or not
at all, with mode 0600 in a folder of mode 0700. The files are only a cache: one that is damaged,
too large, not private, or another server's counts as missing, and is reported once.
"""

import time
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
import trio

from capd.adapters.state_file import StateFile
from capd.core.protocol.generations import members_or_none
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.types import ServerIdentity, ServerName, ToolDefinition

MOST_BYTES = 32 << 20
"""The most bytes of one file; a larger list is not saved."""
MOST_FILES = 2000
_SUFFIX = ".tools"

log = structlog.get_logger()


class ToolList(msgspec.Struct, frozen=True):
    """The tools that a server listed, and when it listed them."""

    identity: ServerIdentity
    name: ServerName
    server_version: str
    """The server's version, from its handshake; empty if it gives none."""
    listed_at: float
    """Seconds since the epoch."""
    tools: list[ToolDefinition]


_LIST: MsgpackCodec[ToolList] = MsgpackCodec(ToolList)


class ToolLists:
    """The saved lists of tools of all servers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # One write at a time, so that the later list of a server is not overwritten.
        self._limiter = trio.CapacityLimiter(1)
        self._reported: set[str] = set()

    async def keep(
        self,
        identity: ServerIdentity,
        name: ServerName,
        server_version: str,
        tools: list[ToolDefinition],
    ) -> None:
        """Save the list of tools that the server `name` has at present, replacing its earlier one.

        `identity` is the hash of the server's definition. A failure is logged.
        """
        listed = ToolList(identity, name, server_version, time.time(), list(tools))
        await trio.to_thread.run_sync(self._save, listed, limiter=self._limiter)

    async def load(self, identity: ServerIdentity) -> ToolList | None:
        """Return the last list of tools of the server `identity`; None if there is none."""
        return await trio.to_thread.run_sync(self._load, identity, limiter=self._limiter)

    async def load_all(self, identities: list[ServerIdentity]) -> dict[ServerIdentity, ToolList]:
        """Return the last list of tools of each server; servers without one are left out."""
        return await trio.to_thread.run_sync(self._load_all, identities, limiter=self._limiter)

    def _file(self, identity: ServerIdentity) -> StateFile[ToolList] | None:
        # An identity is 16 hex digits. The check keeps any other text out of the path.
        if not (identity.isascii() and identity.isalnum()):
            return None

        def refuse(listed: ToolList) -> str:
            if listed.identity != identity:
                return "it is another server's"
            if not all(members_or_none(tool.json) for tool in listed.tools):
                return "it has a definition that is not a JSON object"
            return ""

        path = self._folder / f"{identity}{_SUFFIX}"
        return StateFile(path, _LIST, most_bytes=MOST_BYTES, refuse=refuse, is_private=True)

    def _load_all(self, identities: list[ServerIdentity]) -> dict[ServerIdentity, ToolList]:
        found = {identity: self._load(identity) for identity in identities}
        return {identity: listed for identity, listed in found.items() if listed is not None}

    def _load(self, identity: ServerIdentity) -> ToolList | None:
        file = self._file(identity)
        if file is None:
            return None
        try:
            return file.decoded()
        except FileNotFoundError:
            return None
        except (OSError, MalformedError) as error:
            # Logged once, because the lists are read often.
            if file.path.name not in self._reported:
                self._reported.add(file.path.name)
                log.warning("tool_list_unreadable", file=file.path.name, reason=str(error))
            return None

    def _save(self, listed: ToolList) -> None:
        file = self._file(listed.identity)
        if file is None:
            return
        try:
            file.write(listed)
            self._reported.discard(file.path.name)
            self._sweep()
        except OSError as error:
            log.warning("tool_list_not_saved", server=listed.name, reason=str(error))

    def _sweep(self) -> None:
        """Delete the oldest files if there are too many.

        A server whose definition changes gets a new identity, and leaves its old file behind.
        """
        files = [path for path in self._folder.iterdir() if path.suffix == _SUFFIX]
        if len(files) <= MOST_FILES:
            return
        for path in sorted(files, key=lambda path: path.stat().st_mtime)[:-MOST_FILES]:
            with suppress(OSError):
                path.unlink()
