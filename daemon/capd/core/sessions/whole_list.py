"""Whether a session simply lists every tool: where that costs less than finding them.

capd's own tools stand before every prompt (about 700 tokens), what a turn tells of tools is written
behind it, and a search is a request more. A few tools cost less than that. So `auto` lists them all
and nothing of capd's own, as a plain aggregator does, if

- every server has listed its tools, so that there is nothing to find,
- no skill is installed, which a tool of capd's own would have to use,
- the client's list has room for all of them, and
- a model reads at most `WHOLE_BYTES` of them.

capd's own tools join that list when they become useful: once there is more than is listed, or once
a result was too long and is read by handle.
"""

from dataclasses import dataclass

import msgspec

WHOLE_BYTES = 7_000
"""What a model reads of all tools together: about 1,800 tokens (bench/tokens, docs/tokens.md)."""
_READ = ("name", "description", "inputSchema")
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Catalog:
    """How much there is for a session."""

    tools: int
    model_bytes: int
    """What a model reads of them."""
    is_all: bool
    """Whether every server has listed its tools."""
    skills: int = 0


def is_listed_whole(catalog: Catalog, tool_limit: int) -> bool:
    """Tell whether a session lists everything; `tool_limit` is the client's."""
    return (
        catalog.is_all
        and not catalog.skills
        and 0 < catalog.tools <= tool_limit
        and catalog.model_bytes <= WHOLE_BYTES
    )


def model_bytes(definition: bytes) -> int:
    """Return how many bytes of a tool's JSON a client hands to its model."""
    try:
        members = _members.decode(definition)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return len(definition)
    return sum(len(bytes(members[each])) for each in _READ if each in members)
