"""Checks which sandboxes this machine offers: bubblewrap, Landlock, namespaces."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding

_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1
_TIMEOUT = 5.0
_TRIAL = ("--ro-bind", "/", "/", "--unshare-pid", "--dev", "/dev", "--proc", "/proc", "true")


_SCOPES = 6
"""The first version of Landlock's ABI that can keep processes from signalling others (Linux
6.12)."""
# The system calls that a server's guard makes. They are tried here, as perhaps no daemon runs.
_MOUNT_TRIAL = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
user, group = os.geteuid(), os.getegid()
if libc.unshare(0x20000) != 0:
    if user == 0 or libc.unshare(0x10000000 | 0x20000) != 0:
        sys.exit(1)
    for name, text in (("setgroups", "deny"), ("uid_map", "%d %d 1"), ("gid_map", "%d %d 1")):
        number = user if name == "uid_map" else group
        with open("/proc/self/" + name, "w") as file:
            file.write(text % (number, number) if "%" in text else text)
sys.exit(libc.mount(b"none", b"/", None, 0x4000 | 0x80000, None) != 0)
"""


@dataclass(frozen=True, slots=True)
class Abilities:
    """The sandboxing features that this machine offers."""

    bwrap: str = ""
    """The path of bubblewrap; empty if there is none."""
    bwrap_trouble: str = ""
    """Why bubblewrap does not work; empty if it does."""
    landlock: int = 0
    """The version of Landlock's ABI; 0 if the kernel has none."""
    userns: str = ""
    """Why a user cannot create namespaces without root; empty if users can."""
    has_mounts: bool = False
    """Whether a process may create a mount namespace."""
    is_root: bool = False


def check_sandbox(seen: CheckContext, abilities: Abilities | None = None) -> Iterator[Finding]:
    """Report whether bubblewrap or Landlock can confine servers, and how to get bubblewrap to work.

    `abilities` replaces those of this machine in tests.
    """
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


def check_default_level(
    seen: CheckContext, abilities: Abilities | None = None
) -> Iterator[Finding]:
    """Yield what the default level, `guard`, protects on this machine.

    The level never keeps a server from starting: it applies the protections that are available.
    `abilities` replaces those of this machine in tests.
    """
    found = abilities if abilities is not None else look(seen.env.get("PATH", os.defpath))
    is_apart = found.landlock >= _SCOPES
    lacks = []
    if not found.has_mounts:
        lacks.append("they see capd's folders, with stored secrets")
    if not is_apart:
        # A user namespace is enough to keep servers from reading each other, but root gets none.
        reads = "" if found.has_mounts and not found.is_root else "read and "
        lacks.append(f"they may {reads}signal each other and the daemon")
    if not lacks:
        what = "servers at the default level see nothing of capd's, and are kept apart"
        if found.is_root:
            yield Finding("sandbox", "note", f"{what}, but as root a program may undo it")
        else:
            yield Finding("sandbox", "ok", what)
        return
    why = found.userns if not found.has_mounts else ""
    needs = ([] if found.has_mounts else ["mount namespaces for users"]) + (
        [] if is_apart else ["Linux 6.12 with Landlock"]
    )
    yield Finding(
        "sandbox",
        "note",
        f"servers at the default level are not kept from everything: {', '.join(lacks)}",
        why,
        f"it takes {' and '.join(needs)}; or set the level strict for servers that you doubt",
    )


def look(path: str) -> Abilities:
    """Try each feature with the programs on `path`; return what works.

    On systems other than Linux, nothing works.
    """
    if sys.platform != "linux":
        return Abilities()
    bwrap = shutil.which("bwrap", path=path) or ""
    return Abilities(
        bwrap,
        _tried(bwrap) if bwrap else "",
        landlock_version(),
        userns_refusal(Path("/proc/sys")),
        has_mounts=_has_mounts(),
        is_root=os.geteuid() == 0,
    )


def _has_mounts() -> bool:
    command = [sys.executable, "-I", "-S", "-c", _MOUNT_TRIAL]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def landlock_version() -> int:
    """Return the version of Landlock's ABI; 0 if the kernel has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    return max(0, int(version))


def userns_refusal(settings: Path) -> str:
    """Return the kernel setting that keeps users from creating namespaces, with its value.

    Empty if none does. `settings` is the folder with the settings, `/proc/sys`.
    """
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
    last_line = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return (last_line or f"exit code {done.returncode}") if done.returncode else ""


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
