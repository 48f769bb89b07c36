"""Saves the generation of MCP that each server speaks, in one file of the cache folder.

The generations are the handshake one and the stateless one (`core/protocol/generations`). The file
is only a cache. If it cannot be read, it counts as empty. If a server has changed its generation
since, the next handshake notices that.
"""

from collections.abc import Mapping
from pathlib import Path

from capd.adapters.state_file import StateFile
from capd_protos.codec import JsonCodec
from capd_protos.types import ServerIdentity

MOST_BYTES = 1 << 20

Generations = dict[ServerIdentity, str]


class GenerationFile:
    """The file (`eras.json`) with the protocol generations that servers speak."""

    def __init__(self, path: Path) -> None:
        self._file: StateFile[Generations] = StateFile(
            path, JsonCodec(Generations), most_bytes=MOST_BYTES
        )

    async def load(self) -> Generations:
        """Return the saved generation of MCP of each server."""
        return await self._file.load() or {}

    async def save(self, generations: Mapping[ServerIdentity, str]) -> bool:
        """Save the generation of MCP of each server; return whether that worked."""
        return await self._file.save(dict(generations))
