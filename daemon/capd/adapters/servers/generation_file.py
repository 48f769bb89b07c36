"""Which servers answer in the stateless generation, in one file of the cache folder.

A cache, never an authority: a file that cannot be read is as good as none, and a server that
speaks another generation by now is met as what it is.
"""

from collections.abc import Mapping
from pathlib import Path

from capd.adapters.state_file import StateFile
from capd_protos.codec import JsonCodec
from capd_protos.types import ServerIdentity

MOST_BYTES = 1 << 20

Generations = dict[ServerIdentity, str]


class GenerationFile:
    """The file of one daemon."""

    def __init__(self, path: Path) -> None:
        self._file: StateFile[Generations] = StateFile(
            path, JsonCodec(Generations), most_bytes=MOST_BYTES
        )

    async def load(self) -> Generations:
        """Return what was written down last, by server."""
        return await self._file.load() or {}

    async def save(self, generations: Mapping[ServerIdentity, str]) -> bool:
        """Write it down; tell whether it is kept."""
        return await self._file.save(dict(generations))
