"""What routing has learnt from use, in one file of the state folder that only the user can read.

It contains no text of a message. An unusable file is set aside, and learning starts again.
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
        """Why an earlier daemon's file cannot be used; empty if it can."""
        return self._file.problem

    async def load(self) -> list[RoutingLabel]:
        """Return the saved labels."""
        document = await self._file.load()
        return document.labels if document is not None else []

    async def save(self, labels: Sequence[RoutingLabel]) -> bool:
        """Save the labels; return whether that worked."""
        return await self._file.save(_Document(VERSION, list(labels)))
