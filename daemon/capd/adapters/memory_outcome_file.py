"""Saves the effects of memories, in one file of the state folder.

The effects of a memory are how often it was delivered, refused a call, and was followed by success.
An unusable file is set aside, and a new one is started.
"""

from pathlib import Path

import msgspec

from capd.adapters.state_file import DocumentFile
from capd.core.memories.outcomes import MemoryOutcome, Outcomes

MOST_BYTES = 4 << 20
VERSION = 1


class _Document(msgspec.Struct, frozen=True):
    version: int
    memories: dict[str, MemoryOutcome]


class MemoryOutcomeFile(DocumentFile[_Document, Outcomes]):
    """The file with the counts of each memory's effects."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _Document, version=VERSION, most_bytes=MOST_BYTES)

    def _value(self, document: _Document | None) -> Outcomes:
        return Outcomes(dict(document.memories)) if document is not None else Outcomes()

    def _document(self, value: Outcomes) -> _Document:
        return _Document(VERSION, dict(value.by_name))
