"""capd's own tools, and which of them a session offers.

`actors/session/own_calls` answers calls of these tools. They come first on every client's list, in
the order of `OWN_TOOLS`, and are never evicted. If a client adds no prefix to tool names, capd adds
`capd_`, so that the names differ from those of other programs' tools. The wire name of an own tool
is its name on the client's list, `capd_` included.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from capd.core.results import reading
from capd.core.scripts import script_tool
from capd.core.sessions import own_tools, search_tools
from capd.core.sessions.surface import renamed
from capd_protos.types import WireName

PREFIX = "capd_"


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A tool that capd answers itself."""

    name: WireName
    definition: bytes
    """Its entry in `tools/list`."""
    is_for_deferred: bool = False
    """Whether the tool is offered only if there are more tools than the list shows."""
    is_for_results: bool = False
    """Whether the tool is offered only if long results are stored."""
    is_for_consent: bool = False
    """Whether the tool is offered only to a client that asks its user about each tool by name."""


OWN_TOOLS = (
    OwnTool(own_tools.CAPABILITY, own_tools.DEFINITION),
    OwnTool(search_tools.TOOL_SEARCH, search_tools.SEARCH_DEFINITION, is_for_deferred=True),
    OwnTool(search_tools.TOOL_CALL, search_tools.CALL_DEFINITION, is_for_deferred=True),
    OwnTool(
        search_tools.TOOL_CALL_READONLY,
        search_tools.CALL_READONLY_DEFINITION,
        is_for_deferred=True,
        is_for_consent=True,
    ),
    OwnTool(reading.RESULT_READ, reading.DEFINITION, is_for_results=True),
)


SCRIPT_TOOL = OwnTool(script_tool.SCRIPT_RUN, script_tool.DEFINITION)
"""The tool that runs scripts. It is listed only if `[scripts] listed` is true; otherwise models
call it through `tool_call`, and the instructions and searches name it."""


@lru_cache(maxsize=64)
def offered(
    *,
    has_deferred: bool = True,
    is_prefixed: bool = False,
    has_results: bool = True,
    asks_per_tool: bool = False,
    has_scripts: bool = False,
) -> Mapping[WireName, OwnTool]:
    """Return the tools of capd's own that a session offers, by the names for its client.

    Sessions with the same arguments share one mapping.

    `has_deferred` says that there are more tools than the list shows, `has_results` that long
    results are stored, `asks_per_tool` that the client asks its user about each tool by name.
    `is_prefixed` adds `capd_` to the names. `has_scripts` adds the tool for scripts.
    """
    prefix = PREFIX if is_prefixed else ""
    return {
        WireName(prefix + own.name): own
        for own in (*OWN_TOOLS, *([SCRIPT_TOOL] if has_scripts else []))
        if (has_deferred or not own.is_for_deferred)
        and (has_results or not own.is_for_results)
        and (asks_per_tool or not own.is_for_consent)
    }


def definitions(own: Iterable[tuple[WireName, OwnTool]]) -> list[tuple[WireName, bytes]]:
    """Return the entries of `tools/list` for capd's own tools, each with its name there."""
    return [(name, renamed(each.definition, name)) for name, each in own]


def schema_of(own: OwnTool) -> bytes:
    """Return the JSON Schema of the arguments of one of capd's own tools."""
    members = msgspec.json.decode(own.definition, type=dict[str, msgspec.Raw])
    return bytes(members["inputSchema"])
