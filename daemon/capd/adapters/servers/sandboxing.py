"""Confines a server as far as the machine can. Every function blocks.

capd tests once what bubblewrap and the kernel can do, because their mere presence does not show it:
in a container, and under Ubuntu's AppArmor, users may not create namespaces.
"""

import contextlib
import glob
import itertools
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from capd.core.servers.identity import server_identity
from capd.core.servers.own_folders import FolderNeeds, OwnFolders, cover
from capd.core.servers.sandbox import (
    PRIVILEGED,
    Confinement,
    Masked,
    SandboxFeatures,
    SandboxMissingError,
    SandboxPaths,
    SandboxRequest,
    confined,
    masked_paths,
)
from capd.core.servers.sandbox_rules import SandboxRules
from capd_protos.places import Places, make_folders
from capd_protos.types import ServerSpec

_LAUNCHER = Path(__file__).parents[1] / "platform" / "landlock_launcher.py"
_CONFINE = _LAUNCHER.with_name("confine.py")
_NOWHERE = OwnFolders()
_SSH = Path("/etc/ssh/ssh_config")
_MOST_SSH_FILES = 64
_MOST_SSH_BYTES = 1 << 16
_APPIMAGE = b"AI"
_APPIMAGE_AT = 8
_TRIAL_TIMEOUT = 10.0
# All options that capd ever uses: a container may allow some of them and forbid others.
_TRIAL = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    *("--unshare-pid", "--unshare-ipc", "--unshare-net", "--cap-drop", "ALL"),
)


_trying = threading.Lock()


def machine() -> SandboxFeatures:
    """Return which sandboxing features work on this machine. Each is tested only once."""
    with _trying:
        return _tried_machine()


@cache
def _tried_machine() -> SandboxFeatures:
    launcher = (sys.executable, "-I", "-S", str(_LAUNCHER))
    # In parallel: each trial starts one or two processes, and the first server waits for all.
    with ThreadPoolExecutor(3) as pool:
        bwrap = pool.submit(_working_bwrap)
        version = pool.submit(_landlock_version, launcher)
        held = pool.submit(_tried_confinement)
    has_landlock = sys.platform == "linux" and version.result() > 0
    return SandboxFeatures(
        bwrap.result(),
        launcher if has_landlock else (),
        can_hide="hidden" in held.result(),
        can_separate="apart" in held.result(),
        is_bwrap_privileged=_is_setuid(bwrap.result()),
    )


def own_folders(where: Places, environment: Mapping[str, str]) -> OwnFolders:
    """Return the folders that belong to capd alone; missing ones are created.

    `where` are the daemon's folders. A missing folder has to be created, because it could not be
    hidden, and another process could create it later.
    """
    named = {"config": where.config, "state": where.state, "cache": where.cache, "data": where.data}
    # `CAPD_SOCKET` may lead anywhere, to /tmp or to the home, so its folder is not hidden.
    if not environment.get("CAPD_SOCKET"):
        named["run"] = where.run
    found = {}
    for kind, path in named.items():
        folder = Path(path)
        try:
            make_folders(folder)
            found[kind] = str(folder.resolve(strict=True))
        except OSError:
            continue
    socket = Path(where.socket)
    return OwnFolders(**found, socket=str(socket.parent.resolve() / socket.name))


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """A requested sandbox of a server, and the folders that it affects."""

    sandbox_request: SandboxRequest
    own: tuple[Path, ...]
    """The folders of capd's configuration, state, cache and sockets."""
    environment: Mapping[str, str] = field(repr=False)
    """The user's environment, which names the home folder. A server's could name another folder."""
    project: str = ""
    cache: Path | None = None
    """The server's own cache folder for `strict`; created if it is missing."""
    machine: Callable[[], SandboxFeatures] = machine
    folders: OwnFolders = _NOWHERE
    """The folders that `guard` hides."""
    tap: str = ""
    may_connect: bool = False


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Decides how each server is confined on this machine."""

    rules: SandboxRules
    own: tuple[Path, ...]
    """As in `SandboxPlan`."""
    caches: Path
    """Where strict servers get their own cache folders."""
    machine: Callable[[], SandboxFeatures] = machine
    folders: OwnFolders = _NOWHERE
    """As in `SandboxPlan`."""
    may_connect: Sequence[str] = ()
    """Globs of the names of servers that may use capd's socket."""

    def sandbox_request(self, server: ServerSpec) -> SandboxRequest:
        """Return the sandbox that the server should run in, by its definition and the settings."""
        return self.rules.sandbox_request(
            server.name,
            server.sandbox,
            is_project=bool(server.project),
            least=server.least_sandbox,
        )

    def box(self, server: ServerSpec, project: str, environment: Mapping[str, str]) -> SandboxPlan:
        """Return the sandbox of `server` for sessions of `project`, with the folders it affects."""
        cache_folder = self.caches / server_identity(server)
        return SandboxPlan(
            self.sandbox_request(server),
            self.own,
            environment,
            project,
            cache_folder,
            self.machine,
            self.folders,
            server.tap,
            any(fnmatchcase(server.name, each) for each in self.may_connect),
        )


