"""qwen-code."""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks.fields import NOTHING, Prompt, claude_answer, is_event, text_at


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read qwen's JSON; what the user typed counts before what qwen has made of it."""
    del env
    if not is_event(said, "hook_event_name", "UserPromptSubmit"):
        return NOTHING
    return Prompt(
        text_at(said, "submitted_prompt") or text_at(said, "prompt"),
        "qwen",
        text_at(said, "session_id"),
        text_at(said, "cwd"),
        text_at(said, "prompt_id"),
    )


def answer(context: str) -> str:
    """Return it in Claude Code's form."""
    return claude_answer(context)
