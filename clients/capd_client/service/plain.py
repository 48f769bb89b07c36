"""The daemon without a service manager: a process of its own, as a thin client starts it."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.service.log_files import log_command
from capd_client.service.manager import ServiceError, daemon_command
from capd_protos.places import places

PATIENCE = 30.0


class Plain:
    """A detached process that writes a log file."""

    name = "none"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        where = places(env, os.getuid())
        self._socket = where.socket
        self._log = Path(where.state, "capd.log")
        self._started: subprocess.Popen[bytes] | None = None

    def install(self, *, is_hardened: bool) -> list[str]:
        """Refuse: there is nothing to install it into."""
        del is_hardened
        raise ServiceError(
            "no service manager of this user answers (systemctl --user), as in most containers. "
            "Nothing is needed: the first client starts the daemon; capd daemon start does too"
        )

    def uninstall(self) -> list[str]:
        """Say that there is nothing."""
        return ["no service manager of this user answers, so nothing is installed"]

    def is_installed(self) -> bool:
        """Whether a service is in place: never."""
        return False

    def start(self) -> None:
        """Start the daemon, detached, and wait until it answers."""
        if self._answers():
            return
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            process = self._started = subprocess.Popen(
                daemon_command(),
                env=dict(self._env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        give_up_at = time.monotonic() + PATIENCE
        while not self._answers():
            if process.poll() is not None:
                raise ServiceError(f"the daemon ended with code {process.poll()}; see {self._log}")
            if time.monotonic() > give_up_at:
                raise ServiceError(
                    f"the daemon does not answer after {PATIENCE:g} s; see {self._log}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """Ask the daemon to stop, and wait until it has."""
        try:
            with Control(self._socket) as control:
                pid = int(control.daemon["pid"])
                control.call("stop", {})
        except DaemonDownError:
            return
        except ControlError as error:
            raise ServiceError(f"the daemon was not stopped: {error}") from None
        give_up_at = time.monotonic() + PATIENCE
        while self._is_alive(pid):
            if time.monotonic() > give_up_at:
                raise ServiceError(f"the daemon (pid {pid}) does not end; kill {pid} ends it")
            time.sleep(0.05)

    def restart(self) -> None:
        """Stop the daemon and start it again."""
        self.stop()
        self.start()

    def logs(self, *, follow: bool, lines: int, is_bare: bool = False) -> list[str]:
        """Return the command that shows the log file."""
        del is_bare
        return log_command(self._log, follow=follow, lines=lines)

    def _answers(self) -> bool:
        try:
            with Control(self._socket):
                return True
        except (DaemonDownError, ControlError):
            return False

    def _is_alive(self, pid: int) -> bool:
        if self._started is not None and self._started.pid == pid:
            # Ours to reap: until then it is there for whoever looks.
            return self._started.poll() is None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
