"""Goose, which does not read what a hook of this event prints."""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks.fields import NOTHING, Prompt, is_event, text_at


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read Goose's JSON; the folder is there with events of tools only."""
    del env
    if not is_event(said, "event", "UserPromptSubmit"):
        return NOTHING
    return Prompt(
        text_at(said, "message") or text_at(said, "matcher_context"),
        "goose",
        text_at(said, "session_id"),
        text_at(said, "working_dir"),
    )


def answer(context: str) -> str:
    """Return nothing."""
    del context
    return ""
