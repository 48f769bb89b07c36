"""VS Code, which runs the hooks of Claude Code's settings and of Copilot's folder as well.

Its documentation has only the common output for this event; what it does not know it leaves.
"""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks import copilot
from capd_client.hooks.fields import NOTHING, Prompt, claude_answer, is_event, text_at

_EVENTS = ("UserPromptSubmit", "userPromptSubmitted")


def is_of(said: Mapping[str, Any]) -> bool:
    """Tell whether VS Code wrote this."""
    return "sessionId" in said and ("hookEventName" in said or "transcript_path" in said)


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read VS Code's JSON; Copilot CLI runs the hooks of the same folder."""
    if copilot.is_of(said, env):
        return copilot.prompt(said, env)
    if not is_event(said, "hookEventName", *_EVENTS):
        return NOTHING
    return Prompt(text_at(said, "prompt"), "code", text_at(said, "sessionId"), text_at(said, "cwd"))


def answer(context: str) -> str:
    """Return it in Claude Code's form."""
    return claude_answer(context)
