"""Tests whether a message typed in a client reaches capd, over the hook that was installed.

    launcher       is started in the way the client starts it, which opens a session
    hook command   is read from the client's file, and run with a message
    daemon         reports whether the message reached that session

Claude Code's hook is a call on the session's own connection, and opencode's plugin sends the daemon
a turn. So for these two clients, the check makes that call or sends that turn itself. The client is
not started, so the check does not show whether the client runs its hooks.
"""

import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.hook import BUDGET_VARIABLE, LONGEST_BUDGET
from capd_client.hooks import CLIENTS, sample_event
from capd_client.install import InstallError, UnreadableError
from capd_client.install.client import Client
from capd_client.install.edits import FileEdit, is_made
from capd_client.install.files import read
from capd_client.install.hook_lists import our_arguments
from capd_client.install.jsonc import parse
from capd_client.install.prompt_hooks import TRUSTED_BY_HASH, trust_edits
from capd_client.mcp_host import HostError, McpHost
from capd_protos.places import places

Answer = Literal["yes", "no", "not tried"]

MESSAGE = "Thanks!"
"""A message for which routing activates no capability."""
_HANDSHAKE_TIMEOUT = 10.0
_HOOK_TIMEOUT = 6.0
_ARRIVAL = 2.0
"""Seconds for the daemon to record a message that a hook has sent."""
_LOOK_AGAIN = 0.05
_CHECK_AGAIN = "See what is wrong with: capd doctor"


@dataclass(frozen=True, slots=True)
class PromptCheck:
    """Whether a message typed in a client reaches capd, and if not, why and how to repair it."""

    answer: Answer
    reason: str = ""
    repair: str = ""

    def lines(self, title: str) -> str:
        """Return the result as lines for a person; `title` is the client's name."""
        if self.answer == "not tried":
            return f"{title}: {self.reason}"
        why = "".join(f"\n  {each}" for each in (self.reason, self.repair) if each)
        return f"{title}: your prompt reached capd: {self.answer}{why}"


def check_prompt(client: Client, env: Mapping[str, str], uid: int, launcher: Path) -> PromptCheck:
    """Send a message as the client's hook would; return whether it reached the client's session.

    The daemon of the user `uid` is asked, and must be running. `launcher` is the program that the
    client starts. The check takes about a second. If the launcher, the hook or the daemon fails,
    or a file of the client cannot be read or parsed, the result has the reason.
    """
    edits = client.hooks()
    if client.known.no_prompts or not edits:
        reason = client.known.no_prompts or "it has no prompt hook"
        return PromptCheck("not tried", f"your prompts do not reach capd: {reason}")
    try:
        skipped = _hook_is_skipped(client, edits, env, launcher)
    except InstallError as error:
        reason = str(error).partition("\n")[0]
        return PromptCheck("no", reason, f"Correct the file, then: capd install {client.name}")
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        return PromptCheck("no", reason, f"Correct that, then: capd install {client.name}")
    if skipped is not None:
        return skipped
    with tempfile.TemporaryDirectory(prefix="capd-check-") as project:
        try:
            return _tried(client, env, places(env, uid).socket, launcher, project)
        except (HostError, OSError) as error:
            reason = f"an editor that starts {launcher} gets no answer: {error}"
            return PromptCheck("no", reason, _CHECK_AGAIN)
        except (DaemonDownError, ControlError) as error:
            return PromptCheck("no", f"the daemon does not answer: {error}", _CHECK_AGAIN)


def _hook_is_skipped(
    client: Client, edits: Sequence[FileEdit], env: Mapping[str, str], launcher: Path
) -> PromptCheck | None:
    """Return the result if the client's files show that it does not run capd's hook; else None.

    `edits` add the hook to those files.

    Raises:
        InstallError: a file cannot be parsed; the first line of the text names it.
        OSError: a file cannot be read.
    """
    missing = [edit.path for edit in edits if not is_made(edit)]
    if missing:
        return PromptCheck(
            *("no", f"{missing[0]} does not have capd's hook"),
            f"Put it back with: capd install {client.name}",
        )
    if client.name in TRUSTED_BY_HASH:
        trust = trust_edits(client.name, env, launcher)
        if not all(is_made(edit) for edit in trust):
            return PromptCheck(
                *("no", f"{client.title} skips capd's hook until you trust it"),
                f"Run {client.name}, then /hooks; or trust it unseen: "
                f"capd install {client.name} --trust-hooks",
            )
    return None


