"""What a hook hands over, and values looked up in JSON that may be of any shape."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Prompt(NamedTuple):
    """A user's words, and whose they are."""

    text: str = ""
    client: str = ""
    """Who runs the hook: not always the client that its command line names."""
    client_session: str = ""
    """The client's own id of the conversation."""
    project: str = ""
    turn: str = ""
    """The client's own id of this prompt, where it gives one."""


NOTHING = Prompt()


def text_at(said: object, *path: str | int) -> str:
    """Return the text at `path`; empty where there is none."""
    for step in path:
        if isinstance(said, Mapping) and isinstance(step, str):
            said = said.get(step)
        elif isinstance(said, list) and isinstance(step, int):
            said = said[step] if step < len(said) else None
        else:
            return ""
    # Half of a surrogate pair is a text of JSON that the daemon cannot be handed.
    return said.encode(errors="replace").decode() if isinstance(said, str) else ""


def is_event(said: Mapping[str, Any], key: str, *events: str) -> bool:
    """Tell whether the hook was run for one of `events`, or does not say for what."""
    return not said.get(key) or said[key] in events


def claude_answer(context: str, event: str = "UserPromptSubmit") -> str:
    """Return `context` in the form that Claude Code has made, and others have taken over."""
    output = {"hookEventName": event, "additionalContext": context}
    return json.dumps({"hookSpecificOutput": output})
