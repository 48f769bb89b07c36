"""Toolboxes: the ways in which a model gets at the tools of ten servers.

A toolbox has a list of tools, perhaps text for the system prompt and for each turn, and knows its
own name for each server's tool. `scripted_model` decides what the model does.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bench.tokens.day import Call
from bench.tokens.mcp_client import McpClient, Tool

Result = dict[str, Any]


class Toolbox(Protocol):
    """The tools of all servers, as one conversation has them."""

    @property
    def system(self) -> str:
        """The text that this toolbox adds to the system prompt."""
        ...

    def turn(self, text: str) -> str:
        """Process the user's message; return the extra context for the model."""
        ...

    def listed(self) -> Sequence[Tool]:
        """Return the tools that the next model request has."""
        ...

    def name(self, call: Call) -> str:
        """Return the name of the call's tool in this toolbox."""
        ...

    @property
    def search(self) -> str:
        """The tool that searches for others; empty if all are listed."""
        ...

    @property
    def caller(self) -> str:
        """The tool that calls tools that are not listed."""
        ...

    @property
    def takes_queries(self) -> bool:
        """Whether the search takes several queries in one call."""
        ...

    def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """Call a listed tool."""
        ...

    def close(self) -> None:
        """End the conversation."""
        ...


def offered(tool: Tool) -> str:
    """Return a tool as a model's API takes it: no title, no annotations, no output schema."""
    sent = {
        "name": tool["name"],
        "description": tool.get("description", ""),
        "input_schema": tool["inputSchema"],
    }
    return json.dumps(sent, ensure_ascii=False, separators=(",", ":"))


def text_of(result: Result) -> str:
    """Return a result as the model gets it."""
    return "\n".join(
        str(block["text"]) if block.get("type") == "text" else f"[{block.get('type')}]"
        for block in result.get("content", [])
    )


class Aggregator:
    """A toolbox that lists every tool of every server, always."""

    system = ""
    search = ""
    caller = ""
    takes_queries = False

    def __init__(self, servers: Mapping[str, McpClient]) -> None:
        self._servers = servers
        self._tools = [
            {**tool, "name": f"{name}__{tool['name']}"}
            for name, server in servers.items()
            for tool in server.tools
        ]

    def turn(self, text: str) -> str:
        del text
        return ""

    def listed(self) -> Sequence[Tool]:
        return self._tools

    def name(self, call: Call) -> str:
        return call.tool.replace(":", "__")

    def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        server, _, tool = name.partition("__")
        return self._servers[server].call(tool, arguments)

    def close(self) -> None:
        """Leave the servers running for the next conversation."""


class CapdSession:
    """One session of a capd daemon, through its shim."""

    search = "tool_search"
    takes_queries = True

    def __init__(self, client: McpClient, *, hands_over_turns: bool) -> None:
        self._client = client
        self._hands_over_turns = hands_over_turns
        client.open()
        self.system = client.instructions
        names = [str(tool["name"]) for tool in client.tools]
        self._prefix = "capd_" if "capd_capability" in names else ""
        self.search = self._own("tool_search", names)
        self.caller = self._own("tool_call", names)

    def turn(self, text: str) -> str:
        said = ""
        if self._hands_over_turns:
            answer = text_of(self._client.call("capd_turn", {"prompt": text}))
            output = json.loads(answer).get("hookSpecificOutput", {})
            said = str(output.get("additionalContext", ""))
        self._client.turn_begins()
        return said

    def listed(self) -> Sequence[Tool]:
        self._client.request_begins()
        return list(self._client.tools)

    def name(self, call: Call) -> str:
        # capd's wire names are in lower case and have no dashes.
        return call.tool.replace(":", "__").replace("-", "_").lower()

    def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        return self._client.call(name, arguments)

    def close(self) -> None:
        self._client.close()

    def _own(self, name: str, names: Sequence[str]) -> str:
        return self._prefix + name if self._prefix + name in names else ""
