"""Gemini CLI, whose prompt begins with what its hooks of SessionStart have said."""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks.fields import NOTHING, Prompt, claude_answer, is_event, text_at

_EVENT = "BeforeAgent"
_OPENS, _CLOSES = "<hook_context>", "</hook_context>"


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read Gemini's JSON, without the words of other hooks."""
    del env
    if not is_event(said, "hook_event_name", _EVENT):
        return NOTHING
    text = text_at(said, "prompt")
    while text.startswith(_OPENS) and _CLOSES in text:
        text = text.partition(_CLOSES)[2].lstrip()
    return Prompt(text, "gemini", text_at(said, "session_id"), text_at(said, "cwd"))


def answer(context: str) -> str:
    """Return what Gemini puts behind the prompt."""
    return claude_answer(context, _EVENT)
