"""Saves the triggers that come from servers' first tool lists, in one file of the state folder.

A trigger is a phrase: a message that resembles one may switch the trigger's capability on.

An unusable file is renamed and kept. The triggers are then taken from the next list of each server.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from capd.adapters.state_file import DocumentFile
from capd_protos.types import ServerIdentity

MOST_BYTES = 4 << 20
VERSION = 1


class _Document(msgspec.Struct, frozen=True):
    version: int
    servers: dict[ServerIdentity, tuple[str, ...]]


class ToolTriggerFile(DocumentFile[_Document, Mapping[ServerIdentity, tuple[str, ...]]]):
    """The file with the triggers that each server's first tool list gave."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _Document, version=VERSION, most_bytes=MOST_BYTES, is_private=True)

    def _value(self, document: _Document | None) -> dict[ServerIdentity, tuple[str, ...]]:
        return document.servers if document is not None else {}

    def _document(self, value: Mapping[ServerIdentity, tuple[str, ...]]) -> _Document:
        return _Document(VERSION, dict(value))
