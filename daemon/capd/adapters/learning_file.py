"""What use has taught routing, in one file of the state folder, for nobody but the user.

It has no text of a message. A file that cannot be read is set aside, and learning begins anew.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from capd.adapters.state_file import versioned_file
from capd_protos.types import RoutingLabel

MOST_BYTES = 1 << 20
VERSION = 1


class _Document(msgspec.Struct, frozen=True):
    version: int
    labels: list[RoutingLabel]


class LearningFile:
    """The file of one daemon."""

    def __init__(self, path: Path) -> None:
        self._file = versioned_file(
            path, _Document, version=VERSION, most_bytes=MOST_BYTES, is_private=True
        )

    @property
    def problem(self) -> str:
        """Why an earlier daemon's file is not used; empty where it is."""
        return self._file.problem

    async def load(self) -> list[RoutingLabel]:
        """Return what was written down last."""
        document = await self._file.load()
        return document.labels if document is not None else []

    async def save(self, labels: Sequence[RoutingLabel]) -> bool:
        """Write it down; tell whether it is kept."""
        return await self._file.save(_Document(VERSION, list(labels)))
