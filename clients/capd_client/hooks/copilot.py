"""Copilot CLI, which reads the context at the top of what a hook prints, and nowhere else."""

import json
from collections.abc import Mapping
from typing import Any

from capd_client.hooks.fields import NOTHING, Prompt, is_event, text_at

_EVENTS = ("userPromptSubmitted", "UserPromptSubmit")


def is_of(said: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Tell whether Copilot CLI wrote this, whatever its form."""
    session = env.get("COPILOT_AGENT_SESSION_ID")
    return bool(session) and session in (said.get("sessionId"), said.get("session_id"))


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read Copilot's JSON."""
    del env
    if not all(is_event(said, key, *_EVENTS) for key in ("hook_event_name", "hookEventName")):
        return NOTHING
    session = text_at(said, "sessionId") or text_at(said, "session_id")
    return Prompt(text_at(said, "prompt"), "copilot", session, text_at(said, "cwd"))


def answer(context: str) -> str:
    """Return what Copilot CLI puts to the prompt."""
    return json.dumps({"additionalContext": context})
