"""What a client's prompt hook is answered: the few words that reach the model with the prompt.

The user's message may have switched a capability on; the model is told so once, by name, in the
same turn. Or it may mean one of a few that are off; the model is told which exist and how one is
switched on, never twice in a row the same (20-routing: at most 60 tokens). Where nothing changed,
nothing is said (45-clients; issue "in all the other editors": at most 120 tokens a turn).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from capd.core.index.token_costs import TokenCosts
from capd_protos.types import CapabilityName, WireName

TURN = WireName("capd_turn")
"""The tool that a prompt hook calls. It is never listed: it is not the model's to call."""

EVENT = "UserPromptSubmit"
_MOST_NAMES = 12

SUGGESTION_TOKENS = 60
TURN_TOKENS = 120


class TurnArguments(msgspec.Struct, frozen=True):
    """What a hook hands over, as Claude Code names it."""

    prompt: str = ""
    session_id: str = ""
    cwd: str = ""


def context(
    name: CapabilityName, added: Sequence[WireName], costs: TokenCosts, caller: str = ""
) -> str:
    """Return what the model is told of a capability that came on; empty where nothing did.

    `caller` is the tool that calls what its client does not list, where it does not.
    """
    for count in range(min(len(added), _MOST_NAMES), -1, -1):
        text = _came_on(name, added, count, caller)
        if text and costs.of(text) <= TURN_TOKENS:
            return text
    return ""


def _came_on(name: str, added: Sequence[WireName], count: int, caller: str) -> str:
    if not added:
        return ""
    names, left = [str(each) for each in added[:count]], len(added) - count
    more = f"{' and ' if names else ''}{left} {'more' if names else 'tools'}" if left else ""
    shown = ", ".join(names) + more
    if caller:
        how = f"Call its tools with {caller}, name=..."
        return f"capd switched on '{name}' for this message. {how}: {shown}."
    return f"capd switched on '{name}' for this message; its tools are listed now: {shown}."


def tools_told(
    names: Sequence[WireName],
    caller: WireName,
    costs: TokenCosts,
    *,
    context: str = "",
    suggestion: str = "",
) -> tuple[list[WireName], str]:
    """Return which single tools are suggested in a turn, and its words with those of `suggestion`.

    A name that the budgets have no room for is left out: it may be told in another turn.
    """
    told: list[WireName] = []
    words = suggestion
    room = min(SUGGESTION_TOKENS, TURN_TOKENS - costs.of(f"{context}\n"))
    for name in names:
        tools = f"Tools that fit, by {caller}(name=...): {', '.join([*told, name])}"
        longer = f"{suggestion}\n{tools}" if suggestion else tools
        if costs.of(longer) <= room:
            told.append(name)
            words = longer
    return told, words


def said(context: str, suggestion: str, index: str = "") -> str:
    """Return all that the model is told in a turn; `index` once, and beside the turn's budget."""
    return "\n".join(words for words in (index, context, suggestion) if words)


def hook_output(text: str) -> str:
    """Return `text` as the output of a prompt hook, in the form that Claude Code reads."""
    output: dict[str, Any] = {}
    if text:
        output = {"hookSpecificOutput": {"hookEventName": EVENT, "additionalContext": text}}
    return msgspec.json.encode(output).decode()
