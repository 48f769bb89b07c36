"""Other places, with a user, files, git's server and real agents there: a host, and a container.

    a host         its sshd, a user and a home of its own, in a network namespace of its own
    a container    no network at all

The scripted model is at the loopback of that place. Both places are on this machine, so a test can
search every process and every file of them.
"""

import contextlib
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from support.bridges import Far
from support.far_containers import FOLDER, Box, ContainerBridge
from support.far_hosts import FarHost, FarNetwork, SshBridge, cmdline, far_user, pids
from whole_daemon import Home

from .lab import CACHE, commit

GIT_SERVER = "mcp-server-git==2026.10.19"
_GIT = "mcp-server-git"
_LAUNCH = '#!/bin/sh\nPYTHONPATH={} exec python3 -P -m mcp_server_git "$@"\n'


class FarPlace(ABC):
    """Another place; `home`, `project` and `shim` are paths there."""

    bridge: str
    """The name of the bridge to it."""
    home: str
    project: str
    shim: str
    inside: Sequence[str]
    """The words before a command of this machine that runs in the network of that place."""

    @abstractmethod
    def open(self, home: Home, *options: str) -> SshBridge | ContainerBridge:
        """Open a bridge from `home` to it."""

    @abstractmethod
    def command(self, words: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """Return the command on this machine that runs `words` on the far side, in the project."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Return every process on the far side, by its pid on this machine."""

    @abstractmethod
    def folders(self) -> list[Path]:
        """Return the folders that the far side can write to, by their paths on this machine."""

    @abstractmethod
    def cut(self, _bridge: SshBridge | ContainerBridge) -> None:
        """Cut the connection."""

    @abstractmethod
    def mend(self) -> None:
        """Let connections through again."""

    @abstractmethod
    def close(self) -> None:
        """End all processes of this place."""

    @property
    @abstractmethod
    def seen_folder(self) -> Path:
        """The folder of the bridge on the far side, by its path on this machine."""

    def connect(self) -> Far:
        """Connect to the bridge's socket on the far side."""
        return Far(str(self.seen_folder / "socket"))

    def files(self) -> Iterator[Path]:
        """Yield every file that a process on the far side may have written."""
        user = far_user().pw_uid
        for folder in self.folders():
            for above, _, names in os.walk(folder):
                for path in (Path(above, name) for name in names):
                    if is_file_of(path, {user, os.getuid()}):
                        yield path

    def left(self, *, has_clients: bool = False) -> list[str]:
        """Return what a bridge has left: its files, its processes and its servers.

        A client that `has_clients` says is running has a shim as long as it runs.
        """
        ours = [b"capd.pyz\0hold", b"capd.pyz\0run", b"mcp_server_git"]
        ours += [] if has_clients else [b"capd.pyz"]
        running = [pid for pid in self.pids() if any(each in cmdline(pid) for each in ours)]
        folder = self.seen_folder
        return [*map(str, running), *([str(folder)] if folder.exists() else [])]


def owner_of(path: Path) -> int | None:
    """Return the number of a file's user; None if the file is gone."""
    with contextlib.suppress(FileNotFoundError):
        return path.lstat().st_uid
    return None


def is_file_of(path: Path, users: Collection[int]) -> bool:
    """Tell whether `path` is a regular file of one of the users; others may delete it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_uid in users
    return False


class Host(FarPlace):
    """A host, reached over SSH."""

    bridge = "far"

    def __init__(self, folder: Path, programs: Mapping[str, Path]) -> None:
        self._network = FarNetwork()
        self.inside = self._network.inside
        self._host = FarHost(folder, self._network)
        self._folder = folder
        self.home, self.project = str(self._host.home), str(self._host.project)
        self.shim = str(self._host.folder / "capd.pyz")
        self._programs = install(folder / "programs", programs)
        # Of a folder of somebody else git takes no commits.
        os.chown(self._host.project, os.getuid(), os.getgid())
        commit(self._host.project)
        # Where docs/bridges.md says that commands are found.
        (self._host.home / ".local").mkdir()
        (self._host.home / ".local/bin").symlink_to(self._programs)
        for each in (self._host.home, self._host.project):
            subprocess.run(["chown", "-hR", self._host.user.pw_name, str(each)], check=True)

    @property
    def seen_folder(self) -> Path:
        return self._host.folder

    def open(self, home: Home, *options: str) -> SshBridge:
        return SshBridge(home, self._host, *options)

    def command(self, words: Sequence[str], env: Mapping[str, str]) -> list[str]:
        path = f"{self._programs}:{os.defpath}"
        settings = [f"{name}={value}" for name, value in {**env, "PATH": path}.items()]
        line = f"cd {shlex.quote(self.project)} && exec {shlex.join(['env', *settings, *words])}"
        return ["ssh", "-F", str(self._host.config), "far", line]

    def pids(self) -> list[int]:
        tests = str(Path(__file__).parent).encode()
        return [each for each in pids() if self._network.has(each) and tests not in cmdline(each)]

    def folders(self) -> list[Path]:
        return [self._host.home, self._host.project, Path("/dev/shm"), *self._temporary()]

    def _temporary(self) -> list[Path]:
        # What is of other users cannot have been written from over there.
        user = self._host.user.pw_uid
        return [each for each in Path("/tmp").iterdir() if owner_of(each) == user]

    def cut(self, _bridge: SshBridge | ContainerBridge) -> None:
        self._network.cut()

    def mend(self) -> None:
        self._network.plug_in()

    def close(self) -> None:
        self._network.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Container(FarPlace):
    """A container without a network."""

    bridge = "box"
    home = "/home/dev"
    project = "/work"
    shim = f"{FOLDER}/capd.pyz"

    def __init__(self, folder: Path, programs: Mapping[str, Path]) -> None:
        self._folder = folder
        work = folder / "work"
        work.mkdir()
        commit(work)
        found = install(folder / "programs", programs)
        # Programs of this machine, such as git, and their libraries.
        system = [f"--volume={each}:{each}:ro" for each in ("/usr", "/etc/ssl")]
        own = [f"--volume={found}:{found}:ro", f"--volume={work}:/work", "--pids-limit=-1"]
        roomy = ("--ulimit=nproc=4096:4096", "--ulimit=nofile=4096:4096")
        self._path = f"/python/bin:{found}:/usr/bin:/bin"
        self._box = Box(*system, *own, *roomy, f"--env=PATH={self._path}")
        self._pid = self._box.pid
        self.inside = ["nsenter", f"--net=/proc/{self._pid}/ns/net"]
        subprocess.run([*self.inside, "ip", "link", "set", "lo", "up"], check=True)

    @property
    def seen_folder(self) -> Path:
        return Path(f"/proc/{self._pid}/root{FOLDER}")

    def open(self, home: Home, *options: str) -> ContainerBridge:
        return ContainerBridge(home, self._box, *options)

    def command(self, words: Sequence[str], env: Mapping[str, str]) -> list[str]:
        settings = [f"--env={name}={value}" for name, value in env.items()]
        known = ["podman", "exec", "--interactive", "--workdir=/work"]
        return [*known, *settings, self._box.name, *words]

    def pids(self) -> list[int]:
        return self._box.all_processes()

    def folders(self) -> list[Path]:
        root = Path(f"/proc/{self._pid}/root")
        return [root / each for each in ("home", "work", "tmp", "run", "dev/shm", "root", "etc")]

    def cut(self, _bridge: SshBridge | ContainerBridge) -> None:
        assert isinstance(_bridge, ContainerBridge)
        os.kill(_bridge.engine(), signal.SIGKILL)

    def mend(self) -> None:
        return

    def close(self) -> None:
        self._box.remove()
        shutil.rmtree(self._folder, ignore_errors=True)


PLACES: dict[str, Callable[[Path, Mapping[str, Path]], FarPlace]] = {
    "ssh": Host,
    "container": Container,
}


def install(folder: Path, programs: Mapping[str, Path]) -> Path:
    """Put git's server and the agents into a folder that everybody may read, and return it."""
    folder.mkdir()
    packages = CACHE / GIT_SERVER.replace("==", "-")
    if not packages.exists():
        made = packages.with_name(f"{packages.name}.{os.getpid()}")
        found = subprocess.run(
            [
                *("uv", "pip", "install", "--quiet", "--python", sys.executable),
                *("--target", str(made), GIT_SERVER),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            pytest.skip(f"{GIT_SERVER} cannot be installed: {found.stderr[-300:]}")
        made.rename(packages)
    shutil.copytree(packages, folder / "packages")
    launcher = folder / _GIT
    launcher.write_text(_LAUNCH.format(folder / "packages"))
    launcher.chmod(0o755)
    for name, program in programs.items():
        try:
            os.link(program, folder / name)
        except OSError:
            shutil.copy(program, folder / name)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder
