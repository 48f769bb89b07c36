"""A real `systemd --user` in a mount namespace and a cgroup of its own."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from whole_daemon import wait_for

MANAGER = Path("/lib/systemd/systemd")
CGROUPS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
# The manager believes in a booted system by this folder, which only the namespace gets.
SCRIPT = """
mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && mkdir /run/systemd/system || exit 1
for group in "$@"; do echo $$ > "$group/cgroup.procs" || exit 1; done
exec {manager} --user
"""


class UserSystemd:
    """A user's systemd manager without other units, and its `systemctl`."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.env = {**env, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "runtime")}
        self.env.pop("XDG_CONFIG_HOME", None)
        (folder / "runtime").mkdir(mode=0o700)
        name = f"capd-test-{os.getpid()}"
        self._groups = [Path(each, name) for each in CGROUPS if _takes_processes(Path(each))]
        for group in self._groups:
            group.mkdir(exist_ok=True)
        self._log = folder / "manager.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                 SCRIPT.format(manager=MANAGER), "sh", *map(str, self._groups)],
                env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        wait_for(self._answers)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command that can reach the manager."""
        return subprocess.run(
            ["nsenter", "--target", str(self._process.pid), "--mount", "--", *command],
            env=self.env, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def show(self, unit: str, what: str) -> str:
        """Return a property of a unit."""
        done = self.run("systemctl", "--user", "show", "--value", "--property", what, unit)
        return done.stdout.strip()

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return int(self.show("capd.service", "MainPID"))

    def close(self) -> None:
        self.run("systemctl", "--user", "stop", "capd.socket", "capd.service")
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self._process.kill()
        self._process.wait()
        for group in self._groups:
            for child in sorted(group.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    child.rmdir()
            with contextlib.suppress(OSError):
                group.rmdir()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return self.run("systemctl", "--user", "show", "--property=Version").returncode == 0


def _takes_processes(folder: Path) -> bool:
    """Whether a folder is the root of a hierarchy that systemd manages."""
    if folder == Path("/sys/fs/cgroup"):
        return (folder / "cgroup.controllers").exists()
    return folder.is_dir() and (folder / "cgroup.procs").exists()


def missing() -> str:
    """Return why no user's systemd can run here; empty if it can."""
    if not MANAGER.exists():
        return f"no {MANAGER}"
    for tool in ("unshare", "nsenter", "systemctl"):
        if shutil.which(tool) is None:
            return f"no {tool}"
    if os.geteuid() != 0:
        return "only root may make the cgroup"
    if not any(_takes_processes(Path(each)) and os.access(each, os.W_OK) for each in CGROUPS):
        return "no cgroup can be made"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "no mount namespace can be made"


def skip_unless_possible() -> None:
    why = missing()
    if why:
        pytest.skip(f"systemd --user: {why}")
