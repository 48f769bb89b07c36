"""Saves whether clients list their tools again after a change, in one file of the state folder.

An unusable file is set aside, and a new one is started: everything can be observed again.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from capd.adapters.state_file import DocumentFile
from capd.core.sessions.habits import Habit

MOST_BYTES = 1 << 20
VERSION = 1


class _Document(msgspec.Struct, frozen=True):
    version: int
    clients: list[Habit]


class HabitFile(DocumentFile[_Document, Sequence[Habit]]):
    """The file that says of each client whether it lists its tools again after a change."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _Document, version=VERSION, most_bytes=MOST_BYTES)

    def _value(self, document: _Document | None) -> list[Habit]:
        return document.clients if document is not None else []

    def _document(self, value: Sequence[Habit]) -> _Document:
        return _Document(VERSION, list(value))
