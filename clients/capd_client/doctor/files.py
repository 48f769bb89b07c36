"""Checks for configuration files that cannot be used, and locks whose holder does not answer."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_client.install.files import read
from capd_protos.places import STATE_LOCK
from capd_protos.secret_places import FILE_NAME, refusal_of_mode

_FILES = ("config.toml", "clients.toml")
_LOCKS = Path("/proc/locks")


def check_configuration(seen: CheckContext) -> Iterator[Finding]:
    """Check the mode of `secrets.env`, and that the configuration files are TOML.

    A daemon that answers reports on the TOML files itself (`check_degraded`).
    """
    folder = Path(seen.places.config)
    secrets = folder / FILE_NAME
    if secrets.exists():
        found = secrets.stat()
        if why := refusal_of_mode(found.st_mode, found.st_uid, seen.uid):
            yield Finding(
                "configuration", "warning", f"{secrets} is not read", why, f"chmod 600 {secrets}"
            )
    if seen.status:
        return
    for name in _FILES:
        try:
            tomllib.loads((read(folder / name) or b"").decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            yield Finding(
                "configuration",
                "warning",
                f"{folder / name} cannot be used",
                " ".join(str(error).split()),
                "correct that line; the daemon runs without the file until then",
            )


def check_locks(seen: CheckContext, locks: Path = _LOCKS) -> Iterator[Finding]:
    """Report which process holds the daemon's lock while no daemon answers.

    No daemon can start until that process ends. `locks` replaces `/proc/locks` in tests.
    """
    if not seen.down:
        return
    for path in _lock_files(seen):
        pid = _holder(path, locks) if path.exists() else 0
        if pid:
            yield Finding(
                "lock",
                "error",
                f"process {pid} has {path}, and nothing answers at the socket",
                "a daemon that starts or ends at this moment, or one that hangs",
                f"wait ten seconds and look again; if it stays so: kill -9 {pid}",
            )


def lock_holder(seen: CheckContext) -> int:
    """Return the pid of the process that holds one of the daemon's locks; 0 if none does."""
    holders = (_holder(path, _LOCKS) for path in _lock_files(seen) if path.exists())
    return next((pid for pid in holders if pid), 0)


def _lock_files(seen: CheckContext) -> list[Path]:
    paths = (
        Path(seen.places.state, STATE_LOCK),
        Path(f"{seen.places.socket}.lock"),
        Path(seen.places.run, "capd.sock.lock"),
    )
    return list(dict.fromkeys(paths))


def _holder(path: Path, locks: Path) -> int:
    """Return the pid of the process that has locked the file at `path`; 0 if it is not known.

    `locks` is a file in the format of `/proc/locks`.
    """
    found = path.stat()
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        lines = locks.read_text().splitlines()
    except OSError:
        return 0
    # `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF`; `->` marks one that only waits.
    fields = (line.split() for line in lines if "->" not in line)
    return next((int(each[4]) for each in fields if each[5:6] == [place]), 0)
