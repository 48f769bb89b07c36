"""Codex."""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks.fields import NOTHING, Prompt, claude_answer, is_event, text_at


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read Codex' JSON."""
    del env
    if not is_event(said, "hook_event_name", "UserPromptSubmit"):
        return NOTHING
    return Prompt(
        text_at(said, "prompt"),
        "codex",
        text_at(said, "session_id"),
        text_at(said, "cwd"),
        text_at(said, "turn_id"),
    )


def answer(context: str) -> str:
    """Return what reaches its model as a message of the developer."""
    return claude_answer(context)
