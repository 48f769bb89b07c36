"""Saves permanent approvals of tools, in one file of the state folder.

An unusable file approves nothing. It is renamed and kept, and a person is asked again.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from capd.adapters.state_file import DocumentFile
from capd.core.sessions.approval import PermanentApproval, ToolKey
from capd_protos.types import ServerIdentity, ServerName, ToolName

MOST_BYTES = 1 << 20
VERSION = 1


class _Tool(msgspec.Struct, frozen=True):
    server: ServerName
    identity: ServerIdentity
    tool: ToolName


class _Document(msgspec.Struct, frozen=True):
    version: int
    tools: list[_Tool]


class ApprovalFile(DocumentFile[_Document, Sequence[PermanentApproval]]):
    """The file with the tools that a person has approved permanently."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _Document, version=VERSION, most_bytes=MOST_BYTES, is_private=True)

    def _value(self, document: _Document | None) -> list[PermanentApproval]:
        tools = document.tools if document is not None else []
        return [PermanentApproval(ToolKey(each.identity, each.tool), each.server) for each in tools]

    def _document(self, value: Sequence[PermanentApproval]) -> _Document:
        return _Document(
            VERSION, [_Tool(each.server, each.key.server, each.key.tool) for each in value]
        )
