"""Cline: the first message starts a task, the others are submitted to it."""

import json
from collections.abc import Mapping
from typing import Any

from capd_client.hooks.fields import NOTHING, Prompt, is_event, text_at


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read Cline's JSON of either event."""
    del env
    if not is_event(said, "hookName", "TaskStart", "UserPromptSubmit"):
        return NOTHING
    submitted = text_at(said, "userPromptSubmit", "prompt")
    return Prompt(
        submitted or text_at(said, "taskStart", "taskMetadata", "initialTask"),
        "cline",
        text_at(said, "sessionContext", "rootSessionId") or text_at(said, "taskId"),
        text_at(said, "workspaceRoots", 0),
    )


def answer(context: str) -> str:
    """Return what Cline puts to the conversation."""
    return json.dumps({"cancel": False, "contextModification": context})
