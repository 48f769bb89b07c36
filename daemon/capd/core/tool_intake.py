"""Which entries of a server's `tools/list` are tools that can be passed on (80, B4 and B8)."""

import re
from collections.abc import Iterable

import msgspec

from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ToolDefinition, ToolName

MOST_TOOLS = 1000
MOST_PAGES = 50

# The MCP specification's own character set for tool names.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class _Named(msgspec.Struct):
    name: str


_NAMED: JsonCodec[_Named] = JsonCodec(_Named)


def accepted(entries: Iterable[bytes]) -> tuple[list[ToolDefinition], list[str]]:
    """Return the usable tools, each name once, and one line for each entry that is left out."""
    tools: dict[ToolName, ToolDefinition] = {}
    left_out: list[str] = []
    for entry in entries:
        try:
            name = _NAMED.decode(entry).name
        except MalformedError as error:
            left_out.append(f"an entry is not a tool: {error}")
            continue
        if not _NAME.fullmatch(name):
            left_out.append(f"{name[:64]!r} is not a tool name that clients accept")
        elif name in tools:
            left_out.append(f"{name!r} is listed twice; the first one counts")
        elif len(tools) == MOST_TOOLS:
            left_out.append(f"{name!r} is beyond the first {MOST_TOOLS} tools")
        else:
            tools[ToolName(name)] = ToolDefinition(ToolName(name), entry)
    return list(tools.values()), left_out
