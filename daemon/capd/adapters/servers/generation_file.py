"""Saves which servers speak the stateless generation of MCP, in one file of the cache folder.

That generation is the revision 2026-07-28, which has no handshake. The file is only a cache. If it
cannot be read, it counts as empty. If a server has changed its generation since, its next start
notices that.
"""

from collections.abc import Mapping
from pathlib import Path

from capd.adapters.state_file import StateFile
from capd_protos.codec import JsonCodec
from capd_protos.types import ServerIdentity

MOST_BYTES = 1 << 20

Generations = dict[ServerIdentity, str]


class GenerationFile:
    """The file (`eras.json`) with the servers that speak the stateless generation."""

    def __init__(self, path: Path) -> None:
        self._file: StateFile[Generations] = StateFile(
            path, JsonCodec(Generations), most_bytes=MOST_BYTES
        )

    async def load(self) -> Generations:
        """Return what was saved, in the form of `GenerationMemory.written`."""
        return await self._file.load() or {}

    async def save(self, generations: Mapping[ServerIdentity, str]) -> bool:
        """Save what `GenerationMemory.written` returned; return whether that worked."""
        return await self._file.save(dict(generations))
