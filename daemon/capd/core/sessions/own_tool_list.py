"""The list of capd's own tools: each is a line here, and a method of `actors/session/own_calls`.

They are pinned: first on every list, in this order, and never evicted. If a client adds no prefix
of its own, their names get one, so that they differ from those of other programs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

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
    """Whether it is useful only if there are more tools than the list shows."""
    is_for_results: bool = False
    """Whether it is useful only if long results are stored."""
    is_for_consent: bool = False
    """Whether it is useful only in a client that asks its user about each tool by name."""


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
"""Listed where `[scripts] listed` says so; else called by `tool_call`, as a search says."""


def offered(
    *,
    has_deferred: bool = True,
    is_prefixed: bool = False,
    has_results: bool = True,
    asks_per_tool: bool = False,
    has_scripts: bool = False,
) -> dict[WireName, OwnTool]:
    """Return the own tools of a session by the names that its client sees."""
    prefix = PREFIX if is_prefixed else ""
    return {
        WireName(prefix + own.name): own
        for own in (*OWN_TOOLS, *([SCRIPT_TOOL] if has_scripts else []))
        if (has_deferred or not own.is_for_deferred)
        and (has_results or not own.is_for_results)
        and (asks_per_tool or not own.is_for_consent)
    }


def definitions(own: Iterable[tuple[WireName, OwnTool]]) -> list[tuple[WireName, bytes]]:
    """Return the listed definitions of own tools."""
    return [(name, renamed(each.definition, name)) for name, each in own]


def schema_of(own: OwnTool) -> bytes:
    """Return the input schema of an own tool."""
    members = msgspec.json.decode(own.definition, type=dict[str, msgspec.Raw])
    return bytes(members["inputSchema"])
