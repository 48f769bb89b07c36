"""The interface of all service managers, and what they share."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from capd_protos.places import folder_variables

_OWN = ("CAPD_HOME", "CAPD_SOCKET")


class ServiceError(Exception):
    """The service could not be changed; the text says why and what to do."""


class Manager(Protocol):
    """A way of keeping the daemon running: systemd, launchd, or a plain process.

    Raises:
        ServiceError: a method failed.
    """

    name: str
    """The name for a person."""
    when_stopped: str
    """What starts the daemon again after `stop`, in words for a person."""

    def install(self, *, is_hardened: bool) -> list[str]:
        """Install the service and start it; return what was done, one line for each step.

        `is_hardened` adds systemd's directives that imply NoNewPrivileges.
        """
        ...

    def uninstall(self) -> list[str]:
        """Stop the service and remove it; return what was done, one line for each step."""
        ...

    def is_installed(self) -> bool:
        """Whether the service is installed, running or not."""
        ...

    def start(self) -> None:
        """Start the daemon."""
        ...

    def serves(self) -> bool:
        """Whether the installed service has the same CAPD_HOME and CAPD_SOCKET as this command."""
        ...

    def stop(self) -> bool:
        """Stop the daemon, letting calls in progress end; return whether one was running."""
        ...

    def restart(self) -> None:
        """Stop the daemon and start it again."""
        ...

    def logs(self, *, follow: bool, lines: int, is_bare: bool = False) -> list[str]:
        """Return the command that prints the last `lines` lines of the daemon's log.

        With `follow` the command goes on with new lines. With `is_bare` each line is as the daemon
        wrote it, without the journal's prefix.
        """
        ...


def daemon_command() -> list[str]:
    """Return the absolute command that runs the daemon, as this `capd` would.

    It is the console script beside this interpreter, which `pipx` and `uv tool` upgrade in place.
    Without one, it is the interpreter and the module, without the working directory on its path.
    """
    script = Path(sys.executable).with_name("capd")
    if os.access(script, os.X_OK):
        return [str(script), "daemon", "run"]
    return [sys.executable, "-P", "-m", "capd_client.entry", "daemon", "run"]


def own_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return CAPD_HOME and CAPD_SOCKET, as far as `env` sets them, as absolute paths.

    They say which daemon this command speaks to.
    """
    return {key: str(Path(env[key]).absolute()) for key in _OWN if env.get(key)}


def kept_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return what a service keeps of `env`, as absolute paths.

    These are `own_variables`, and the `XDG_*` variables that move capd's folders: the service
    manager may not have those of the user's shell.
    """
    return own_variables(env) | folder_variables(env)


def run(command: Sequence[str]) -> str:
    """Run a command such as systemctl and return its standard output.

    Raises:
        ServiceError: it does not exist, or its exit code is not 0.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServiceError(f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        output = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise ServiceError(f"{' '.join(command)} failed: {output}")
    return done.stdout
