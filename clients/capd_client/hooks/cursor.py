"""Cursor, which may run the hooks of Claude Code's settings as well, and injects nothing."""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks.fields import NOTHING, Prompt, is_event, text_at

_EVENTS = ("beforeSubmitPrompt", "UserPromptSubmit")


def is_of(said: Mapping[str, Any]) -> bool:
    """Tell whether Cursor wrote this."""
    return "cursor_version" in said or "conversation_id" in said


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read Cursor's JSON."""
    del env
    if not is_event(said, "hook_event_name", *_EVENTS):
        return NOTHING
    return Prompt(
        text_at(said, "prompt"),
        "cursor",
        text_at(said, "conversation_id"),
        text_at(said, "workspace_roots", 0),
        text_at(said, "generation_id"),
    )


def answer(context: str) -> str:
    """Return nothing: without an answer the prompt goes on."""
    del context
    return ""
