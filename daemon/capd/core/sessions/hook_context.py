"""The text that answers a client's prompt hook, and that its model reads with the prompt.

If the user's message switched a capability on, the model gets its name once, in the same turn, and
a call card for each tool that fits. If the message may mean one of a few that are off, the model
gets their names and how to switch one on, never the same twice in a row, in at most 60 tokens. If
nothing changed, nothing is said. A turn has at most 150 tokens (docs/design/context.md).
"""

import re
from collections.abc import Sequence
from math import ceil
from typing import Any

import msgspec

from capd.core.index.token_costs import TokenCosts, one_line
from capd.core.servers.runners import advice
from capd.core.sessions.skill_prompts import PREFIX as SKILL_PREFIX
from capd_protos.types import CapabilityName, Decision, UnusableCapability, WireName

TURN = WireName("capd_turn")
"""The tool that a prompt hook calls. It is never listed: it is not the model's to call."""

EVENT = "UserPromptSubmit"
TOOL_EVENT = "PreToolUse"
"""The event of a hook for a tool of the client's own, such as the one that uses a skill."""
_MOST_NAMES = 12
_MOST_CHARACTERS = 220
"""Limit of the wire names in one message."""

SUGGESTION_TOKENS = 60
SKILL_TOKENS = 20
"""Of a skill's description."""
TURN_TOKENS = 150
_LETTERS_A_TOKEN = 2.5
_LONGEST_WORD = 12
_PART = re.compile(r"[A-Za-z]+|[^\sA-Za-z]")

_MOST_KEYS = 2
_LONGEST_NAME = 24
"""A longer name could take more than its share of the tokens."""


class TurnArguments(msgspec.Struct, frozen=True):
    """The arguments of a hook, as Claude Code names them."""

    prompt: str = ""
    session_id: str = ""
    cwd: str = ""
    event: str = EVENT
    skill: str = ""
    """The skill that is used, where the event is `TOOL_EVENT`."""


def contexts(
    came_on: Sequence[tuple[CapabilityName, Sequence[WireName]]],
    costs: TokenCosts,
) -> str:
    """Return the text about everything that was switched on, one line for each that fits."""
    brought = [each for each in came_on if each[1]]
    lines: list[str] = []
    left = TURN_TOKENS
    for at, (name, added) in enumerate(brought):
        line = context(name, added, costs, left // (len(brought) - at))
        # A line end takes at most one token.
        left -= tokens_of(line, costs) + 1
        if lines and left < 0:
            break
        lines.append(line)
    return "\n".join(lines)


def context(
    name: CapabilityName,
    added: Sequence[WireName],
    costs: TokenCosts,
    room: int = TURN_TOKENS,
) -> str:
    """Return the text about a capability whose tools the model's next request lists.

    It is empty if nothing came on.
    """
    sentence = f"capd switched on '{short_name(name)}' for this message; its tools are listed now"
    return _with_names(sentence, added, costs, room)


def coming(name: CapabilityName, enabler: str) -> str:
    """Return the text about a capability that is starting and whose tools are not known yet.

    `enabler` is the tool that waits for it.
    """
    begun = f"capd is switching on '{short_name(name)}' for this message"
    return f"{begun}; {enabler}(action=enable, name={name}) waits for it and names its tools."


def unusable_words(unusable: Sequence[UnusableCapability]) -> str:
    """Return the text about capabilities that fit and cannot be switched on."""
    lines: list[str] = []
    for each in unusable:
        name = short_name(each.id.name)
        if each.keys:
            commands = " and ".join(f"capd secret set {key}" for key in each.keys[:_MOST_KEYS])
            more = " ..." if len(each.keys) > _MOST_KEYS else ""
            lines.append(
                f"capd: '{name}' fits this message and lacks a key. Tell the user: {commands}{more}"
            )
        elif each.programs:
            program = one_line(short_name(each.programs[0]))
            lines.append(
                f"capd: '{name}' fits this message and needs `{program}`, which is not installed. "
                f"Tell the user: {advice(program)}"
            )
        elif each.reason == "domain":
            lines.append(f"capd: '{name}' fits this message and is for another domain")
    return "\n".join(lines)


def _with_names(sentence: str, names: Sequence[WireName], costs: TokenCosts, room: int) -> str:
    """Return `sentence: names.` with as many names as fit into a turn's tokens."""
    told = ""
    for count in range(1, min(len(names), _MOST_NAMES) + 1):
        left = len(names) - count
        longer = f"{', '.join(names[:count])}{f' and {left} more' if left else ''}"
        text = f"{sentence}: {longer}."
        if count > 1 and (
            sum(map(len, names[:count])) > _MOST_CHARACTERS or tokens_of(text, costs) > room
        ):
            break
        told = text
    return told


def short_name(name: str) -> str:
    """Return a capability's name in the form that a turn uses."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def skill_text(prompt: WireName, description: str, enabler: str, costs: TokenCosts) -> str:
    """Return the text about a skill that fits, in at most `SUGGESTION_TOKENS`."""
    arguments = msgspec.json.encode(
        {"action": "enable", "name": f"{SKILL_PREFIX}{prompt}"}
    ).decode()
    head, call = f"Skill {prompt} fits", f" NEXT {enabler} {arguments}"
    told = f"{head}: {costs.cut(one_line(description).rstrip('.'), SKILL_TOKENS)}.{call}"
    return told if tokens_of(told, costs) <= SUGGESTION_TOKENS else f"{head}.{call}"


def tokens_of(text: str, costs: TokenCosts) -> int:
    """Return an upper bound of the tokens of a text, from counted pieces."""
    # Both are upper bounds; the first is loose for pieces that were not counted.
    return min(costs.of(text), tokens_at_most(text))


def tokens_at_most(text: str) -> int:
    """Return an upper bound of the tokens of a text, from its letters alone.

    A tokenizer splits what does not look like a word, in the worst case into single letters.
    """
    total = 0
    for part in _PART.findall(text):
        vowels = sum(incoming in "aeiouyAEIOUY" for incoming in part)
        is_like_a_word = len(part) <= _LONGEST_WORD and vowels * 5 >= len(part)
        total += ceil(len(part) / _LETTERS_A_TOKEN) if is_like_a_word else len(part.encode())
    return total


def said(*parts: str) -> str:
    """Join everything that the model gets in a turn."""
    return "\n".join(words for words in parts if words)


def notice(decision: Decision, problem: str = "") -> str:
    """Return the short line for the user when a message switches something on; else empty."""
    if decision.outcome != "activate" or decision.id is None:
        return ""
    if problem:
        return f"capd: {decision.id.name} could not be switched on (capd why)"
    return f"capd switches {decision.id.name} on"


def hook_output(text: str, shown: str = "", event: str = EVENT) -> str:
    """Return the output of a hook for `event`, in the form that Claude Code reads.

    The model gets `text`; the user sees `shown`.
    """
    output: dict[str, Any] = {"systemMessage": shown} if shown else {}
    if text:
        output["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": text}
    return msgspec.json.encode(output).decode()
