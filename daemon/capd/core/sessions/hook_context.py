"""The text that answers a client's prompt hook. The client's model reads it with the prompt.

A prompt hook is a program that a client runs for each message of its user. It sends capd the
message, and capd's answer becomes a part of the prompt.

If the message switched a capability on, the text names it and its tools. A capability or a skill
that may fit is suggested in at most 60 tokens, with the call that switches it on. If a capability
fits but cannot be switched on, the text says why. If none of this applies, the text is empty.
All texts of a turn together have at most 150 tokens (docs/design/context.md). `turn_cards` writes
the signatures of single tools. A wire name is the name under which clients know a tool or a prompt.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any

import msgspec

from capd.core.index.token_costs import TokenCosts, one_line
from capd.core.lazy_patterns import lazy_pattern
from capd.core.servers.runners import advice
from capd.core.sessions.skill_prompts import PREFIX as SKILL_PREFIX
from capd_protos.types import CapabilityName, Decision, UnusableCapability, WireName

TURN = WireName("capd_turn")
"""The tool that a prompt hook calls. It is never listed, because no model is to call it."""

EVENT = "UserPromptSubmit"
TOOL_EVENT = "PreToolUse"
"""The event of a hook that runs before the model uses a skill or one of capd's tools."""
AGENT_BEGINS = "SubagentStart"
AGENT_ENDS = "SubagentStop"
_MOST_NAMES = 12
_MOST_CHARACTERS = 220
"""The wire names in one text have at most this many characters together."""

SUGGESTION_TOKENS = 60
SKILL_TOKENS = 20
"""The most tokens of a skill's description."""
TURN_TOKENS = 150
_LETTERS_A_TOKEN = 2.5
_LONGEST_WORD = 12
_PART = lazy_pattern(r"[A-Za-z]+|[^\sA-Za-z]")

_MOST_KEYS = 2
_LONGEST_NAME = 24
"""The most characters of a capability's or program's name. A longer one is cut."""


class TurnArguments(msgspec.Struct, frozen=True):
    """The input of a hook, by the names that Claude Code uses."""

    prompt: str = ""
    session_id: str = ""
    cwd: str = ""
    event: str = EVENT
    skill: str = ""
    """The skill that is used, if the event is `TOOL_EVENT`."""
    tool_use_id: str = ""
    """The client's id of the tool use that the event is about."""
    agent_id: str = ""
    """The sub-agent that the event is about; empty for the conversation itself."""


def contexts(
    came_on: Sequence[tuple[CapabilityName, Sequence[WireName]]],
    costs: TokenCosts,
) -> str:
    """Return a text with a line for each capability that a message has switched on.

    `came_on` pairs a capability with the wire names of its new tools. One without tools has no
    line. As many lines are returned as fit into a turn.
    """
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
    """Return the line about a capability whose tools the model's next request lists.

    `added` are the wire names of its new tools, of which as many are named as fit into `room`
    tokens. Without tools the line is empty.
    """
    sentence = f"capd switched on '{short_name(name)}' for this message; its tools are listed now"
    return _with_names(sentence, added, costs, room)


def coming(name: CapabilityName, enabler: str) -> str:
    """Return the line about a capability that is being switched on, with tools not known yet.

    `enabler` is the client's name for capd's tool `capability`. A call of it waits until the
    capability is on.
    """
    begun = f"capd is switching on '{short_name(name)}' for this message"
    return f"{begun}; {enabler}(action=enable, name={name}) waits for it and names its tools."


def unusable_words(unusable: Sequence[UnusableCapability]) -> str:
    """Return a line for each capability that fits and cannot be switched on: why, and the remedy.

    The reasons are a missing secret, a program that is not installed, and another domain.
    """
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
    """Return the text `sentence: names.`, with the first name and as many others as fit.

    With more than one name, the text has at most `room` tokens. Without names it is empty.
    """
    fitting = ""
    for count in range(1, min(len(names), _MOST_NAMES) + 1):
        left = len(names) - count
        longer = f"{', '.join(names[:count])}{f' and {left} more' if left else ''}"
        text = f"{sentence}: {longer}."
        if count > 1 and (
            sum(map(len, names[:count])) > _MOST_CHARACTERS or tokens_of(text, costs) > room
        ):
            break
        fitting = text
    return fitting


def short_name(name: str) -> str:
    """Return a name cut to 24 characters, because a turn's text may have only few tokens."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def skill_text(prompt: WireName, description: str, enabler: str, costs: TokenCosts) -> str:
    """Return the line that suggests a skill to a model, with the call that uses it.

    `prompt` is the skill's name as a prompt, `enabler` the client's name for capd's tool
    `capability`. The description is left out if the line would have more than `SUGGESTION_TOKENS`.
    """
    arguments = msgspec.json.encode(
        {"action": "enable", "name": f"{SKILL_PREFIX}{prompt}"}
    ).decode()
    head, call = f"Skill {prompt} fits", f" NEXT {enabler} {arguments}"
    described = f"{head}: {costs.cut(one_line(description).rstrip('.'), SKILL_TOKENS)}.{call}"
    is_short = tokens_of(described, costs) <= SUGGESTION_TOKENS
    return described if is_short else f"{head}.{call}"


def tokens_of(text: str, costs: TokenCosts) -> int:
    """Return an upper bound of the tokens of a text."""
    # Both are upper bounds. The first is loose if pieces of the text were never counted.
    return min(costs.of(text), tokens_at_most(text))


def tokens_at_most(text: str) -> int:
    """Return an upper bound of the tokens of a text, from its characters alone.

    A tokenizer may split text that does not look like a word into single bytes.
    """
    total = 0
    for part in _PART.findall(text):
        vowels = sum(letter in "aeiouyAEIOUY" for letter in part)
        is_like_a_word = len(part) <= _LONGEST_WORD and vowels * 5 >= len(part)
        total += ceil(len(part) / _LETTERS_A_TOKEN) if is_like_a_word else len(part.encode())
    return total


def join_texts(*parts: str) -> str:
    """Join the texts that the model gets in a turn, one below the other; skip empty ones."""
    return "\n".join(words for words in parts if words)


def notice(decision: Decision, problem: str = "") -> str:
    """Return the line that tells the user which capability a message switches on.

    The line is empty if the message switches none on. `problem` is the reason why the capability
    could not be switched on. If it is not empty, the line reports the failure without the reason.
    """
    if decision.outcome != "activate" or decision.id is None:
        return ""
    if problem:
        return f"capd: {decision.id.name} could not be switched on (capd why)"
    return f"capd switches {decision.id.name} on"


def hook_output(text: str, shown: str = "", event: str = EVENT) -> str:
    """Return the standard output of a hook for `event`: JSON as Claude Code reads it.

    The model gets `text`, and the user sees `shown`.
    """
    output: dict[str, Any] = {"systemMessage": shown} if shown else {}
    if text:
        output["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": text}
    return msgspec.json.encode(output).decode()
