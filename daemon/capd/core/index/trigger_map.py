"""Tells a model what is installed, by verb, at the start of a conversation.

This is the first of the index's three levels (docs/memories.md).

query: database-postgres, database-sqlite
deploy: kubernetes

The same entries give the same bytes, so that a provider's prompt cache stays valid.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from capd.core.index.token_costs import TokenCosts, one_line
from capd_protos.index import IndexEntry

MAP_TOKENS = 150
HEAD = "Installed (verb: capabilities):"
_TRIED_ON = 12
"""After this many names in a row that do not fit, all further ones are left out."""


@dataclass(frozen=True, slots=True)
class TriggerMap:
    """A text that lists capabilities by verb, and how many it lists and leaves out."""

    text: str = ""
    listed: int = 0
    left_out: int = 0
    tokens: int = 0


def trigger_map(
    entries: Iterable[IndexEntry], costs: TokenCosts, room: int = MAP_TOKENS
) -> TriggerMap:
    """Return the text that lists capabilities by verb, of at most `room` tokens.

    `entries` are in order of importance: the first ones are listed if not all fit.
    """
    by_verb: dict[str, list[str]] = {}
    text, listed, left_out, in_vain = "", 0, 0, 0
    for entry in entries:
        if in_vain >= _TRIED_ON:
            left_out += 1
            continue
        verb, name = one_line(entry.verb), one_line(entry.id.name)
        by_verb.setdefault(verb, []).append(name)
        longer = _written(by_verb)
        if costs.of(longer) <= room:
            text, listed, in_vain = longer, listed + 1, 0
            continue
        left_out, in_vain = left_out + 1, in_vain + 1
        by_verb[verb].pop()
        if not by_verb[verb]:
            del by_verb[verb]
    return TriggerMap(text, listed, left_out, costs.of(text))


def _written(by_verb: dict[str, list[str]]) -> str:
    lines = (f"{verb}: {', '.join(names)}" for verb, names in by_verb.items())
    return "\n".join([HEAD, *lines])
