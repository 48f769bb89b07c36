"""Saves permanent approvals of tools, in one file of the state folder.

An unusable file approves nothing: it is set aside, and a person is asked again.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from capd.adapters.state_file import versioned_file
from capd.core.sessions.approval import Lasting, ToolKey
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


class ApprovalFile:
    """The file of permanent approvals."""

    def __init__(self, path: Path) -> None:
        self._file = versioned_file(
            path, _Document, version=VERSION, most_bytes=MOST_BYTES, is_private=True
        )

    @property
    def problem(self) -> str:
        """Why an earlier daemon's file cannot be used; empty if it can."""
        return self._file.problem

    async def load(self) -> list[Lasting]:
        """Return the saved approvals."""
        document = await self._file.load()
        tools = document.tools if document is not None else []
        return [Lasting(ToolKey(each.identity, each.tool), each.server) for each in tools]

    async def save(self, lasting: Sequence[Lasting]) -> bool:
        """Save the approvals; return whether that worked."""
        tools = [_Tool(each.server, each.key.server, each.key.tool) for each in lasting]
        return await self._file.save(_Document(VERSION, tools))
