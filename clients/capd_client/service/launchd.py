"""The daemon as an agent of launchd, on macOS.

Written from the manual pages launchd.plist(5) and launchctl(1).
"""

import os
import plistlib
from collections.abc import Mapping
from pathlib import Path
from xml.parsers.expat import ExpatError

from capd_client.service.log_files import log_command
from capd_client.service.manager import daemon_command, kept_variables, own_variables, run
from capd_client.service.stopping import end
from capd_protos.places import make_folders, places

LABEL = "dev.capd.daemon"


class Launchd:
    """Installs and controls the agent `dev.capd.daemon` of the current user.

    Raises:
        ServiceError: launchctl failed.
    """

    name = "launchd"
    when_stopped = "the next login starts it again, and so does: capd daemon start"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        home = Path(env.get("HOME") or Path.home())
        self.path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._domain = f"gui/{os.getuid()}"
        self.target = f"{self._domain}/{LABEL}"
        where = places(env, os.getuid())
        self._socket = where.socket
        self._log = Path(where.state, "capd.log")

    def plist(self) -> bytes:
        """Return the property list that this capd would install, as XML."""
        agent = {
            "Label": LABEL,
            "ProgramArguments": daemon_command(),
            "EnvironmentVariables": kept_variables(self._env),
            # Started at login, and again unless it ended on purpose.
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ProcessType": "Interactive",
            "ExitTimeOut": 20,
            "Umask": 0o077,
            "SoftResourceLimits": {"NumberOfFiles": 16384, "Core": 0},
            "StandardErrorPath": str(self._log),
        }
        return plistlib.dumps({key: value for key, value in agent.items() if value != {}})

    def install(self, *, is_hardened: bool) -> list[str]:
        """Write the property list and load it; return what was done, one line for each step.

        launchd has no hardened form, so `is_hardened` changes nothing.
        """
        del is_hardened
        self.path.parent.mkdir(parents=True, exist_ok=True)
        make_folders(self._log.parent)
        was_loaded = self.is_installed()
        self.path.write_bytes(self.plist())
        if was_loaded:
            run(["launchctl", "bootout", self.target])
        run(["launchctl", "bootstrap", self._domain, str(self.path)])
        return [f"wrote {self.path}", f"{LABEL} is loaded"]

    def uninstall(self) -> list[str]:
        """Unload the agent and remove its property list.

        Return what was done, one line for each step.
        """
        if not self.is_installed():
            return ["no agent of capd is installed"]
        run(["launchctl", "bootout", self.target])
        self.path.unlink()
        return [f"removed {self.path}"]

    def is_installed(self) -> bool:
        """Whether the property list of the agent is in place."""
        return self.path.exists()

    def serves(self) -> bool:
        """Whether the installed property list has this command's CAPD_HOME and CAPD_SOCKET."""
        try:
            agent = plistlib.loads(self.path.read_bytes())
        except (plistlib.InvalidFileException, ExpatError, ValueError):
            return False
        return own_variables(agent.get("EnvironmentVariables", {})) == own_variables(self._env)

    def start(self) -> None:
        """Start the agent."""
        run(["launchctl", "kickstart", self.target])

    def stop(self) -> bool:
        """End the daemon with exit code 0, after which launchd does not restart it.

        Return whether one was running.
        """
        return bool(end(places(self._env, os.getuid()), for_good=True))

    def restart(self) -> None:
        """End the daemon and start it again."""
        run(["launchctl", "kickstart", "-k", self.target])

    def logs(self, *, follow: bool, lines: int, is_bare: bool = False) -> list[str]:
        """Return the command that shows the last `lines` lines of the log file.

        With `follow` the command goes on with new lines. `is_bare` changes nothing: the lines of a
        file have no prefix of the journal.
        """
        del is_bare
        return log_command(self._log, follow=follow, lines=lines)
