"""A server's confinement, made of what the machine can do. Every function blocks.

What bubblewrap and the kernel can do is tried once: their being there says little (a container, or
Ubuntu's AppArmor, lets nobody make namespaces).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from capd.core.servers.sandbox import (
    Confinement,
    Machine,
    Masked,
    Surroundings,
    Wish,
    confined,
    masked_paths,
)

_LAUNCHER = Path(__file__).parents[1] / "platform" / "landlock_launcher.py"
_TRIAL_TIMEOUT = 10.0


@cache
def machine() -> Machine:
    """Return what this machine can do."""
    bwrap = shutil.which("bwrap") or ""
    if bwrap and not _says_yes([bwrap, "--ro-bind", "/", "/", "--unshare-pid", "true"]):
        bwrap = ""
    launcher = (sys.executable, "-I", "-S", str(_LAUNCHER))
    has_landlock = sys.platform == "linux" and _landlock_version(launcher) > 0
    # Only who is root already keeps every owner in a namespace.
    return Machine(bwrap, launcher if has_landlock else (), keeps_owners=os.geteuid() == 0)


@dataclass(frozen=True, slots=True)
class Box:
    """A wish, and the folders that it is about."""

    wish: Wish
    own: tuple[Path, ...]
    """capd's configuration, state, cache and sockets."""
    project: str = ""
    cache: Path | None = None
    """A folder that is the server's alone, for `strict`; made where it is not there."""


def confinement(box: Box, command: Path, cwd: Path, environment: Mapping[str, str]) -> Confinement:
    """Return how `command` is started.

    Raises:
        SandboxMissingError: what is wished for cannot be done here.
    """
    wish = box.wish
    home = environment.get("HOME") or str(Path.home())
    cache_path = ""
    if wish.level == "strict" and box.cache is not None:
        (box.cache / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
        cache_path = str(box.cache)
    where = Surroundings(
        home=home,
        cwd=str(cwd),
        command=str(command),
        project=box.project,
        cache=cache_path,
        path=tuple(filter(None, environment.get("PATH", "").split(os.pathsep))),
        tops=tuple(sorted(str(each) for each in Path("/").iterdir())),
    )
    paths = [Path(each) for each in masked_paths(wish, home, [str(each) for each in box.own])]
    # A link is masked where it leads: its own name cannot be mounted on.
    real = [each.resolve() for each in paths if each.exists()]
    masked = Masked(
        tuple(str(each) for each in real if each.is_dir()),
        tuple(str(each) for each in real if not each.is_dir()),
    )
    return confined(wish, machine(), where, masked)


def _says_yes(argv: list[str]) -> bool:
    try:
        tried = subprocess.run(argv, capture_output=True, timeout=_TRIAL_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def _landlock_version(launcher: Sequence[str]) -> int:
    try:
        answer = subprocess.run(
            [*launcher, "--version"],
            capture_output=True,
            text=True,
            timeout=_TRIAL_TIMEOUT,
            check=False,
        )
        return int(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return 0
