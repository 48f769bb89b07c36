"""`capd hook CLIENT`: a client's prompt hook hands the user's words to the right session.

It reads the client's hook JSON from standard input and prints what that client understands. It
never stands in an editor's way: after `BUDGET`, or whatever goes wrong, it ends with code 0 and
says nothing (40-protocol, "Thin clients").

Claude Code has a second hook, on the session's own connection, and that one speaks there: it has
told both the session's id by its environment. What else reads Claude Code's settings has not.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from capd_client.control import Control, ControlError, DaemonDownError
from capd_protos.places import socket_path

BUDGET = 0.25
"""Seconds from start to end; with Python's own start it stays under the 300 ms of the spec."""
_LONGEST_INPUT_BYTES = 1 << 20


def _claude(said: Mapping[str, Any]) -> dict[str, str]:
    if "sessionId" in said:
        # VS Code. Its session shall not be taken for one of Claude Code in the same project.
        return {
            "text": str(said.get("prompt", "")),
            "client": "code",
            "client_session": str(said["sessionId"]),
            "project": str(said.get("cwd", "")),
        }
    if said.get("session_id") and said["session_id"] == os.environ.get("CLAUDE_CODE_SESSION_ID"):
        return {"text": ""}
    return {
        "text": str(said.get("prompt", "")),
        "client": "claude",
        "client_session": str(said.get("session_id", "")),
        "project": str(said.get("cwd", "")),
    }


def _claude_output(context: str) -> str:
    output = {"hookEventName": "UserPromptSubmit", "additionalContext": context}
    return json.dumps({"hookSpecificOutput": output})


# What each client's hook says, and what it reads.
CLIENTS: dict[str, tuple[Callable[[Mapping[str, Any]], dict[str, str]], Callable[[str], str]]] = {
    "claude": (_claude, _claude_output),
}


def main(arguments: list[str]) -> int:
    """Serve one hook event; `arguments` are the client's name and the event's."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, BUDGET)
    try:
        return _serve(arguments)
    finally:
        # Python takes its handlers away before it ends: an alarm of that moment would kill.
        signal.setitimer(signal.ITIMER_REAL, 0)


def _serve(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in CLIENTS:
        # A hook's standard error is shown by some clients, and this is the installer's mistake.
        sys.stderr.write(f"capd: hook takes one of {', '.join(CLIENTS)}\n")
        return 0
    read, written = CLIENTS[arguments[0]]
    try:
        said = json.loads(sys.stdin.buffer.read(_LONGEST_INPUT_BYTES))
        params = read(said) if isinstance(said, dict) else {}
        if not params.get("text"):
            return 0
        with Control(socket_path(os.environ, os.getuid()), client="hook") as control:
            context = control.call("hook", params).get("context", "")
        if context:
            sys.stdout.write(written(context) + "\n")
            sys.stdout.flush()
    except (OSError, ValueError, AttributeError, ControlError, DaemonDownError):
        # Open: the prompt goes on as if capd were not there.
        return 0
    return 0


def _give_up(*_: object) -> None:
    # Without cleaning up: whatever it hangs in, the editor waits no longer.
    os._exit(0)
