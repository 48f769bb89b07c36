"""Tells a model which switched-off capabilities fit a message, and how to switch one on.

This is the second of the index's three levels (docs/memories.md).

    docker: DO run containers. USE_WHEN "restart the container". NEXT capability {…}. COST 9 tools

The text has at most 60 tokens. If it names several capabilities, the call is written only for the
best one, and as many descriptions are added as fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from capd.core.index.token_costs import TokenCosts, one_line
from capd_protos.index import IndexEntry
from capd_protos.types import CapabilityId, CapabilityName, TapName

SUMMARY_TOKENS = 60
_LEAST_DO = 4
"""The fewest tokens of a shortened sentence; a shorter one is left out."""
_FAIR_DO = 12
"""Each entry may take at least this many tokens, until the room is used up. So the best entries get
descriptions, and the last ones may get none."""

_NOBODY = CapabilityId(TapName("t"), CapabilityName("n"))
_NOTHING = TokenCosts()

Call = Callable[[str], str]
"""A function that returns, for a capability's name, the exact call that switches it on."""


@dataclass(frozen=True, slots=True)
class Suggestions:
    """A text for the model, how many capabilities it names, and how many did not fit."""

    text: str = ""
    named: int = 0
    left_out: int = 0


def call_of(tool: str) -> Call:
    """Return a function that writes the call by which a model switches a capability on.

    `tool` is the name under which the client knows capd's tool `capability`.
    """

    def call(name: str) -> str:
        arguments = {"action": "enable", "name": one_line(name)}
        return f"{tool} {msgspec.json.encode(arguments).decode()}"

    return call


def suggestions(
    entries: Sequence[IndexEntry], call: Call, costs: TokenCosts, room: int = SUMMARY_TOKENS
) -> Suggestions:
    """Return a text of at most `room` tokens about capabilities that fit a message.

    `entries` are the entries of these capabilities, the best first.
    """
    if not entries:
        return Suggestions()
    if len(entries) == 1:
        text = summary(entries[0], call, costs, room)
        return Suggestions(text, 1 if text else 0, 0 if text else 1)
    for count in range(len(entries), 1, -1):
        text = _together(entries[:count], call, costs, room)
        if text:
            return Suggestions(text, count, len(entries) - count)
    alone = summary(entries[0], call, costs, room)
    return Suggestions(alone, 1 if alone else 0, len(entries) - (1 if alone else 0))


def summary(entry: IndexEntry, call: Call, costs: TokenCosts, room: int = SUMMARY_TOKENS) -> str:
    """Return a text of at most `room` tokens about one capability; empty if its call takes more."""
    head = f"Installed, off: {one_line(entry.id.name)}."
    following = f" NEXT {call(entry.id.name)}"
    if costs.of(head + following) > room:
        return ""
    cost = _cost(entry)
    if costs.of(head + following + cost) > room:
        cost = ""
    do = _part(" DO ", entry.do, costs, room - costs.of(head + following + cost))
    use_when = ""
    for count in range(len(entry.use_when), 0, -1):
        phrases = " or ".join(f'"{one_line(each)}"' for each in entry.use_when[:count])
        longer = f" USE_WHEN {phrases}."
        if costs.of(head + do + longer + following + cost) <= room:
            use_when = longer
            break
    text = head + do + use_when + following + cost
    # Each part was measured alone. The whole text may have more tokens, so it is measured again.
    return text if costs.of(text) <= room else head + following


def surrounding_texts(call: Call) -> list[str]:
    """Return texts that contain all that `suggestions` puts around a capability's words.

    Their tokens are counted in advance.
    """
    frames = [IndexEntry(_NOBODY, "", "x", ["y", "z"], tools, 9) for tools in (1, 9)]
    one = [summary(frame, call, _NOTHING, room=10_000) for frame in frames]
    return [*one, _together(frames, call, _NOTHING, 10_000), call(""), f" NEXT {call('')}"]


def _together(entries: Sequence[IndexEntry], call: Call, costs: TokenCosts, room: int) -> str:
    names = [one_line(entry.id.name) for entry in entries]
    head = f"Installed, off; NEXT {call(entries[0].id.name)} or another of:"
    lines = [f"- {name}" for name in names]
    if costs.of("\n".join([head, *lines])) > room:
        return ""
    for at, entry in enumerate(entries):
        left = room - costs.of("\n".join([head, *lines]))
        share = max(left // (len(entries) - at), min(left, _FAIR_DO))
        longer = [*lines[:at], lines[at] + _part(": DO ", entry.do, costs, share), *lines[at + 1 :]]
        if costs.of("\n".join([head, *longer])) <= room:
            lines = longer
    return "\n".join([head, *lines])


def _part(label: str, words: str, costs: TokenCosts, room: int) -> str:
    left = room - costs.of(label) - 1
    said = costs.cut(one_line(words), left) if left >= _LEAST_DO else ""
    if not said:
        return ""
    return f"{label}{said}" + ("" if said.endswith("…") else ".")


def _cost(entry: IndexEntry) -> str:
    if entry.tools is None:
        return ""
    counted = f"{entry.tools} tool{'' if entry.tools == 1 else 's'}"
    tokens = f", {entry.tokens} tokens" if entry.tokens is not None else ""
    return f" COST {counted}{tokens}"
