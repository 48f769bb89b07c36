"""What this machine can confine servers with: bubblewrap, Landlock, namespaces of users."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capd_client.doctor.findings import Finding
from capd_client.doctor.surroundings import Surroundings

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1
_TIMEOUT = 5.0
_TRIAL = ("--ro-bind", "/", "/", "--unshare-pid", "--dev", "/dev", "--proc", "/proc", "true")


@dataclass(frozen=True, slots=True)
class Abilities:
    """What was found."""

    bwrap: str = ""
    """Where bubblewrap is; empty where there is none."""
    bwrap_trouble: str = ""
    """Why it does not work."""
    landlock: int = 0
    """Version of Landlock's interface; 0 where the kernel has none."""
    userns: str = ""
    """Why namespaces cannot be made without root; empty where they can."""


def check_sandbox(seen: Surroundings, abilities: Abilities | None = None) -> Iterator[Finding]:
    """Say which levels can be had here, and how to have the best one."""
    found = abilities if abilities is not None else look(seen.env.get("PATH", os.defpath))
    if found.bwrap and not found.bwrap_trouble:
        landlock = f", Landlock {found.landlock}" if found.landlock else ""
        yield Finding("sandbox", "ok", f"servers can be confined: bubblewrap{landlock}")
        return
    why = f"{found.bwrap}: {found.bwrap_trouble}" if found.bwrap else "bubblewrap is not installed"
    if found.userns:
        why += f"; {found.userns}"
    fix = _remedy(found)
    if found.landlock:
        what = f"servers can be confined by Landlock {found.landlock} alone: it hides no process"
        yield Finding("sandbox", "note", f"{what} ({why})", fix=fix)
    else:
        what = "servers cannot be confined here: neither bubblewrap nor Landlock works"
        yield Finding("sandbox", "warning", what, why, fix)


def look(path: str) -> Abilities:
    """Try each of them."""
    if sys.platform != "linux":
        return Abilities()
    bwrap = shutil.which("bwrap", path=path) or ""
    return Abilities(
        bwrap,
        _tried(bwrap) if bwrap else "",
        landlock_version(),
        userns_refusal(Path("/proc/sys")),
    )


def landlock_version() -> int:
    """Return the version of the kernel's interface, 0 where it has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    return max(0, int(version))


def userns_refusal(settings: Path) -> str:
    """Return which setting of the kernel keeps users from making namespaces, empty for none."""
    refusing = (
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    )
    for name, value in refusing:
        try:
            found = (settings / name).read_text().strip()
        except OSError:
            continue
        if found == value:
            return f"{name.replace('/', '.')} is {value}"
    return ""


def _tried(bwrap: str) -> str:
    try:
        done = subprocess.run(
            [bwrap, *_TRIAL],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return (said or f"exit code {done.returncode}") if done.returncode else ""


def _remedy(found: Abilities) -> str:
    if "apparmor" in found.userns:
        return "allow bwrap in an AppArmor profile (Ubuntu: apt install apparmor-profiles)"
    if found.userns:
        setting, _, value = found.userns.partition(" is ")
        other = "1" if value == "0" and "max" not in setting else "10000"
        return f"as root: sysctl {setting}={other}"
    if found.bwrap:
        return f"try `{found.bwrap} {' '.join(_TRIAL)}`; in a container it may not be allowed"
    return "install bubblewrap, for example: apt install bubblewrap"