def confinement(
    box: SandboxPlan, command: Path, cwd: Path, words: Sequence[str] = ()
) -> Confinement:
    """Return how to start `command` in the working directory `cwd`, confined as `box` says.

    `words` are its arguments and its environment's values.

    Raises:
        SandboxMissingError: this machine cannot provide the sandbox.
    """
    sandbox_request = box.sandbox_request
    if sandbox_request.level == "off":
        return confined(
            sandbox_request, SandboxFeatures(), SandboxPaths("/", str(cwd), str(command)), Masked()
        )
    if sandbox_request.level == "guard" and not sandbox_request.masks:
        where = _guarded_paths(box, command, cwd, words)
        found = confined(sandbox_request, box.machine(), where, Masked())
        return replace(found, environment=_extraction(command) if found.guard_options else {})
    # Resolved, because a mount point cannot be a symbolic link.
    home = Path(box.environment.get("HOME") or Path.home()).resolve()
    cache_path = ""
    if sandbox_request.level == "strict" and box.cache is not None:
        try:
            make_folders(box.cache / "tmp")
            # The cache cleanup removes folders that were not touched for long.
            os.utime(box.cache)
        except OSError as error:
            raise SandboxMissingError(
                f"its folder {box.cache} cannot be made: {error.strerror}"
            ) from error
        cache_path = str(box.cache.resolve())
    guarded = _guarded_paths(box, command, cwd, words)
    where = replace(
        guarded,
        home=str(home),
        cwd=str(cwd.resolve()),
        project=str(Path(box.project).resolve()) if box.project else "",
        cache=cache_path,
        path=tuple(_program_folders(box, command)),
        tops=tuple(sorted(str(each) for each in Path("/").iterdir())),
    )
    paths = [
        Path(each)
        for each in masked_paths(sandbox_request, str(home), [str(each) for each in box.own])
    ]
    real = list(dict.fromkeys(each.resolve() for each in paths if each.exists()))
    masked = Masked(
        tuple(str(each) for each in real if each.is_dir()),
        tuple(str(each) for each in real if not each.is_dir()),
    )
    return confined(sandbox_request, box.machine(), where, masked)


def _guarded_paths(
    box: SandboxPlan, command: Path, cwd: Path, words: Sequence[str]
) -> SandboxPaths:
    """Return the paths and hidden folders for the level `guard`, at which most servers run."""
    own = box.folders
    config_entries: list[str] = []
    with contextlib.suppress(OSError):
        config_entries = sorted(os.listdir(own.config)) if own.config else []  # noqa: PTH208
    needs = FolderNeeds(
        command=os.path.realpath(command),
        cwd=os.path.realpath(cwd),
        words=[*words, *(os.path.realpath(each) for each in words if each.startswith("/"))],
        tap=box.tap,
        config_entries=config_entries,
        has_launcher=bool(own.data) and Path(own.data, "bin").is_dir(),
        may_connect=box.may_connect,
    )
    covered = cover(own, needs)
    # Only existing paths: the guard refuses to start if one of them is missing.
    return SandboxPaths(
        home="/",
        cwd=str(cwd),
        command=str(command),
        cover=replace(
            covered,
            shown=tuple(filter(os.path.exists, covered.shown)),
            read_only=tuple(filter(os.path.exists, covered.read_only)),
        ),
        ssh_files=tuple(_files_of_root(box)),
        takes_privilege=_privileged(command, box.environment.get("PATH", "")),
    )


