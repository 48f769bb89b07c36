"""Adds capd to Claude Code: a server entry in its configuration, and hooks in its settings.

A hook of type `mcp_tool` calls capd's tool `capd_turn` on the session's own connection to the shim,
so capd knows from which session the call comes (docs/design/clients.md, finding 2). There is one
such hook for each event that capd needs:

    UserPromptSubmit                the user's message
    PreToolUse                      the skill that is used, or the sub-agent that calls a capd tool
    SubagentStart, SubagentStop     the sub-agent that begins or ends

VS Code reads the same settings, but runs hooks of type `command` only (finding 12). So there is a
second hook for prompts, of that type; it does nothing when Claude Code runs it.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capd_client.install import UnreadableError
from capd_client.install.client import Client
from capd_client.install.edits import FileChange, FileEdit
from capd_client.install.files import read, real_path
from capd_client.install.jsonc import Node, find, parse
from capd_client.install.jsonc_edits import append, put, take
from capd_client.install.known_clients import KnownClient
from capd_client.install.launcher import NAME as LAUNCHER_NAME
from capd_client.install.pruning import prune

_PROMPT, _TOOL = "UserPromptSubmit", "PreToolUse"
_AGENT_BEGINS, _AGENT_ENDS = "SubagentStart", "SubagentStop"
_VENDOR_TIMEOUT = 60.0

HOOK: dict[str, Any] = {
    "type": "mcp_tool",
    "server": "capd",
    "tool": "capd_turn",
    "input": {"prompt": "${prompt}", "session_id": "${session_id}", "cwd": "${cwd}"},
    "timeout": 5,
}
TOOL_HOOK: dict[str, Any] = {
    **HOOK,
    "input": {
        "event": _TOOL,
        "skill": "${tool_input.skill}",
        "tool_use_id": "${tool_use_id}",
        "agent_id": "${agent_id}",
        "session_id": "${session_id}",
        "cwd": "${cwd}",
    },
}
_MATCHERS = {_TOOL: "^(Skill|mcp__capd__.*)$"}
"""The tools for which an event's hook runs. Without this, the hook would delay every tool call."""


def agent_hook(event: str) -> dict[str, Any]:
    """Return the hook for `event`, which is `SubagentStart` or `SubagentStop`."""
    told = {"event": event, "agent_id": "${agent_id}"}
    return {**HOOK, "input": {**told, "session_id": "${session_id}", "cwd": "${cwd}"}}


class Claude(Client):
    """Claude Code, which has a command of its own for adding servers, and hooks in its settings."""

    def __init__(self, known: KnownClient, env: Mapping[str, str], launcher: Path) -> None:
        super().__init__(known, env, launcher)
        home = Path(env.get("HOME") or Path.home())
        folder = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude")
        self.settings = folder / "settings.json"
        # These words must never change: a client may have made its user trust them.
        command = f"{shlex.quote(str(launcher))} hook claude UserPromptSubmit"
        self._hooks = {
            _PROMPT: (HOOK, {"type": "command", "command": command, "timeout": 5}),
            _TOOL: (TOOL_HOOK,),
            _AGENT_BEGINS: (agent_hook(_AGENT_BEGINS),),
            _AGENT_ENDS: (agent_hook(_AGENT_ENDS),),
        }

    def hooks(self) -> list[FileEdit]:
        """Return the one edit that adds all of capd's hooks to `settings.json`."""
        return [FileEdit(self.settings, self._add_hooks, _remove_hooks)]

    def vendor_command(self, change: FileChange) -> list[str]:
        """Return `claude mcp add-json ...` if it can make `change`; otherwise an empty list.

        It cannot if `claude` is not on PATH, if `change` is to another file, or if the file has a
        server named capd already.
        """
        program = shutil.which("claude", path=self._env.get("PATH", os.defpath))
        if program is None or change.path != real_path(self.config):
            return []
        if change.before and self.server.own_program(change.before.decode()) is not None:
            # Claude Code's command refuses to change an existing server.
            return []
        entry = json.dumps(self.server.entry, separators=(",", ":"))
        return [program, "mcp", "add-json", "capd", entry, "--scope", "user"]

    def run_vendor(self, command: list[str]) -> bytes | None:
        """Run `command`, which adds the server; return the file's new content.

        Return None if the content lacks capd's entry.
        """
        try:
            subprocess.run(
                command,
                # Not in a project's folder: the command reads the settings of that project.
                cwd="/",
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_VENDOR_TIMEOUT,
                check=True,
            )
            data = read(self.config)
            text = "" if data is None else data.decode()
            return data if text and self.server.add(text) == text else None
        except (OSError, subprocess.SubprocessError, UnreadableError, UnicodeDecodeError):
            return None

    def _add_hooks(self, text: str) -> str:
        for event, hooks in self._hooks.items():
            for hook in hooks:
                text = _add_hook(text, event, hook)
        return text


