"""Checks the daemon as an agent of launchd: installed, current, running.

The output of `launchctl print` is for people and its format may change, so lines that are not
understood are ignored. It lists the agent's environment, so it is never printed whole.
"""

import os
import plistlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_client.service.launchd import LABEL, Launchd

_AGAIN = "capd daemon install"
_NO_SUCH_SERVICE = 113
_TIMEOUT = 5.0
_OFTEN = 5
"""A running agent with this many starts since it was loaded is reported, as it keeps ending."""
# Lines with one tab are about the agent itself; deeper ones about its endpoints and environment.
_FACT = re.compile(r"^(?:\t| {1,4})?([a-z][a-z ]*) = (.*)$")


@dataclass(frozen=True, slots=True)
class Agent:
    """The state of capd's launchd agent, as `launchctl print` reports it."""

    state: str = ""
    pid: int = 0
    runs: int = 0
    last_exit: str = ""
    """How the last run ended, such as `with code 1`; empty if it never ended, or with code 0."""


def agent_of(output: str) -> Agent:
    """Return the state of the agent in `output`, which `launchctl print` has printed.

    A field that the output does not have keeps its default.
    """
    facts: dict[str, str] = {}
    for line in output.splitlines():
        if fact := _FACT.match(line):
            facts.setdefault(fact[1], fact[2].strip())
    code = facts.get("last exit code", "")
    last_exit = f"with code {code}" if re.match(r"-?\d", code) and code != "0" else ""
    if killed := facts.get("last terminating signal"):
        last_exit = f"by signal {killed}"
    return Agent(facts.get("state", ""), _number(facts, "pid"), _number(facts, "runs"), last_exit)


def agent_findings(
    written: bytes | None, wanted: bytes, code: int, output: str
) -> Iterator[Finding]:
    """Yield how the installed agent differs from the one that this capd would install.

    `written` is the installed property list (None if there is none), `wanted` the one that this
    capd would write. `code` and `output` are those of `launchctl print`.
    """
    if written is None:
        text = f"no agent of launchd is installed: the first client starts the daemon (`{_AGAIN}`)"
        yield Finding("service", "note", text)
        return
    troubles = [*_as_written(written, wanted), *_as_loaded(code, output)]
    yield from troubles
    if not troubles:
        agent = agent_of(output)
        runs = f"runs as pid {agent.pid}" if agent.pid else "is loaded, and does not run"
        yield Finding("service", "ok", f"{LABEL} is installed, as this capd writes it, and {runs}")


def check_agent(seen: CheckContext) -> Iterator[Finding]:
    """Check the daemon as an agent of launchd; on systems other than macOS, yield nothing."""
    if sys.platform != "darwin":
        return
    launchd = Launchd(seen.env)
    written = launchd.path.read_bytes() if launchd.is_installed() else None
    code, output = _printed(launchd.target)
    yield from agent_findings(written, launchd.plist(), code, output)


def _as_written(written: bytes, wanted: bytes) -> Iterator[Finding]:
    try:
        found = plistlib.loads(written)
    except Exception:  # noqa: BLE001 - a broken file makes plistlib raise errors of any class
        found = None
    command = found.get("ProgramArguments") if isinstance(found, dict) else None
    if not isinstance(command, list) or not command:
        why = "it is no property list with a command"
        yield Finding("service", "error", f"the agent {LABEL} cannot be read", why, _AGAIN)
        return
    program = str(command[0])
    if not os.access(program, os.X_OK):
        yield Finding(
            "service",
            "error",
            f"{LABEL} starts {program}, which is not there or cannot be run",
            "capd was moved or removed after the agent was installed",
            f"{_AGAIN}, from the capd that is to run",
        )
    elif found != plistlib.loads(wanted):
        why = "another version, or another installation, wrote it; or it was edited"
        text = f"the property list of {LABEL} is not as this capd writes it"
        yield Finding("service", "warning", text, why, _AGAIN)


def _as_loaded(code: int, output: str) -> Iterator[Finding]:
    if code == _NO_SUCH_SERVICE or "Could not find service" in output:
        why = "it was unloaded, or installed in a session without a screen"
        yield Finding("service", "warning", f"{LABEL} is not loaded", why, _AGAIN)
        return
    if code:
        text = f"launchd does not say how {LABEL} fares"
        why = f"launchctl print ended with code {code}"
        yield Finding("service", "warning", text, why, f"launchctl print gui/{os.getuid()}/{LABEL}")
        return
    agent = agent_of(output)
    if agent.last_exit and (not agent.pid or agent.runs >= _OFTEN):
        yield Finding(
            "service",
            "warning" if agent.pid else "error",
            f"{LABEL} was started {agent.runs} times, and ended {agent.last_exit}",
            "launchd starts it again each time that it dies",
            "see why: capd logs",
        )


def _number(facts: dict[str, str], key: str) -> int:
    value = facts.get(key, "")
    return int(value) if value.isascii() and value.isdigit() else 0


def _printed(target: str) -> tuple[int, str]:
    command = ["launchctl", "print", target]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, ""
    return done.returncode, done.stdout + done.stderr
