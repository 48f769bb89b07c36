"""What a client's prompt hook is answered: the few words that reach the model with the prompt.

The user's message may have switched a capability on; the model is told so once, by name, in the
same turn. Or it may mean one of a few that are off; the model is told which exist and how one is
switched on, never twice in a row the same (20-routing: at most 60 tokens). Where nothing changed,
nothing is said (45-clients; issue "in all the other editors": at most 120 tokens a turn).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from capd_protos.types import CapabilityName, WireName

TURN = WireName("capd_turn")
"""The tool that a prompt hook calls. It is never listed: it is not the model's to call."""

EVENT = "UserPromptSubmit"
_MOST_NAMES = 12
_MOST_CHARACTERS = 220
"""Of wire names in one message: with the sentence around them at most 120 tokens."""

_LONGEST_NAME = 24
"""A longer one could take more than its share of the 60 tokens."""


class TurnArguments(msgspec.Struct, frozen=True):
    """What a hook hands over, as Claude Code names it."""

    prompt: str = ""
    session_id: str = ""
    cwd: str = ""


def context(name: CapabilityName, added: Sequence[WireName], caller: str = "") -> str:
    """Return what the model is told of a capability that came on; empty where nothing did.

    `caller` is the tool that calls what its client does not list, where it does not.
    """
    if not added:
        return ""
    names: list[str] = []
    for tool in added[:_MOST_NAMES]:
        if names and sum(map(len, names)) + len(tool) > _MOST_CHARACTERS:
            break
        names.append(tool)
    left = len(added) - len(names)
    shown = ", ".join(names) + (f" and {left} more" if left else "")
    if caller:
        how = f"Call its tools with {caller}, name=..."
        return f"capd switched on '{name}' for this message. {how}: {shown}."
    return f"capd switched on '{name}' for this message; its tools are listed now: {shown}."


def suggestion(names: Sequence[CapabilityName]) -> str:
    """Return what the model is told of capabilities that are off and may be meant."""
    if not names:
        return ""
    lines = "\n".join(f"- {_short(name)}" for name in names)
    return f"Installed, off; if wanted, call capability(action=enable, name=...):\n{lines}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def hook_output(text: str) -> str:
    """Return `text` as the output of a prompt hook, in the form that Claude Code reads."""
    output: dict[str, Any] = {}
    if text:
        output = {"hookSpecificOutput": {"hookEventName": EVENT, "additionalContext": text}}
    return msgspec.json.encode(output).decode()
