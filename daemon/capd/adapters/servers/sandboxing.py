"""A server's confinement, made of what the machine can do. Every function blocks.

What bubblewrap and the kernel can do is tried once: their being there says little (a container, or
Ubuntu's AppArmor, lets nobody make namespaces).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from capd.core.servers.identity import server_identity
from capd.core.servers.sandbox import (
    Confinement,
    Machine,
    Masked,
    SandboxMissingError,
    Surroundings,
    Wish,
    confined,
    masked_paths,
)
from capd.core.servers.sandbox_rules import SandboxRules
from capd_protos.types import ServerSpec

_LAUNCHER = Path(__file__).parents[1] / "platform" / "landlock_launcher.py"
_TRIAL_TIMEOUT = 10.0
# All that is ever asked of it: a container may allow one thing and forbid the next.
_TRIAL = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    *("--unshare-pid", "--unshare-ipc", "--unshare-net", "--cap-drop", "ALL"),
)


@cache
def machine() -> Machine:
    """Return what this machine can do."""
    bwrap = shutil.which("bwrap") or ""
    if bwrap and not _says_yes([bwrap, *_TRIAL, "true"]):
        bwrap = ""
    launcher = (sys.executable, "-I", "-S", str(_LAUNCHER))
    has_landlock = sys.platform == "linux" and _landlock_version(launcher) > 0
    return Machine(bwrap, launcher if has_landlock else ())


@dataclass(frozen=True, slots=True)
class Box:
    """A wish, and the folders that it is about."""

    wish: Wish
    own: tuple[Path, ...]
    """capd's configuration, state, cache and sockets."""
    environment: Mapping[str, str] = field(repr=False)
    """The user's, which says where home is. A definition's own could call another folder so."""
    project: str = ""
    cache: Path | None = None
    """A folder that is the server's alone, for `strict`; made where it is not there."""
    machine: Callable[[], Machine] = machine


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Whose confinement is what, on this machine."""

    rules: SandboxRules
    own: tuple[Path, ...]
    """As in `Box`."""
    caches: Path
    """Where strict servers get folders of their own."""
    machine: Callable[[], Machine] = machine

    def wish(self, server: ServerSpec) -> Wish:
        """Return what is wished for `server`."""
        return self.rules.wish(server.name, server.sandbox, is_project=bool(server.project))

    def box(self, server: ServerSpec, project: str, environment: Mapping[str, str]) -> Box:
        """Return the confinement of `server`, which runs for sessions of `project`."""
        cache_folder = self.caches / server_identity(server)
        return Box(self.wish(server), self.own, environment, project, cache_folder, self.machine)


def confinement(box: Box, command: Path, cwd: Path) -> Confinement:
    """Return how `command` is started.

    Raises:
        SandboxMissingError: what is wished for cannot be done here.
    """
    wish = box.wish
    # Most servers: nothing is looked up for them.
    if wish.level == "off" or (wish.level == "guard" and not wish.masks):
        return confined(wish, Machine(), Surroundings("/", str(cwd), str(command)), Masked())
    # Mounts are made where links lead: a link's own name cannot be mounted on.
    home = Path(box.environment.get("HOME") or Path.home()).resolve()
    cache_path = ""
    if wish.level == "strict" and box.cache is not None:
        try:
            (box.cache / "tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
            # A folder that no start has touched for long is removed.
            os.utime(box.cache)
        except OSError as error:
            raise SandboxMissingError(
                f"its folder {box.cache} cannot be made: {error.strerror}"
            ) from error
        cache_path = str(box.cache.resolve())
    where = Surroundings(
        home=str(home),
        cwd=str(cwd.resolve()),
        command=str(command),
        project=str(Path(box.project).resolve()) if box.project else "",
        cache=cache_path,
        path=tuple(_program_folders(box, command)),
        tops=tuple(sorted(str(each) for each in Path("/").iterdir())),
    )
    paths = [Path(each) for each in masked_paths(wish, str(home), [str(each) for each in box.own])]
    real = list(dict.fromkeys(each.resolve() for each in paths if each.exists()))
    masked = Masked(
        tuple(str(each) for each in real if each.is_dir()),
        tuple(str(each) for each in real if not each.is_dir()),
    )
    return confined(wish, box.machine(), where, masked)


def _program_folders(box: Box, command: Path) -> Iterator[str]:
    for folder in box.environment.get("PATH", "").split(os.pathsep):
        if folder:
            yield str(Path(folder).resolve())
    # An interpreter of a virtual environment is a link to the one that it was made from. What
    # a project's own link leads to is for nobody else to show.
    if not box.project or not command.is_relative_to(box.project):
        yield str(command.resolve().parent)


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
