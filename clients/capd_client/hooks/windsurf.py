"""Windsurf, which injects nothing."""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks.fields import NOTHING, Prompt, is_event, text_at


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read Windsurf's JSON; it does not say which folder is open."""
    del env
    if not is_event(said, "agent_action_name", "pre_user_prompt"):
        return NOTHING
    return Prompt(
        text_at(said, "tool_info", "user_prompt"),
        "windsurf",
        text_at(said, "trajectory_id"),
        turn=text_at(said, "execution_id"),
    )


def answer(context: str) -> str:
    """Return nothing: an exit code of 0 lets the prompt go on."""
    del context
    return ""
