"""`capd status`, without importing the library that parses other commands' options.

Only the simple forms of the command are parsed here. All others go through `commands`, which calls
this module.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Literal

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.status_text import active_lines, client_line, status_lines
from capd_client.terminal import has_colour, printable, width
from capd_protos.places import places

EXIT_FAILED = 1
EXIT_NO_DAEMON = 3
EXIT_DEGRADED = 4
_STATUS_LINE_PATIENCE = 1.0
START_HINT = "Start it with: capd daemon start"

Form = Literal["page", "json", "line", "client"]
_PLAIN: dict[tuple[str, ...], Form] = {
    (): "page",
    ("--json",): "json",
    ("--line",): "line",
    ("--line", "--client", "claude"): "client",
}
_LONGEST_INPUT_BYTES = 1 << 20


def is_plain(arguments: Sequence[str]) -> bool:
    """Tell whether `main` can handle `arguments`. If it cannot, `commands` has to."""
    return tuple(arguments) in _PLAIN


def main(arguments: Sequence[str]) -> int:
    """Print the status for `arguments`, for which `is_plain` is true; return the exit code."""
    form = _PLAIN[tuple(arguments)]
    if form == "client":
        return show_in_client()
    try:
        return show(form, os.environ.get("CAPD_SESSION", ""))
    except DaemonDownError as error:
        sys.stderr.write(f"capd: {printable(error)}\n{START_HINT}\n")
        return EXIT_NO_DAEMON
    except ControlError as error:
        sys.stderr.write(f"capd: {printable(error.message, keep_lines=True)}\n")
        return EXIT_FAILED


def show_in_client() -> int:
    """Print the status line for the client whose JSON is on standard input.

    Return 0, always: this never fails. Claude Code runs the command after each answer and shows its
    output below the prompt.
    """
    try:
        asked = json.loads(sys.stdin.buffer.read(_LONGEST_INPUT_BYTES))
        workspace = asked.get("workspace") or {}
        project = str(workspace.get("project_dir") or asked.get("cwd") or "")
        where = places(os.environ, os.getuid()).socket
        with Control(where, timeout=_STATUS_LINE_PATIENCE) as control:
            status = control.call("status")
        line = client_line(status, str(asked.get("session_id") or ""), project)
    except (OSError, ValueError, AttributeError, RecursionError, ControlError, DaemonDownError):
        # An editor's status line shows no errors; `capd doctor` reports them.
        return 0
    if line:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


def show(form: Form, session: str = "") -> int:
    """Ask for the status and print it; return the exit code, 4 if the daemon is degraded.

    `session` limits the form `line` to one session.

    Raises:
        DaemonDownError: no daemon answers.
        ControlError: the daemon refused.
    """
    with Control(places(os.environ, os.getuid()).socket) as control:
        status = control.call("status")
    if form == "json":
        # ASCII: texts of servers must not steer a terminal, and any JSON parser restores them.
        lines = [json.dumps(status, indent=2)]
    elif form == "line":
        lines = active_lines(status, session)
    else:
        lines = status_lines(status, now=time.time(), columns=width(), is_coloured=has_colour())
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    return EXIT_DEGRADED if (status.get("daemon") or {}).get("degraded") else 0
