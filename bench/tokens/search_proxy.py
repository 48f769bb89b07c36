"""A plain search-and-call proxy: two tools for all others, and a search that gives whole schemas.

It ranks by words (BM25, as capd does where it has no model), keeps nothing of a conversation, and
cuts nothing. Its descriptions are as short as they can be.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bench.tokens.day import Call
from bench.tokens.mcp_client import McpClient, Tool
from bench.tokens.toolboxes import Aggregator, Result, offered

from capd.core.tools.tool_search import ToolIndex
from capd.core.tools.tool_text import described
from capd_protos.types import ToolName, WireName

HITS = 5
_SEARCH: Tool = {
    "name": "search_tools",
    "description": "Search all tools by what they do. Returns names, descriptions and schemas.",
    "inputSchema": {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    },
}
_CALL: Tool = {
    "name": "call_tool",
    "description": "Call a tool that search_tools has returned.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
    },
}


class SearchProxy:
    """The two tools, in front of the same servers as the aggregator."""

    system = ""
    search = "search_tools"
    caller = "call_tool"
    takes_queries = False

    def __init__(self, servers: Mapping[str, McpClient]) -> None:
        self._all = Aggregator(servers)
        self._by_name = {str(tool["name"]): tool for tool in self._all.listed()}
        self._index = ToolIndex(
            described(
                tool, ToolName(name.partition("__")[2]), name.partition("__")[0], WireName(name)
            )
            for name, tool in self._by_name.items()
        )

    def turn(self, text: str) -> str:
        del text
        return ""

    def listed(self) -> Sequence[Tool]:
        return (_SEARCH, _CALL)

    def name(self, call: Call) -> str:
        return call.tool.replace(":", "__")

    def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        if name == self.caller:
            return self._all.call(str(arguments["name"]), arguments["arguments"])
        hits = self._index.ranked(str(arguments["query"]), HITS).hits
        found = "\n".join(offered(self._by_name[hit.tool.wire_name]) for hit in hits)
        return {"content": [{"type": "text", "text": found or "No tool fits."}]}

    def close(self) -> None:
        """Leave the servers running for the next conversation."""
