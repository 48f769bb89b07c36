"""Triggers of a capability that come from the tools of its servers.

A trigger is a phrase. A message that resembles one may switch the capability on.

A capability with `triggers_from_tools = true` in its `config.toml` has few words of its own: `capd
add` without `--trigger` writes this key, and so does `capd import` for a server whose tools are not
known yet. The first tool list of each of its servers becomes further triggers. Later lists change
nothing: otherwise a server could choose new words for itself whenever it starts, and be switched on
by messages that are not for it.

A server chooses its first words as well, so they count for less than words that a person wrote:

- A phrase that means the same as a written trigger of another capability is left out.
- So is a phrase that people say when they want no tool ("sounds good to me").
- A tool whose definition resembles a published attack gives no phrase.
- The remaining phrases are evidence like others (`core/routing/evidence.py`), with two exceptions.
  First, a message that contains a written trigger word for word gets at least a suggestion; a
  message that contains such a phrase does not (`core/routing/phrases.py`). Second, routing ignores
  a background message (an example of a message that wants no tool) if it resembles a written
  trigger, but not if it resembles such a phrase.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from capd.core.lexical import words
from capd.core.mcp_registry.proposals import is_plain
from capd.core.protocol.generations import members_or_none, text_of
from capd.core.servers.identity import server_identity
from capd.core.taps.catalog import Tap
from capd.core.taps.overlays import lacking
from capd.core.taps.tap_format import CapabilityRead
from capd_protos.codec import MalformedError
from capd_protos.types import (
    CapabilityId,
    ServerIdentity,
    ServerName,
    ToolDefinition,
    ToolName,
)

MOST_TOOLS = 64
"""How many tools of a list are read. At most ten triggers are made of them."""
LONGEST_DEFINITION = 64 << 10
LONGEST_DESCRIPTION = 500
"""The most characters of a description that are read; one sentence of them is used."""
SAME = 0.75
"""Two phrases say the same if at least this share of their words is the same, as in
`proposals.collisions`."""

Phrases = Mapping[ServerIdentity, Sequence[str]]
"""The triggers that the first tool list of each server gave."""


def servers_that_give_triggers(taps: Iterable[Tap]) -> dict[ServerIdentity, ServerName]:
    """Return the servers whose tools become triggers of a capability."""
    return {
        server_identity(server): server.name
        for tap in taps
        for capability in tap.capabilities
        if capability.triggers_from_tools
        for server in capability.servers
    }


def texts_of_tools(tools: Iterable[ToolDefinition]) -> list[tuple[str, str]]:
    """Return the names and descriptions of `tools`, of which triggers are made.

    For a definition that is too long, only the name is returned. A definition that resembles a
    published attack is left out.
    """
    texts: list[tuple[str, str]] = []
    for tool in islice(tools, MOST_TOOLS):
        if len(tool.json) > LONGEST_DEFINITION:
            texts.append((tool.name, ""))
        elif not _is_flagged(tool):
            described = text_of(members_or_none(tool.json).get("description"))
            texts.append((tool.name, described[:LONGEST_DESCRIPTION]))
    return texts


def presentable(saved: Phrases) -> dict[ServerIdentity, tuple[str, ...]]:
    """Return the saved triggers that the present rules would also make from a tool list.

    Earlier versions saved phrases without looking for published attacks in them.
    """
    return {
        server: tuple(each for each in phrases if is_plain(each) and not _is_flagged_phrase(each))
        for server, phrases in saved.items()
    }


def with_tool_triggers(
    taps: Iterable[Tap], phrases: Phrases, unwanted: Collection[str] = ()
) -> tuple[Tap, ...]:
    """Return `taps` with the triggers that came from the tools of their servers added.

    `phrases` has these triggers by server. `unwanted` are messages for which nobody wants a tool.
    The words of all triggers are compared, which takes 10 ms for 2,000 of them.
    """
    taps = tuple(taps)
    if not servers_that_give_triggers(taps):
        return taps
    said = _Said(taps, unwanted)
    return tuple(
        replace(tap, reads=tuple(_with_phrases(read, phrases, said) for read in tap.reads))
        if any(each.triggers_from_tools for each in tap.capabilities)
        else tap
        for tap in taps
    )


class _Said:
    """Phrases that a server's triggers must not repeat.

    They are the triggers that people wrote, and messages that want no tool.
    """

    def __init__(self, taps: Iterable[Tap], unwanted: Iterable[str]) -> None:
        self._of: list[tuple[CapabilityId | None, int]] = []
        """Each phrase's capability (None for an unwanted message) and number of words."""
        self._with: dict[str, list[int]] = {}
        for tap in taps:
            for each in tap.capabilities:
                for phrase in (*each.triggers, *each.extra_triggers):
                    self._add(each.id, phrase)
        for phrase in unwanted:
            self._add(None, phrase)

    def _add(self, id_: CapabilityId | None, phrase: str) -> None:
        terms = frozenset(words(phrase))
        for term in terms:
            self._with.setdefault(term, []).append(len(self._of))
        self._of.append((id_, len(terms)))

    def by_another(self, phrase: str, id_: CapabilityId) -> bool:
        """Tell whether another capability's trigger, or an unwanted message, has the same words.

        The words need not be exactly the same: a share of at least `SAME` is enough.
        """
        terms = frozenset(words(phrase))
        common = Counter(number for term in terms for number in self._with.get(term, ()))
        return any(
            count / (len(terms) + length - count) >= SAME
            for number, count in common.items()
            for owner, length in (self._of[number],)
            if owner != id_
        )


def _is_flagged(tool: ToolDefinition) -> bool:
    from capd.core.definitions.flags import PATTERNS, flags  # noqa: PLC0415 - a start needs none

    # A long description gives a flag as well, but is common and harmless.
    attacks = {"hidden_text", *(each.code for each in PATTERNS)}
    try:
        return any(each.code in attacks for each in flags(tool.name, tool.json))
    except MalformedError:
        return True


def _is_flagged_phrase(phrase: str) -> bool:
    json = msgspec.json.encode({"name": "phrase", "description": phrase})
    return _is_flagged(ToolDefinition(ToolName("phrase"), json))


def _with_phrases(read: CapabilityRead, phrases: Phrases, said: _Said) -> CapabilityRead:
    capability = read.capability
    if capability is None or not capability.triggers_from_tools:
        return read
    given = [
        phrase
        for server in capability.servers
        for phrase in phrases.get(server_identity(server), ())
        if not said.by_another(phrase, capability.id)
    ]
    new = lacking(capability, given)
    with_them = msgspec.structs.replace(
        capability, extra_triggers=(*capability.extra_triggers, *new), tool_triggers=new
    )
    return replace(read, capability=with_them)
