"""The daemon under launchd, on macOS. Written from Apple's manual pages; checked by its parser."""

import os
import plistlib
from collections.abc import Mapping
from pathlib import Path

from capd_client.service.log_files import log_command
from capd_client.service.manager import daemon_command, own_variables, run
from capd_protos.places import places

LABEL = "dev.capd.daemon"


class Launchd:
    """launchd as this user reaches it."""

    name = "launchd"

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        home = Path(env.get("HOME") or Path.home())
        self._plist = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._domain = f"gui/{os.getuid()}"
        self._log = Path(places(env, os.getuid()).state, "capd.log")

    def plist(self) -> bytes:
        """Return the agent's property list, as XML."""
        agent = {
            "Label": LABEL,
            "ProgramArguments": daemon_command(),
            "EnvironmentVariables": own_variables(self._env),
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
        """Write the property list and load it."""
        del is_hardened
        self._plist.parent.mkdir(parents=True, exist_ok=True)
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        was_loaded = self.is_installed()
        self._plist.write_bytes(self.plist())
        if was_loaded:
            run(["launchctl", "bootout", f"{self._domain}/{LABEL}"])
        run(["launchctl", "bootstrap", self._domain, str(self._plist)])
        return [f"wrote {self._plist}", f"{LABEL} is loaded"]

    def uninstall(self) -> list[str]:
        """Unload the agent and remove its property list."""
        if not self.is_installed():
            return ["no agent of capd is installed"]
        run(["launchctl", "bootout", f"{self._domain}/{LABEL}"])
        self._plist.unlink()
        return [f"removed {self._plist}"]

    def is_installed(self) -> bool:
        """Whether the property list is in place."""
        return self._plist.exists()

    def start(self) -> None:
        """Start the agent."""
        run(["launchctl", "kickstart", f"{self._domain}/{LABEL}"])

    def stop(self) -> None:
        """Ask the daemon to end, with exit code 0, which launchd leaves be."""
        run(["launchctl", "kill", "SIGTERM", f"{self._domain}/{LABEL}"])

    def restart(self) -> None:
        """End the daemon and start it again."""
        run(["launchctl", "kickstart", "-k", f"{self._domain}/{LABEL}"])

    def logs(self, *, follow: bool, lines: int, is_bare: bool = False) -> list[str]:
        """Return the command that shows the log file."""
        del is_bare
        return log_command(self._log, follow=follow, lines=lines)
