"""The commands of `python -m capd`.

capd daemon run        the daemon, in the foreground
capd check [PATH]      mistakes in taps, overlays and settings
capd config ...        the settings and their values
capd tap build PATH    write a tap's tools.json and vectors.bin
capd registry ...      find, download, check and inspect servers of the public registry
capd eval ...          the quality of decisions, measured on data without a daemon
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from capd.adapters.log import configure_logs
from capd.core.errors import CapdError, leaves
from capd.daemon import FAILED, run_daemon
from capd_protos.places import make_folders, places

USAGE = "usage: python -m capd daemon run | check | config | eval | registry | tap build"
WRONG_USAGE = 2
INTERRUPTED = 130
SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that computes hands Python's global interpreter lock to one that
waits for it. With Python's default, 0.005, each of the thirty system calls of a turn may wait for
5 ms while a large catalog is prepared in a thread."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return_code = 0
    # If standard error is closed, messages go to the log file.
    found = [] if _has_standard_error() else [_log_to_file()]
    match list(arguments):
        case ["daemon", "run"]:
            run = partial(run_daemon, os.environ, found)
        case ["eval", *rest]:
            # Imported here, because it imports numpy, which a daemon needs only for a turn.
            from capd.evaluation import command  # noqa: PLC0415

            return command.main(rest)
        case ["config", *rest]:
            from capd import configuring  # noqa: PLC0415 - the daemon has no use for it

            configure_logs(os.environ)
            return configuring.main(rest)
        case ["check", *rest]:
            from capd import check  # noqa: PLC0415 - the daemon has no use for it

            where = places(os.environ, os.getuid())
            configure_logs(os.environ)
            memories = Path(where.data, "memories")
            return check.main(rest, Path(where.config), Path(where.cache), memories)
        case ["tap", "build", *rest]:
            from capd import tap_build  # noqa: PLC0415 - the daemon has no use for it

            configure_logs(os.environ)
            return tap_build.main(rest, Path(places(os.environ, os.getuid()).cache))
        case ["registry", *rest]:
            from capd import mcp_registry  # noqa: PLC0415 - the daemon has no use for it

            configure_logs(os.environ)
            return mcp_registry.main(rest)
        case _:
            sys.stderr.write(USAGE + "\n")
            return WRONG_USAGE
    configure_logs(os.environ, Path(places(os.environ, os.getuid()).state, "capd.log"))
    problems: list[str] = []
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        trio.run(run)
    except* CapdError as errors:
        problems = [str(error) for error in leaves(errors)]
    except* OSError as errors:
        problems = [f"the daemon cannot run: {error}" for error in leaves(errors)]
    except* KeyboardInterrupt:
        return_code = INTERRUPTED
    for problem in problems:
        sys.stderr.write(f"capd: {problem}\n")
    return FAILED if problems else return_code


def _has_standard_error() -> bool:
    # getattr, because type checkers assume that it always exists.
    return getattr(sys, "stderr", None) is not None


def _log_to_file() -> str:
    """Open the log file as standard error, which is closed; return a note for the status."""
    state = Path(places(os.environ, os.getuid()).state)
    file = state / "capd.log"
    try:
        make_folders(state)
        # Non-blocking: opening a named pipe must not wait for a reader.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(file, flags, 0o600)
    except OSError as error:
        text = f"standard error was closed, and {file} cannot be written ({error.strerror})"
        descriptor = os.open(os.devnull, os.O_WRONLY)
        text += ": nothing is logged. Start the daemon with an open standard error"
    else:
        text = f"standard error was closed when the daemon started: its log is in {file}"
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    return text
