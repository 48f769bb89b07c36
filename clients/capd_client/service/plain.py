"""The daemon without a service manager: a detached process, as the shim starts it."""

import errno
import os
import stat
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.install.files import PRIVATE, kind_of
from capd_client.service.log_files import log_command
from capd_client.service.manager import ServiceError, daemon_command, own_variables
from capd_client.service.stopping import PATIENCE, end
from capd_client.shim.login_environment import clean_environment, working_folders
from capd_protos.places import make_folders, places

_REASON = "capd: "
_MOST_WORDS_BYTES = 1 << 20


class Plain:
    """Starts and stops the daemon as a detached process that writes a log file."""

    name = "none"
    when_stopped = "editors that are open do not start it again; one that is opened does"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        where = self._where = places(env, os.getuid())
        self._socket = where.socket
        self._log = Path(where.state, "capd.log")
        self._started: subprocess.Popen[bytes] | None = None

    def install(self, *, is_hardened: bool) -> list[str]:
        """Raise an error, because there is no service manager to install into.

        Raises:
            ServiceError: always.
        """
        del is_hardened
        raise ServiceError(
            "no service manager of this user answers (systemctl --user), as in most containers. "
            "Nothing is needed: the first client starts the daemon; capd daemon start does too"
        )

    def uninstall(self) -> list[str]:
        """Return the line that says that nothing was installed."""
        return ["no service manager of this user answers, so nothing is installed"]

    def is_installed(self) -> bool:
        """Return False: no service is ever installed."""
        return False

    def start(self) -> None:
        """Start the daemon unless one answers, and wait until it answers.

        Raises:
            ServiceError: the daemon ended, or did not answer within `PATIENCE` seconds.
        """
        if self._answers():
            return
        make_folders(self._log.parent)
        with self._opened_log() as log:
            before = os.fstat(log.fileno()).st_size
            process = self._started = subprocess.Popen(
                daemon_command(),
                env=self._daemon_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        give_up_at = time.monotonic() + PATIENCE
        while not self._answers():
            if process.poll() is not None:
                why = self._last_words(before)
                raise ServiceError(
                    f"the daemon ended with code {process.poll()}{why}; see {self._log}"
                )
            if time.monotonic() > give_up_at:
                raise ServiceError(
                    f"the daemon does not answer after {PATIENCE:g} s; see {self._log}"
                )
            time.sleep(0.05)

    def _opened_log(self) -> BinaryIO:
        """Open the log for appending; do not wait for the reader of a named pipe.

        Raises:
            ServiceError: a named pipe or a socket is in its place.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._log, flags, PRIVATE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise self._in_the_way(self._log.stat().st_mode) from None
            raise
        log = os.fdopen(descriptor, "wb", buffering=0)
        mode = os.fstat(descriptor).st_mode
        # A person may have linked the log to /dev/null.
        if not stat.S_ISREG(mode) and not stat.S_ISCHR(mode):
            log.close()
            raise self._in_the_way(mode)
        os.set_blocking(descriptor, True)
        return log

    def _in_the_way(self, mode: int) -> ServiceError:
        what = f"{self._log} is {kind_of(mode)}, not a file"
        return ServiceError(f"{what}\nRemove it: rm {self._log}")

    def _last_words(self, before: int) -> str:
        """Return `: ` and the daemon's reason for its end, which it wrote after `before` bytes.

        Empty if it wrote none: other lines of its log are JSON.
        """
        try:
            with self._log.open("rb") as log:
                log.seek(before)
                lines = log.read(_MOST_WORDS_BYTES).decode(errors="replace").splitlines()
        except OSError:
            return ""
        said = [line for line in lines if line.startswith(_REASON)]
        return f": {said[-1].removeprefix(_REASON)}" if said else ""

    def _daemon_environment(self) -> dict[str, str]:
        own = {os.fsencode(key): os.fsencode(value) for key, value in self._env.items()}
        found = {
            os.fsdecode(k): os.fsdecode(v)
            for k, v in clean_environment(own, working_folders(own)).items()
        }
        return found | own_variables(self._env)

    def stop(self) -> bool:
        """Ask the daemon to stop, and wait until it has stopped; return whether one was running."""
        return self._end(for_good=True)

    def restart(self) -> None:
        """Stop the daemon and start it again."""
        self._end(for_good=False)
        self.start()

    def _end(self, *, for_good: bool) -> bool:
        pid = end(self._where, for_good=for_good)
        if self._started is not None and self._started.pid == pid:
            self._started.wait()
        return bool(pid)

    def serves(self) -> bool:
        """Return True: nothing is installed that could be for other paths."""
        return True

    def logs(self, *, follow: bool, lines: int, is_bare: bool = False) -> list[str]:
        """Return the command that shows the last `lines` lines of the log file.

        With `follow` the command goes on with new lines. `is_bare` changes nothing: the lines of a
        file have no prefix of the journal.
        """
        del is_bare
        return log_command(self._log, follow=follow, lines=lines)

    def _answers(self) -> bool:
        try:
            with Control(self._socket):
                return True
        except (DaemonDownError, ControlError):
            return False
