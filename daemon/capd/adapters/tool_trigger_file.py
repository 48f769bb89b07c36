"""Saves the triggers that first tool lists gave, in one file of the state folder.

An unusable file is set aside. The triggers are then taken from the next list of each server.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from capd.adapters.state_file import versioned_file
from capd_protos.types import ServerIdentity

MOST_BYTES = 4 << 20
VERSION = 1


class _Document(msgspec.Struct, frozen=True):
    version: int
    servers: dict[ServerIdentity, tuple[str, ...]]


class ToolTriggerFile:
    """The file of one daemon."""

    def __init__(self, path: Path) -> None:
        self._file = versioned_file(
            path, _Document, version=VERSION, most_bytes=MOST_BYTES, is_private=True
        )

    async def load(self) -> dict[ServerIdentity, tuple[str, ...]]:
        """Return the saved triggers of each server."""
        document = await self._file.load()
        return document.servers if document is not None else {}

    async def save(self, servers: Mapping[ServerIdentity, tuple[str, ...]]) -> bool:
        """Save the triggers of all servers; return whether that worked."""
        return await self._file.save(_Document(VERSION, dict(servers)))
