"""`capd status`, in less time than the library that reads the other commands' options takes.

Only the plain ways of asking are read here; any other goes by `commands`, and ends up here too.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Literal

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.status_text import active_lines, status_lines
from capd_client.terminal import has_colour, printable, width
from capd_protos.places import places

EXIT_FAILED = 1
EXIT_NO_DAEMON = 3
EXIT_DEGRADED = 4
START_HINT = "Start it with: capd daemon start"

Form = Literal["page", "json", "line"]
_PLAIN: dict[tuple[str, ...], Form] = {(): "page", ("--json",): "json", ("--line",): "line"}


def is_plain(arguments: Sequence[str]) -> bool:
    """Tell whether `main` understands `arguments`."""
    return tuple(arguments) in _PLAIN


def main(arguments: Sequence[str]) -> int:
    """Print the status as plain `arguments` ask for it; return the exit code."""
    try:
        return show(_PLAIN[tuple(arguments)], os.environ.get("CAPD_SESSION", ""))
    except DaemonDownError as error:
        sys.stderr.write(f"capd: {printable(error)}\n{START_HINT}\n")
        return EXIT_NO_DAEMON
    except ControlError as error:
        sys.stderr.write(f"capd: {printable(error.message, keep_lines=True)}\n")
        return EXIT_FAILED


def show(form: Form, session: str = "") -> int:
    """Ask for the status and print it; return the exit code."""
    with Control(places(os.environ, os.getuid()).socket) as control:
        status = control.call("status")
    if form == "json":
        # ASCII: what servers say must not steer a terminal, and any JSON parser gives it back.
        lines = [json.dumps(status, indent=2)]
    elif form == "line":
        lines = active_lines(status, session)
    else:
        lines = status_lines(status, now=time.time(), columns=width(), is_coloured=has_colour())
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    return EXIT_DEGRADED if (status.get("daemon") or {}).get("degraded") else 0
