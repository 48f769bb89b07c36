"""Claude Code, and who else runs the hooks of its settings (docs/design/clients.md, finding 12).

Claude Code has a second hook, on the session's own connection, and that one speaks there: it has
told both the session's id by its environment. What else reads these settings has not.
"""

from collections.abc import Mapping
from typing import Any

from capd_client.hooks import copilot, cursor, vscode
from capd_client.hooks.fields import NOTHING, Prompt, claude_answer, is_event, text_at


def prompt(said: Mapping[str, Any], env: Mapping[str, str]) -> Prompt:
    """Read the hook's JSON, whoever runs it."""
    if cursor.is_of(said):
        return cursor.prompt(said, env)
    if copilot.is_of(said, env):
        return copilot.prompt(said, env)
    if "sessionId" in said:
        # VS Code. Its session shall not be taken for one of Claude Code in the same project.
        return vscode.prompt(said, env)
    session = text_at(said, "session_id")
    if session and session == env.get("CLAUDE_CODE_SESSION_ID"):
        return NOTHING
    if not is_event(said, "hook_event_name", "UserPromptSubmit"):
        return NOTHING
    return Prompt(
        text_at(said, "prompt"),
        "claude",
        session,
        text_at(said, "cwd"),
        text_at(said, "prompt_id"),
    )


def answer(context: str) -> str:
    """Return what Claude Code hands to its model."""
    return claude_answer(context)
