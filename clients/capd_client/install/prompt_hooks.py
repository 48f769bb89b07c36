"""The prompt hooks that clients get, so that capd sees their users' messages.

Claude Code (`claude.py`) needs several hooks; opencode (`installed_clients.py`) has a plugin and no
hook. The command line of a hook never changes, because users of some clients trust it by its text.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from capd_client.install import InstallError
from capd_client.install.edits import FileEdit
from capd_client.install.hook_lists import HookList, is_our_command
from capd_client.install.toml_edits import parse, put, take

_STATE = ("hooks", "state")
"""The keys in Codex' config.toml that lead to the record of which hooks are trusted."""
TRUSTED_BY_HASH = ("codex",)
"""Clients that run a hook only after their user has trusted its text."""
_EVENT = "user_prompt_submit"
_HASH = "trusted_hash"
_TIMEOUT = 5
"""Seconds that a client waits for a hook: `hook_limit` of clients.toml."""
_CLINE_EVENTS = ("TaskStart", "UserPromptSubmit")
EXECUTABLE = 0o700


# Codex silently skips a hook until its user has reviewed and trusted it
# (docs/design/clients.md, finding 8). The review is the user's: capd writes the trust only for a
# user who has asked for it.
def trusted_hash(hook: Mapping[str, Any]) -> str:
    """Return the hash that Codex stores for `hook` once its user has trusted it."""
    trusted = {"event_name": _EVENT, "hooks": [{"async": False, **hook}]}
    text = json.dumps(trusted, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def trust_edit(config: Path, hooks_file: Path, hooks: HookList) -> FileEdit:
    """Return the edit of `config` that makes Codex trust capd's hook in `hooks_file`.

    `hooks` describes the list in that file to which the hook belongs.

    Raises:
        InstallError: capd's hook is not in `hooks_file`.
    """
    try:
        places = hooks.places(hooks_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        places = []
    if not places:
        raise InstallError(f"{hooks_file} has no hook of capd\nFirst: capd install codex")
    _, _, group, _, handler = places[0]
    key = f"{hooks_file}:{_EVENT}:{group}:{handler}"
    digest = trusted_hash(hooks.hook)
    return FileEdit(
        config,
        lambda text: _trusted(text, key, digest),
        lambda text, _: untrusted(text, hooks_file, hooks),
    )


def untrusted(text: str, hooks_file: Path, hooks: HookList) -> str:
    """Return Codex' configuration `text` without trust in capd's hook; other hooks stay trusted."""
    digest = trusted_hash(hooks.hook)
    for key, each in _states(text).items():
        is_ours = isinstance(each, dict) and each.get(_HASH) == digest
        if is_ours and key.startswith(f"{hooks_file}:{_EVENT}:"):
            text = take(text, (*_STATE, key))
    return text


def _trusted(text: str, key: str, digest: str) -> str:
    if not isinstance(_states(text).get(key), dict):
        return put(text, (*_STATE, key), {_HASH: digest})
    return put(text, (*_STATE, key, _HASH), digest)


def _states(text: str) -> dict[str, Any]:
    found: Any = parse(text)
    for step in _STATE:
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def hook_edits(client_id: str, env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    """Return the edits of the files with a client's prompt hooks, which start `launcher`.

    There are none if the client has no prompt hook. A hook and the server's entry may be in one
    file; `plan_install` joins the edits of a file.
    """
    made = _MAKERS.get(client_id)
    return [] if made is None else made(env, launcher)


def hook_command(launcher: Path, client: str, event: str) -> str:
    """Return the command line that runs `launcher` as capd's hook for `event` of `client`."""
    return f"{shlex.quote(str(launcher))} hook {client} {event}"


def codex_hooks_file(env: Mapping[str, str]) -> Path:
    """Return the path of the file with Codex' hooks, which need not exist."""
    return _folder(env, "CODEX_HOME", ".codex") / "hooks.json"


def codex_hook(launcher: Path) -> dict[str, Any]:
    """Return capd's hook for Codex. Any change of it ends the user's trust, as its hash changes."""
    command = hook_command(launcher, "codex", "UserPromptSubmit")
    return {"type": "command", "command": command, "timeout": _TIMEOUT}


def trust_edits(client_id: str, env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    """Return the edits that make a client trust capd's hook without asking its user.

    Raises:
        InstallError: the hook is not installed, or the client needs no trust in hooks.
    """
    if client_id not in TRUSTED_BY_HASH:
        raise InstallError(f"{client_id} asks for no trust in hooks\nLeave --trust-hooks out.")
    return [trust_edit(_codex_config(env), codex_hooks_file(env), _codex_hooks(launcher))]


def _codex(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    file, hooks = codex_hooks_file(env), _codex_hooks(launcher)
    # The trust is removed together with the hook; adding it is a separate step.
    trust = FileEdit(
        _codex_config(env), lambda text: text, lambda text, _: untrusted(text, file, hooks)
    )
    return [_edit(file, hooks), trust]


def _codex_hooks(launcher: Path) -> HookList:
    return HookList("UserPromptSubmit", "groups", codex_hook(launcher), "codex")


def _codex_config(env: Mapping[str, str]) -> Path:
    return _folder(env, "CODEX_HOME", ".codex") / "config.toml"


def _gemini(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    command = hook_command(launcher, "gemini", "BeforeAgent")
    # Gemini's limit is in milliseconds.
    hook = {"name": "capd", "type": "command", "command": command, "timeout": _TIMEOUT * 1000}
    home = _folder(env, "GEMINI_CLI_HOME", "")
    return [
        _edit(home / ".gemini/settings.json", HookList("BeforeAgent", "groups", hook, "gemini"))
    ]


def _qwen(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    command = hook_command(launcher, "qwen", "UserPromptSubmit")
    hook = {"name": "capd", "type": "command", "command": command, "timeout": _TIMEOUT}
    hooks = HookList("UserPromptSubmit", "groups", hook, "qwen")
    return [_edit(_home(env) / ".qwen/settings.json", hooks)]


def _copilot(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    command = hook_command(launcher, "copilot", "userPromptSubmitted")
    hook = {"type": "command", "bash": command, "timeoutSec": _TIMEOUT}
    hooks = HookList("userPromptSubmitted", "flat", hook, "copilot", "bash", version=1)
    return [_edit(_folder(env, "COPILOT_HOME", ".copilot") / "hooks/capd.json", hooks)]


def _vscode(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    # VS Code has no folder of its own for a user's hooks. Copilot CLI runs this hook as well as its
    # own; the daemon counts a message of one conversation once.
    command = hook_command(launcher, "code", "UserPromptSubmit")
    hook = {"type": "command", "command": command, "timeout": _TIMEOUT}
    hooks = HookList("UserPromptSubmit", "flat", hook, "code")
    return [_edit(_folder(env, "COPILOT_HOME", ".copilot") / "hooks/capd-vscode.json", hooks)]


def _cursor(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    command = hook_command(launcher, "cursor", "beforeSubmitPrompt")
    hook = {"command": command, "timeout": _TIMEOUT}
    hooks = HookList("beforeSubmitPrompt", "flat", hook, "cursor", version=1)
    return [_edit(_home(env) / ".cursor/hooks.json", hooks)]


def _windsurf(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    command = hook_command(launcher, "windsurf", "pre_user_prompt")
    hook = {"command": command, "show_output": False}
    hooks = HookList("pre_user_prompt", "flat", hook, "windsurf")
    return [_edit(_home(env) / ".codeium/windsurf/hooks.json", hooks)]


def _goose(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    command = hook_command(launcher, "goose", "UserPromptSubmit")
    hook = {"type": "command", "command": command, "timeout": _TIMEOUT}
    plugin = _home(env) / ".agents/plugins/capd"
    described = {
        "name": "capd",
        "version": "1.0.0",
        "description": "Hands what you say to capd, which brings the tools that it needs.",
    }
    return [
        _whole(plugin / "plugin.json", json.dumps(described, indent=2) + "\n"),
        _edit(plugin / "hooks/hooks.json", HookList("UserPromptSubmit", "groups", hook, "goose")),
    ]


def _cline(env: Mapping[str, str], launcher: Path) -> list[FileEdit]:
    folder = _home(env) / ".cline/hooks"
    return [
        FileEdit(
            folder / event,
            partial(_add_script, f"#!/bin/sh\nexec {hook_command(launcher, 'cline', event)}\n"),
            _remove_script,
            EXECUTABLE,
        )
        for event in _CLINE_EVENTS
    ]


def _add_script(script: str, text: str) -> str:
    """Return Cline's script for an event: capd's `script`, or `text` if it is a user's own script.

    Cline runs only one script for each event.
    """
    return script if not text.strip() or _is_our_script(text) else text


def _remove_script(text: str, original: str | None) -> str:
    return (original or "") if _is_our_script(text) else text


def _is_our_script(text: str) -> bool:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return len(lines) == 1 and is_our_command(lines[0].removeprefix("exec "), "cline")


def _edit(path: Path, hooks: HookList) -> FileEdit:
    return FileEdit(path, hooks.add, hooks.remove)


def _whole(path: Path, text: str) -> FileEdit:
    """Return the edit that makes `text` the whole content of the file at `path`.

    Undoing it removes the file, unless somebody has edited the file since.
    """
    return FileEdit(path, lambda _: text, lambda now, _: "" if now == text else now)


def _home(env: Mapping[str, str]) -> Path:
    return Path(env.get("HOME") or Path.home())


def _folder(env: Mapping[str, str], variable: str, name: str) -> Path:
    return Path(env[variable]) if env.get(variable) else _home(env) / name


_MAKERS: dict[str, Callable[[Mapping[str, str], Path], list[FileEdit]]] = {
    "cline": _cline,
    "cline-vscode": _cline,
    "codex": _codex,
    "copilot": _copilot,
    "cursor": _cursor,
    "gemini": _gemini,
    "goose": _goose,
    "qwen": _qwen,
    "vscode": _vscode,
    "vscode-insiders": _vscode,
    "windsurf": _windsurf,
}