def _add_hook(text: str, event: str, hook: dict[str, Any]) -> str:
    """Return the settings `text` with `hook` for `event`.

    capd's hook of that type is updated if it is there; otherwise a new one is added.
    """
    there = _hooks(text, event)
    place = [found[:2] for found in there if found[2]["type"] == hook["type"]]
    if place:
        return _update(text, event, *place[0], hook)
    if there:
        return append(text, (*_list(event), there[0][0], "hooks"), hook)
    matcher = {"matcher": _MATCHERS[event]} if event in _MATCHERS else {}
    return append(text, _list(event), {**matcher, "hooks": [hook]})


def _list(event: str) -> tuple[str, str]:
    """Return the keys that lead to the list of hooks for an event, in Claude Code's settings."""
    return ("hooks", event)


def _found(text: str, path: tuple[str | int, ...]) -> Node | None:
    return find(parse(text), path) if text.strip("\ufeff \t\r\n") else None


def _hooks(text: str, event: str) -> list[tuple[int, int, Any]]:
    """Return capd's hooks for an event in `text`: the group, the position and the value of each."""
    groups = _found(text, _list(event))
    found = []
    is_list = groups is not None and isinstance(groups.value, list)
    for at, group in enumerate(groups.value if groups is not None and is_list else ()):
        hooks = group.get("hooks") if isinstance(group, dict) else None
        for place, hook in enumerate(hooks if isinstance(hooks, list) else ()):
            if isinstance(hook, dict) and _is_our_hook(hook):
                found.append((at, place, hook))
    return found


def _is_our_hook(hook: dict[str, Any]) -> bool:
    if all(hook.get(key) == HOOK[key] for key in _IDENTITY):
        return True
    command = hook.get("command")
    if hook.get("type") != "command" or not isinstance(command, str):
        return False
    try:
        program, *arguments = shlex.split(command)
    except ValueError:
        return False
    return Path(program).name == LAUNCHER_NAME and arguments[:2] == ["hook", "claude"]


_IDENTITY = ("type", "server", "tool")
_OURS = {"mcp_tool": "input", "command": "command"}
"""The member of each type of hook that capd rewrites; all others, such as `timeout`, stay."""


def _update(text: str, event: str, group: int, place: int, hook: dict[str, Any]) -> str:
    key = _OURS[hook["type"]]
    path = (*_list(event), group)
    found = _found(text, path)
    matcher = _MATCHERS.get(event)
    # An earlier version of capd wrote another matcher.
    is_other = matcher is not None and found is not None and found.value.get("matcher") != matcher
    if is_other and found is not None and len(found.value["hooks"]) > 1:
        # The group has hooks of the user, which stay as they are.
        text = take(text, (*path, "hooks", place))
        return append(text, _list(event), {"matcher": matcher, "hooks": [hook]})
    if is_other:
        text = put(text, (*path, "matcher"), matcher)
    return put(text, (*path, "hooks", place, key), hook[key])


def _remove_hooks(text: str, original: str | None) -> str:
    for event in (_PROMPT, _TOOL, _AGENT_BEGINS, _AGENT_ENDS):
        for group, place, _ in reversed(_hooks(text, event)):
            hooks = (*_list(event), group, "hooks")
            text = take(text, (*hooks, place))
            left = _found(text, hooks)
            if left is not None and not left.value:
                text = take(text, (*_list(event), group))
        text = prune(text, _list(event), original)
    return text
