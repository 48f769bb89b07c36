"""Checks the systemd units of the daemon: installed ones must be current and enabled."""

import getpass
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_client.service.systemd import SERVICE, SOCKET, Systemd

_WANTED_BY = {SERVICE: "default.target.wants", SOCKET: "sockets.target.wants"}
_LINGERING = Path("/var/lib/systemd/linger")
_AGAIN = "capd daemon install"


def check_service(seen: CheckContext, lingering: Path = _LINGERING) -> Iterator[Finding]:
    """Check the daemon's systemd units.

    Without units there is only a note: a client starts the daemon then. In tests, `lingering`
    replaces the folder in which systemd lists the users whose services survive a logout.
    """
    path = seen.env.get("PATH", os.defpath)
    systemd = Systemd(seen.env)
    if not systemd.is_installed():
        if shutil.which("systemctl", path=path):
            yield Finding(
                "service",
                "note",
                f"no unit of systemd is installed: the first client starts the daemon (`{_AGAIN}`)",
            )
        return
    troubles = [*_as_written(systemd), *_enabled(systemd)]
    yield from troubles
    if not troubles:
        yield Finding("service", "ok", f"{SERVICE} is installed, as this capd writes it, and on")
    user = seen.env.get("USER") or getpass.getuser()
    if lingering.is_dir() and not (lingering / user).exists():
        yield Finding(
            "service",
            "note",
            f"without lingering the daemon ends when you log out (`loginctl enable-linger {user}`)",
        )


def _as_written(systemd: Systemd) -> Iterator[Finding]:
    for name, text in systemd.units().items():
        unit = systemd.folder / name
        if not unit.exists():
            yield Finding(
                "service",
                "error",
                f"{unit} is not there",
                "one unit of the two was removed by hand",
                _AGAIN,
            )
            continue
        found = unit.read_text(encoding="utf-8", errors="replace")
        program = _program(found)
        if program and not os.access(program, os.X_OK):
            yield Finding(
                "service",
                "error",
                f"{name} starts {program}, which is not there or cannot be run",
                "capd was moved or removed after the unit was installed",
                f"{_AGAIN}, from the capd that is to run",
            )
        elif found != text:
            yield Finding(
                "service",
                "warning",
                f"{unit} is not as this capd writes it",
                "another version, or another installation, wrote it; or it was edited"
                f" (what is yours belongs into {unit}.d/)",
                _AGAIN,
            )


def _enabled(systemd: Systemd) -> Iterator[Finding]:
    # Look at the links that `enable` makes, because `systemctl --user is-enabled` needs a running
    # manager.
    off = [
        name
        for name, target in _WANTED_BY.items()
        if (systemd.folder / name).exists() and not (systemd.folder / target / name).is_symlink()
    ]
    if off:
        yield Finding(
            "service",
            "warning",
            f"not enabled: {', '.join(off)}",
            "after the next login only a client starts the daemon",
            f"systemctl --user enable --now {' '.join(off)}",
        )


def _program(unit: str) -> str:
    """Return the program that `unit`, the text of a unit, starts.

    It is empty if `ExecStart` has no absolute path.
    """
    for line in unit.splitlines():
        key, equals, value = line.partition("=")
        if key == "ExecStart" and equals:
            try:
                words = shlex.split(value)
            except ValueError:
                return ""
            program = words[0].replace("%%", "%").replace("$$", "$") if words else ""
            return program if program.startswith("/") else ""
    return ""
