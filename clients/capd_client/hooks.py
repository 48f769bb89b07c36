"""What each client's prompt hook reads and prints: a table, and the parsers that differ.

`CLIENTS[client]` has two pure functions. `read(event, env)` takes the hook's JSON and environment,
and returns the user's message; its text is empty if capd has nothing to do. `write(context,
notice)` returns what the hook prints: `context` is for the client's model, `notice` a short line
for the user. If the client does not pass a hook's output to its model, `write` returns an empty
text. The findings that comments cite are in docs/design/clients.md.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

Event = Mapping[str, Any]
Path = tuple[str | int, ...]


class Prompt(NamedTuple):
    """A user's message, and the conversation that it belongs to."""

    text: str = ""
    client: str = ""
    """The client that runs the hook; it may differ from the one in the command line."""
    client_session: str = ""
    """The client's own id of the conversation."""
    project: str = ""
    turn: str = ""
    """The client's own id of this prompt, if it has one."""


NOTHING = Prompt()


class HookForm(NamedTuple):
    """One client's pair of functions: one reads the hook's input, the other writes its output."""

    read: Callable[[Event, Mapping[str, str]], Prompt]
    write: Callable[[str, str], str]


class _Layout(NamedTuple):
    """The paths, in a client's hook JSON, of the session, the text and the other parts of a prompt.

    If a part has several paths, the first one with text counts.
    """

    client: str
    session: tuple[Path, ...]
    text: tuple[Path, ...] = (("prompt",),)
    project: Path = ("cwd",)
    """Empty if the client does not send it; the same holds for `turn`."""
    turn: Path = ()
    events: tuple[str, ...] = ("UserPromptSubmit",)
    event_keys: tuple[str, ...] = ("hook_event_name",)
    """Members that name the event. A missing one is accepted."""


_LAYOUTS = {
    each.client: each
    for each in (
        _Layout("claude", (("session_id",),), turn=("prompt_id",)),
        _Layout(
            "cline",
            (("sessionContext", "rootSessionId"), ("taskId",)),
            # The first message starts a task, the others are submitted to it.
            text=(("userPromptSubmit", "prompt"), ("taskStart", "taskMetadata", "initialTask")),
            project=("workspaceRoots", 0),
            events=("TaskStart", "UserPromptSubmit"),
            event_keys=("hookName",),
        ),
        _Layout(
            "code",
            (("sessionId",),),
            events=("UserPromptSubmit", "userPromptSubmitted"),
            event_keys=("hookEventName",),
        ),
        _Layout("codex", (("session_id",),), turn=("turn_id",)),
        _Layout(
            "copilot",
            (("sessionId",), ("session_id",)),
            events=("userPromptSubmitted", "UserPromptSubmit"),
            event_keys=("hook_event_name", "hookEventName"),
        ),
        _Layout(
            "cursor",
            (("conversation_id",),),
            project=("workspace_roots", 0),
            turn=("generation_id",),
            events=("beforeSubmitPrompt", "UserPromptSubmit"),
        ),
        _Layout("gemini", (("session_id",),), events=("BeforeAgent",)),
        _Layout(
            "goose",
            (("session_id",),),
            text=(("message",), ("matcher_context",)),
            # Only the events of tools have the folder.
            project=("working_dir",),
            event_keys=("event",),
        ),
        _Layout(
            "qwen",
            (("session_id",),),
            # The user's own text is preferred to the one that qwen made of it.
            text=(("submitted_prompt",), ("prompt",)),
            turn=("prompt_id",),
        ),
        _Layout(
            "windsurf",
            (("trajectory_id",),),
            text=(("tool_info", "user_prompt"),),
            # Windsurf does not send the open folder.
            project=(),
            turn=("execution_id",),
            events=("pre_user_prompt",),
            event_keys=("agent_action_name",),
        ),
    )
}


_OF_SUB_AGENTS: tuple[Path, ...] = (("agentId",), ("agent_id",))
"""Members of an event of a sub-agent, whose prompt is a model's and not the user's. Copilot CLI
runs its prompt hooks for these as well (finding 15)."""


def _read(client: str, event: Event, env: Mapping[str, str]) -> Prompt:
    """Return the message in `event`, a hook's JSON, by the layout of `client`.

    `env` is not used: it is for readers of hooks that several clients run.
    """
    del env
    layout = _LAYOUTS[client]
    if any(_text_at(event, path) for path in _OF_SUB_AGENTS):
        return NOTHING
    for key in layout.event_keys:
        if event.get(key) and event[key] not in layout.events:
            return NOTHING
    return Prompt(
        _first_text(event, layout.text),
        client,
        _first_text(event, layout.session),
        _text_at(event, layout.project),
        _text_at(event, layout.turn),
    )