def _privileged(command: Path, path: str) -> str:
    """Return which of `PRIVILEGED` a command is; empty for any other program.

    Only the program of that name on the user's PATH counts: a definition could give that name to a
    program of its own.
    """
    for name in dict.fromkeys((command.name, Path(os.path.realpath(command)).name)):
        if name in PRIVILEGED and _is_the_users(command, path):
            return name
    # Podman may stand in for Docker, as a script.
    if command.name == "docker" and _is_the_users(command, path):
        with contextlib.suppress(OSError), command.open("rb") as file:
            if b"podman" in file.read(4096):
                return "podman"
    return ""


def _is_the_users(command: Path, path: str) -> bool:
    found = shutil.which(command.name, path=path)
    return found is not None and os.path.realpath(found) == os.path.realpath(command)


def _extraction(command: Path) -> dict[str, str]:
    """Return the variables that make an AppImage unpack itself; to mount itself it needs setuid."""
    with contextlib.suppress(OSError), command.open("rb") as file:
        if file.read(_APPIMAGE_AT + len(_APPIMAGE))[_APPIMAGE_AT:] == _APPIMAGE:
            return {"APPIMAGE_EXTRACT_AND_RUN": "1"}
    return {}


def _files_of_root(box: SandboxPlan) -> list[str]:
    """Return the files of root that the configuration of ssh includes.

    ssh refuses an included file unless the user or root owns it. In a user namespace, root's files
    seem to belong to nobody.
    """
    if os.geteuid() == 0:
        return []
    home = Path(box.environment.get("HOME") or Path.home())
    waiting = [(_SSH, _SSH.parent), (home / ".ssh" / "config", home / ".ssh")]
    found: dict[str, None] = {}
    for file, folder in waiting:
        if len(waiting) > _MOST_SSH_FILES:
            break
        try:
            with file.open("rb") as opened:
                text = opened.read(_MOST_SSH_BYTES).decode(errors="replace")
                is_of_root = os.fstat(opened.fileno()).st_uid == 0
        except OSError:
            continue
        if is_of_root and file != _SSH:
            found[os.path.realpath(file)] = None
        for pattern in ssh_includes(text):
            expanded = folder / Path(pattern.replace("~", str(home), 1))
            waiting += [
                (Path(each), folder)
                for each in itertools.islice(glob.iglob(str(expanded)), _MOST_SSH_FILES)  # noqa: PTH207
            ]
    return list(found)


def _program_folders(box: SandboxPlan, command: Path) -> Iterator[str]:
    for folder in box.environment.get("PATH", "").split(os.pathsep):
        if folder:
            yield str(Path(folder).resolve())
    # A virtual environment's interpreter is a link; its target must be visible. A link inside the
    # project is not followed, because the project could show any folder by it.
    if not box.project or not command.is_relative_to(box.project):
        yield str(command.resolve().parent)


def _working_bwrap() -> str:
    bwrap = shutil.which("bwrap") or ""
    return bwrap if bwrap and _says_yes([bwrap, *_TRIAL, "true"]) else ""


def _is_setuid(program: str) -> bool:
    return bool(program) and bool(Path(program).stat().st_mode & stat.S_ISUID)


def _tried_confinement() -> list[str]:
    """Return which options of a guard work here, found out in a short-lived process."""
    if sys.platform != "linux":
        return []
    try:
        with tempfile.TemporaryDirectory(prefix="capd-trial-") as folder:
            argv = [sys.executable, "-I", "-S", str(_CONFINE), f"--hide={folder}", "--apart"]
            tried = subprocess.run(
                argv, capture_output=True, text=True, timeout=_TRIAL_TIMEOUT, check=False
            )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return tried.stdout.split()


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


def ssh_includes(text: str) -> list[str]:
    """Return the patterns of all `Include` lines in an ssh configuration, see ssh_config(5)."""
    found: list[str] = []
    for line in text[:_MOST_SSH_BYTES].splitlines():
        keyword, _, rest = line.strip().replace("=", " ", 1).replace("\t", " ").partition(" ")
        if keyword.lower() != "include":
            continue
        try:
            found += shlex.split(rest, comments=True)
        except ValueError:
            continue
    return found
