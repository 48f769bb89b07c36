"""The texts of the tool search if it found nothing, or not everything that was asked for.

A model that reads "there is none" gives up. So each text says what was searched, what could not be
searched, and which tools are withheld and why. Tools that policy denies are counted, and named only
if the question itself named them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from capd.core.sessions.own_tools import TRY_DISCOVER, echo
from capd.core.tools.known_tools import lacks
from capd.core.tools.tool_search import RankedTools, Selected, ToolIndex, Withheld
from capd_protos.types import ServerName

WORDS_ALONE = (
    "Only words were compared, because the embedding model is not ready (model_not_ready)."
)
_MOST_NAMED = 5
_MOST_LOCKED = 2


@dataclass(frozen=True, slots=True)
class Searched:
    """How many tools and servers a search covers, and what it leaves out."""

    tools: int
    servers: int
    unlisted: tuple[ServerName, ...] = ()
    """Servers whose tools are not known yet."""
    left_out: int = 0
    """How many tools the index has no room for."""


def searched(index: ToolIndex, unlisted: Sequence[ServerName] = ()) -> Searched:
    """Return how many tools and servers a search of `index` covers, and what it leaves out.

    `unlisted` are servers whose tools are unknown.
    """
    return Searched(len(index.tools), index.servers, tuple(unlisted), index.left_out)


def missed(asked: str, found: RankedTools, where: Searched) -> str:
    """Return the answer to the search `asked`, which has found no tools.

    `where` says what was searched.
    """
    looked = (
        f"Nothing among the {_count(where.tools, 'known tool')} of "
        f"{_count(where.servers, 'server')} fits {echo(asked)}: names, titles, descriptions, "
        "arguments and capabilities were searched."
    )
    parts = [
        looked,
        WORDS_ALONE if found.is_lexical else "",
        withheld(found.withheld),
        f"Near names: {', '.join(found.near)}." if found.near else "",
        gaps(where),
        TRY_DISCOVER,
    ]
    return " ".join(part for part in parts if part)


def unresolved(selected: Selected, where: Searched) -> str:
    """Return the text about names in a search `select:a,b` that gave no tool.

    It is empty if each name gave a tool.
    """
    parts: list[str] = []
    for name, near in selected.unknown.items():
        hint = f" (near names: {', '.join(near)})" if near else ""
        parts.append(f"No known tool has the exact name {echo(name)}{hint}.")
    # The question itself named them, so repeating the names reveals nothing.
    parts.extend(
        f"{w.tool.wire_name} is withheld: {w.restriction.reason}." for w in selected.withheld
    )
    if selected.beyond_cap:
        parts.append(f"Over the limit, left out: {', '.join(selected.beyond_cap)}.")
    if selected.unknown:
        parts.append(gaps(where))
    return " ".join(part for part in parts if part)


def withheld(those: Sequence[Withheld]) -> str:
    """Return the text about tools that fit a search but may not be used; empty if none."""
    if not those:
        return ""
    denied = Counter(w.restriction.reason for w in those if w.restriction.code == "denied")
    others = [
        f"{w.tool.wire_name} ({w.restriction.reason})"
        for w in those
        if w.restriction.code != "denied"
    ]
    named = others[:_MOST_NAMED]
    if len(others) > len(named):
        named.append(f"{len(others) - len(named)} more")
    named += [f"{_count(number, 'tool')} ({reason})" for reason, number in denied.items()]
    return f"What fits is withheld from this session: {'; '.join(named)}."


def locked(those: Mapping[ServerName, Sequence[str]]) -> str:
    """Return the text about servers that lack secrets; empty if there are none.

    `those` has the names of the secrets by server.
    """
    parts = [f"{name} {lacks(keys).reason}" for name, keys in list(those.items())[:_MOST_LOCKED]]
    return f"Not searched: {'; '.join(parts)}." if parts else ""


def gaps(where: Searched) -> str:
    """Return the text about what was not searched; empty if everything was."""
    parts: list[str] = []
    if where.unlisted:
        names = ", ".join(where.unlisted[:_MOST_NAMED])
        more = len(where.unlisted) - _MOST_NAMED
        parts.append(
            f"Not searched, because they were never asked for their tools: {names}"
            f"{f' and {more} more' if more > 0 else ''} (capd index asks them)."
        )
    if where.left_out:
        parts.append(f"{_count(where.left_out, 'tool')} over the limit were not searched.")
    return " ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