def _read_claude(event: Event, env: Mapping[str, str]) -> Prompt:
    """Return the user's message in `event`, the JSON for the hook in Claude Code's settings.

    Other clients run this hook as well (finding 12). In Claude Code itself another hook, on the
    session's own connection, sends the prompt, so this one returns `NOTHING`. Claude Code is
    recognised by the session's id in the environment `env`, which other clients do not set.
    """
    if "cursor_version" in event or "conversation_id" in event:
        return _read("cursor", event, env)
    if _is_copilot(event, env):
        return _read("copilot", event, env)
    if "sessionId" in event:
        # VS Code runs the hook. Its session must not be taken for a session of Claude Code.
        return _read_code(event, env)
    session = _text_at(event, ("session_id",))
    if session and session == env.get("CLAUDE_CODE_SESSION_ID"):
        return NOTHING
    return _read("claude", event, env)


def _read_code(event: Event, env: Mapping[str, str]) -> Prompt:
    """Return the user's message in `event`, the JSON for VS Code's hook.

    Copilot CLI runs this hook too, because it is in Copilot CLI's folder.
    """
    return _read("copilot" if _is_copilot(event, env) else "code", event, env)


def _read_copilot(event: Event, env: Mapping[str, str]) -> Prompt:
    """Return the user's message in `event`, the JSON for the hook in Copilot CLI's folder.

    VS Code runs this hook as well.
    """
    is_code = "sessionId" in event and ("hookEventName" in event or "transcript_path" in event)
    return _read_code(event, env) if is_code else _read("copilot", event, env)


def _is_copilot(event: Event, env: Mapping[str, str]) -> bool:
    session = env.get("COPILOT_AGENT_SESSION_ID")
    return bool(session) and session in (event.get("sessionId"), event.get("session_id"))


def _read_gemini(event: Event, env: Mapping[str, str]) -> Prompt:
    """Return the user's message in `event`, the JSON for Gemini's hook.

    Its prompt may begin with the output of SessionStart hooks, which is removed.
    """
    opening, closing = "<hook_context>", "</hook_context>"
    prompt = _read("gemini", event, env)
    text = prompt.text
    while text.startswith(opening) and closing in text:
        text = text.partition(closing)[2].lstrip()
    return prompt._replace(text=text)


def _write_nothing(context: str, notice: str) -> str:
    """Return nothing: this client does not show a hook's output to its model."""
    del context, notice
    return ""


def _write_claude(context: str, notice: str, event: str = "UserPromptSubmit") -> str:
    """Return a hook's output in the form of Claude Code, which other clients have adopted.

    It has `context` for the client's model and `notice` for the user; `event` is the hook's event.
    """
    output: dict[str, Any] = {"systemMessage": notice} if notice else {}
    if context:
        output["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": context}
    return json.dumps(output) if output else ""


def _write_copilot(context: str, notice: str) -> str:
    """Return JSON with `context` as a member at the top, the only place where Copilot CLI looks."""
    del notice
    return json.dumps({"additionalContext": context}) if context else ""


def _write_cline(context: str, notice: str) -> str:
    del notice
    return json.dumps({"cancel": False, "contextModification": context}) if context else ""


def _write_gemini(context: str, notice: str) -> str:
    return _write_claude(context, notice, "BeforeAgent")


CLIENTS = {
    "claude": HookForm(_read_claude, _write_claude),
    "cline": HookForm(partial(_read, "cline"), _write_cline),
    "code": HookForm(_read_code, _write_claude),
    "codex": HookForm(partial(_read, "codex"), _write_claude),
    "copilot": HookForm(_read_copilot, _write_copilot),
    "cursor": HookForm(partial(_read, "cursor"), _write_nothing),
    "gemini": HookForm(_read_gemini, _write_gemini),
    "goose": HookForm(partial(_read, "goose"), _write_nothing),
    "qwen": HookForm(partial(_read, "qwen"), _write_claude),
    "windsurf": HookForm(partial(_read, "windsurf"), _write_nothing),
}
"""The form of each client, by the name that `capd hook` takes."""


def sample_event(client: str, event: str, text: str, session: str, project: str) -> dict[str, Any]:
    """Return the JSON that a client would pass to its hook with the message `text`.

    It is for tests of an installed hook. `session` is the client's id of the conversation, and
    `project` its folder. If `event` is empty, the client's first event is used.
    """
    layout = _LAYOUTS[client]
    event = event or layout.events[0]
    made: dict[str, Any] = {layout.event_keys[0]: event}
    paths = (layout.text[0], layout.session[0], layout.project)
    for path, value in zip(paths, (text, session, project), strict=True):
        if path:
            _put_at(made, path, value)
    return made


def _put_at(document: dict[str, Any], path: Path, value: str) -> None:
    first, *rest = path
    key = str(first)
    if not rest:
        document[key] = value
    elif isinstance(rest[0], int):
        document[key] = [value]
    else:
        inside = document.setdefault(key, {})
        _put_at(inside, tuple(rest), value)


def _first_text(event: Event, paths: tuple[Path, ...]) -> str:
    return next((text for path in paths if (text := _text_at(event, path))), "")


def _text_at(value: object, path: Path) -> str:
    """Return the text at `path` in `value`, JSON of any shape; empty if there is none."""
    if not path:
        return ""
    for step in path:
        if isinstance(value, Mapping) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            return ""
    # JSON can hold half of a surrogate pair, which cannot be sent to the daemon.
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""
