"""Saves what routing has learnt from use, in one file of the state folder for the user alone.

The file contains no text of a message. An unusable file is renamed and kept, and learning starts
again.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from capd.adapters.state_file import DocumentFile
from capd_protos.types import RoutingLabel

MOST_BYTES = 1 << 20
VERSION = 1


class _Document(msgspec.Struct, frozen=True):
    version: int
    labels: list[RoutingLabel]


class LearningFile(DocumentFile[_Document, Sequence[RoutingLabel]]):
    """The file with the labels from which routing learns."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _Document, version=VERSION, most_bytes=MOST_BYTES, is_private=True)

    def _value(self, document: _Document | None) -> list[RoutingLabel]:
        return document.labels if document is not None else []

    def _document(self, value: Sequence[RoutingLabel]) -> _Document:
        return _Document(VERSION, list(value))
