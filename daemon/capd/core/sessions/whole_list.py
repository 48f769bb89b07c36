"""Decides whether a session lists every installed tool, because that costs less than searching.

capd's own tools take about 700 tokens of every prompt, a turn's text about tools is added, and a
search is one more request. Listing a few tools costs less. So mode `auto` lists all tools and none
of capd's own, as a plain aggregator does, if all of these hold:

- every server has listed its tools, so that there is nothing to find,
- no skill is installed, because using a skill needs one of capd's own tools,
- the client's list has room for all of them, and
- what a model reads of their definitions has at most `WHOLE_BYTES`.

capd's own tools are added to that list when they become useful: once there are more tools than the
list shows, or once a result was too long and has to be read in parts.
"""

from dataclasses import dataclass

import msgspec

WHOLE_BYTES = 7_000
"""The most bytes of definitions that a model reads of all tools together, about 1,800 tokens
(bench/tokens, docs/tokens.md)."""
_READ = ("name", "description", "inputSchema")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class ToolTotals:
    """How many tools a session could be shown, how many bytes they have, and what is known."""

    tools: int
    model_bytes: int
    """The bytes of their definitions that a model reads."""
    is_all: bool
    """Whether every server has listed its tools."""
    skills: int = 0
    """How many skills are installed."""


def is_listed_whole(totals: ToolTotals, tool_limit: int) -> bool:
    """Tell whether a session lists every tool; its client accepts at most `tool_limit` tools."""
    return (
        totals.is_all
        and not totals.skills
        and 0 < totals.tools <= tool_limit
        and totals.model_bytes <= WHOLE_BYTES
    )


def model_bytes(definition: bytes) -> int:
    """Return how many bytes of a tool's JSON reach a model: name, description, input schema."""
    try:
        members = _members.decode(definition)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return len(definition)
    return sum(len(bytes(members[each])) for each in _READ if each in members)