def _tried(
    client: Client, env: Mapping[str, str], socket: str, launcher: Path, project: str
) -> PromptCheck:
    key = f"check-{client.name}-{secrets.token_hex(4)}"
    own = _without_conversation(env)
    started = {**own, "CAPD_SESSION": key, "CAPD_CLIENT": client.known.behaviour}
    with Control(socket) as control, McpHost([str(launcher)], env=started, cwd=project) as host:
        host.initialize(client.known.behaviour, _HANDSHAKE_TIMEOUT)
        if client.name == "claude":
            arguments = {"prompt": MESSAGE, "session_id": key, "cwd": project}
            host.call("capd_turn", arguments, _HOOK_TIMEOUT)
            return _result_for(control, key)
        if client.name == "opencode":
            asked = {"text": MESSAGE, "session": key, "mute": False, "patience": 0.3}
            control.call("turn", asked)
            return _result_for(control, key)
        commands = [found for edit in client.hooks() for found in _commands(edit.path)]
        if not commands:
            return PromptCheck("no", "no file of its hooks names capd's command", _CHECK_AGAIN)
        line, (hook, event) = commands[0]
        message = json.dumps(sample_event(hook, event, MESSAGE, key, project))
        problem = _run(line, message, own, project)
        result = _result_for(control, key, problem)
        if result.answer == "yes" or problem or BUDGET_VARIABLE in env:
            return result
        # On a busy machine a hook gives up before the daemon has read its message.
        patient = {**own, BUDGET_VARIABLE: str(LONGEST_BUDGET)}
        _run(line, message, patient, project)
        if _result_for(control, key).answer == "yes":
            reason = "only when it waited longer than it does by itself: the machine is busy"
            return PromptCheck("yes", reason, f"Let it wait with {BUDGET_VARIABLE}=1, in seconds")
        return result


def _run(line: str, message: str, env: Mapping[str, str], project: str) -> str:
    """Run the command line `line` of a hook as a client does, with the JSON `message` as its input.

    It runs in the folder `project`, with the environment `env`. Return what went wrong; empty if
    nothing did.
    """
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            input=message.encode(),
            env=dict(env),
            cwd=project,
            capture_output=True,
            timeout=_HOOK_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the hook's command did not end within {_HOOK_TIMEOUT:g} s: {line}"
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        words = f": {lines[-1]}" if lines else ""
        return f"the hook's command ended with code {done.returncode}{words}"
    return ""


def _result_for(control: Control, key: str, problem: str = "") -> PromptCheck:
    """Wait until the daemon has linked a message to the session `key`; return the result.

    With a `problem` the daemon is asked only once, because the hook has failed already. The problem
    then becomes the reason.
    """
    give_up_at = time.monotonic() + (0.0 if problem else _ARRIVAL)
    while True:
        sessions = control.call("sessions")["sessions"]
        if any(each["key"] == key and each["linked_by"] for each in sessions):
            return PromptCheck("yes")
        if time.monotonic() >= give_up_at:
            break
        time.sleep(_LOOK_AGAIN)
    return PromptCheck("no", problem or "the hook ran, and no message came", _CHECK_AGAIN)


def _commands(path: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield capd's command lines in a file of hooks, with the hook's client and event."""
    data = read(path)
    if data is None:
        return
    text = data.decode()
    lines: list[str] = []
    if text.startswith("#!"):
        lines = [each.removeprefix("exec ") for each in text.splitlines()]
    elif path.suffix == ".json":
        try:
            lines = list(_strings(parse(text).value))
        except UnreadableError:
            return
    for line in lines:
        found = our_arguments(line)
        if found is not None and found[0] in CLIENTS:
            yield line, found


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def _without_conversation(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the environment without variables that name an agent's conversation.

    An agent that runs this command sets them. With them, the message of the check would count as a
    message of that agent.
    """
    return {
        name: value
        for name, value in env.items()
        if not name.endswith("_SESSION_ID") and name not in {"CAPD_ACP", "CAPD_SESSION"}
    }
