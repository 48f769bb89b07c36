"""The daemon under the user's systemd: `capd.socket` listens, and `capd.service` is the daemon.

The first connection starts the service; so does the login, because both units are enabled.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import capd_client
from capd_client.service.manager import daemon_command, kept_variables, own_variables, run
from capd_client.service.stopping import ask_to_end, await_end, end
from capd_protos.places import places

SERVICE = "capd.service"
SOCKET = "capd.socket"
HARDENED = "capd-hardened.conf"
ANSWER_TIMEOUT = 5.0


class Systemd:
    """Installs and controls the two units in the current user's systemd.

    Raises:
        ServiceError: systemctl failed, or the daemon did not end.
    """

    name = "systemd"
    when_stopped = (
        f"{SOCKET} does not listen either, so that no editor starts it; "
        "the next login does, and so does: capd daemon start"
    )

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME") or Path.home(), ".config"))
        self.folder = Path(base, "systemd", "user")

    @staticmethod
    def answers() -> bool:
        """Whether the user's systemd answers; in a container it often does not run."""
        command = ["systemctl", "--user", "show", "--property=Version"]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=ANSWER_TIMEOUT)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def install(self, *, is_hardened: bool) -> list[str]:
        """Write, enable and start the units; return what was done, one line for each step.

        A daemon that runs without systemd is stopped first. `is_hardened` adds directives that
        imply NoNewPrivileges.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in self.units().items():
            (self.folder / name).write_text(text, encoding="utf-8")
            written.append(f"wrote {self.folder / name}")
        drop_in = self.folder / f"{SERVICE}.d" / HARDENED
        if is_hardened:
            drop_in.parent.mkdir(exist_ok=True)
            drop_in.write_text(_template(HARDENED), encoding="utf-8")
            written.append(f"wrote {drop_in}")
        else:
            drop_in.unlink(missing_ok=True)
        self._ctl("daemon-reload")
        # systemd cannot listen at the socket while a daemon that it did not start does.
        written.extend(self._end_other())
        self._ctl("enable", SERVICE, SOCKET)
        self._ctl("restart", SOCKET)
        self._ctl("start", SERVICE)
        return [*written, f"{SOCKET} listens on {places(self._env, os.getuid()).socket}"]

    def uninstall(self) -> list[str]:
        """Stop and disable both units, and remove what `install` wrote.

        Return what was done, one line for each step.
        """
        if not self.is_installed():
            return ["no unit of capd is installed"]
        self._ctl("disable", "--now", SOCKET, SERVICE)
        removed = []
        for name in (SERVICE, SOCKET, f"{SERVICE}.d/{HARDENED}"):
            path = self.folder / name
            if path.exists():
                path.unlink()
                removed.append(f"removed {path}")
        drop_ins = self.folder / f"{SERVICE}.d"
        if drop_ins.is_dir() and not any(drop_ins.iterdir()):
            drop_ins.rmdir()
        self._ctl("daemon-reload")
        return removed

    def is_installed(self) -> bool:
        """Whether the file of `capd.service` is there."""
        return (self.folder / SERVICE).exists()

    def start(self) -> None:
        """Start both units."""
        self._ctl("start", SOCKET, SERVICE)

    def serves(self) -> bool:
        """Whether the installed `capd.service` has this command's CAPD_HOME and CAPD_SOCKET."""
        unit = (self.folder / SERVICE).read_text(encoding="utf-8", errors="replace")
        of_capd = ("Environment=CAPD_", 'Environment="CAPD_')
        kept = [each for each in unit.splitlines() if each.startswith(of_capd)]
        return kept == _settings(own_variables(self._env))

    def stop(self) -> bool:
        """Stop both units, and a daemon that systemd did not start; return whether one was running.

        Clients are told not to start another one. Both units are stopped, because the socket alone
        would start the daemon with the next connection.
        """
        # Checked first: if no daemon runs, a request to systemd's socket would start one.
        has_run = _is_active()
        if has_run:
            # Without this request, clients would take the end for a restart, and start a daemon.
            ask_to_end(places(self._env, os.getuid()).socket, for_good=True)
        self._ctl("stop", SOCKET, SERVICE)
        # A daemon that systemd did not start may be running as well; it holds the state folder.
        return bool(end(places(self._env, os.getuid()), for_good=True)) or has_run

    def restart(self) -> None:
        """Restart the service; connections wait at the socket meanwhile."""
        self._ctl("restart", SERVICE)

    def logs(self, *, follow: bool, lines: int, is_bare: bool = False) -> list[str]:
        """Return the `journalctl` command that prints the last `lines` lines of the service's log.

        With `follow` the command goes on with new lines. With `is_bare` lines have no prefix of the
        journal.
        """
        more = ["--follow"] if follow else ["--no-pager"]
        more += ["--output", "cat"] if is_bare else []
        return ["journalctl", "--user", "--unit", SERVICE, "--lines", str(lines), *more]

    def units(self) -> dict[str, str]:
        """Return the units' texts by file name, for this capd and these paths."""
        # A dollar sign begins a variable in a command, and stands for itself elsewhere.
        command = " ".join(_quoted(each).replace("$", "$$") for each in daemon_command())
        lines = [f"ExecStart={command}", *_settings(kept_variables(self._env))]
        service = _with(_template(SERVICE), "ExecStart=", "\n".join(lines))
        socket = _template(SOCKET)
        if own_variables(self._env):
            path = places(self._env, os.getuid()).socket.replace("%", "%%")
            socket = _with(socket, "ListenStream=", f"ListenStream={path}")
        return {SERVICE: service, SOCKET: socket}

    def _end_other(self) -> list[str]:
        if _is_active():
            return []
        pid = ask_to_end(places(self._env, os.getuid()).socket, for_good=False)
        if not pid:
            return []
        await_end(pid)
        return ["stopped the daemon that ran without systemd"]

    def _ctl(self, *arguments: str) -> None:
        run(["systemctl", "--user", *arguments])


def _is_active() -> bool:
    command = ["systemctl", "--user", "is-active", "--quiet", SERVICE]
    return subprocess.run(command, check=False).returncode == 0


def _template(name: str) -> str:
    """Return the text of the unit `name`, from the installed package or from a checkout."""
    package = Path(capd_client.__file__).parent
    shipped = package / "units"
    folder = shipped if shipped.is_dir() else package.parents[1] / "systemd"
    return (folder / name).read_text(encoding="utf-8")


def _settings(variables: Mapping[str, str]) -> list[str]:
    """Return the lines of a unit that set `variables`."""
    return [f"Environment={_quoted(f'{key}={value}')}" for key, value in variables.items()]


def _with(unit: str, start: str, line: str) -> str:
    """Return `unit` with `line` in place of the line that begins with `start`."""
    return "".join(
        f"{line}\n" if each.startswith(start) else each for each in unit.splitlines(keepends=True)
    )


def _quoted(word: str) -> str:
    """Return `word` quoted for a unit file, with specifiers taken literally."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if " " in word or escaped != word else word
