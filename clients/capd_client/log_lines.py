"""Reads the daemon's log from its files or the journal: existing lines, then new ones.

No line is lost in between. `new_lines` reads the last existing lines once more and skips those
that were read already; their timestamps, in microseconds, tell equal lines apart.
"""

import json
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from capd_client.install.files import kind_of
from capd_client.service.manager import Manager, ServiceError
from capd_client.tables import printable

LEVELS = ("debug", "info", "warning", "error", "critical")
_FIRST = ("timestamp", "level", "event")
_COLOURS = {"warning": "yellow", "error": "red", "critical": "red", "debug": "bright_black"}
AGAIN = 1000
"""How many existing lines `new_lines` reads again: more than are written between the two readings.
"""
ALL = 1_000_000
"""More lines than a log has: all of them."""


def check_log(command: Sequence[str]) -> None:
    """Check that the log file exists, if `command` (from `Manager.logs`) reads only that file.

    Raises:
        ServiceError: the file does not exist.
    """
    if command[0] != "tail":
        return
    file = Path(command[-1])
    if file.exists() and not file.is_file():
        kind = kind_of(file.stat().st_mode)
        raise ServiceError(f"{file} is {kind}, not a file\nRemove it: rm {file}")
    if not file.exists():
        raise ServiceError(
            f"there is no log at {command[-1]}\n"
            "A daemon that was started by hand writes to its own terminal. "
            "Let capd start it: capd daemon start"
        )


def existing_lines(manager: Manager, count: int = ALL) -> Iterator[str]:
    """Yield the last `count` lines that the log of `manager`'s daemon has, oldest first.

    Raises:
        ServiceError: the log cannot be read.
    """
    command = manager.logs(follow=False, lines=count, is_bare=True)
    check_log(command)
    with _running(command, subprocess.PIPE) as process:
        yield from _lines(process)
        errors = process.stderr.read().strip() if process.stderr is not None else ""
        if process.wait():
            raise ServiceError(
                f"the log cannot be read: {errors or process.returncode}. A daemon "
                "that you started by hand writes to its own terminal"
            )


def new_lines(manager: Manager, seen: Collection[str]) -> Iterator[str]:
    """Yield each new line of the log as it is written, until the caller stops.

    `seen` are the lines of `existing_lines`, at least the last `AGAIN`.
    """
    old = set(seen)
    command = manager.logs(follow=True, lines=AGAIN, is_bare=True)
    with _running(command, subprocess.DEVNULL) as process:
        for line in _lines(process):
            if line not in old:
                yield line


@contextmanager
def _running(command: list[str], errors_to: int) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=errors_to,
        text=True,
        errors="replace",
        # Ctrl-C is for this command, which then ends the program that it started.
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.rstrip("\n")


class LogLine:
    """One line of the daemon's log; `facts` is its JSON, None if it is not JSON."""

    def __init__(self, line: str) -> None:
        self.text = line
        self.facts: Mapping[str, Any] | None = _facts(line)

    def is_wanted(self, session: str, level: str) -> bool:
        """Tell whether the line is of `session`, and of `level` or above; empty means any."""
        if self.facts is None:
            # A line of an interpreter or a library belongs to no session and has no level.
            return not session and not level
        if session and self.facts.get("session") != session:
            return False
        own = str(self.facts.get("level", ""))
        return not level or own not in LEVELS or LEVELS.index(own) >= LEVELS.index(level)

    def document(self) -> str:
        """Return the line as JSON, in ASCII; empty if it is not JSON."""
        return "" if self.facts is None else json.dumps(self.facts)

    def shown(self) -> str:
        """Return the line for a person: local time, level, event and `key=value`, in colours."""
        if self.facts is None:
            return printable(self.text)
        level = str(self.facts.get("level", ""))
        rest = " ".join(
            f"{key}={_value(value)}" for key, value in self.facts.items() if key not in _FIRST
        )
        line = f"{_time(self.facts)} {level:8}{self.facts.get('event', '')} {rest}".rstrip()
        return click.style(printable(line), fg=_COLOURS.get(level))


def _facts(line: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _time(facts: Mapping[str, Any]) -> str:
    timestamp = str(facts.get("timestamp", ""))
    try:
        at = datetime.fromisoformat(timestamp)
    except ValueError:
        return timestamp
    return f"{at.astimezone():%m-%d %H:%M:%S}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value and " " not in value else json.dumps(value)
