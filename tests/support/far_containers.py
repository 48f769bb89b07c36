"""A container to bridge into, and the bridge."""

import contextlib
import json
import os
import subprocess
import uuid
from pathlib import Path

import pytest

from capd_client.mcp_host import McpHost
from support.bridges import BridgeCommand
from support.containers import PYTHON, image
from support.far_hosts import cmdline, pids
from whole_daemon import Home

FOLDER = "/home/dev/.local/share/capd-bridge/box"
FILES = """
import pathlib, sys
root = pathlib.Path(sys.argv[1])
print([str(each) for each in root.rglob("*") if each.is_file()
       and (len(sys.argv) < 3 or sys.argv[2].encode() in each.read_bytes())])
"""


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=True).stdout


class Box:
    """A running container in which a user works."""

    def __init__(self, *more: str) -> None:
        """`more` are further options of the engine."""
        pinned, why = image()
        if not pinned:
            pytest.skip(why)
        self.name = f"capd-test-{uuid.uuid4().hex[:8]}"
        bounds = ("--ulimit=nofile=512:512", "--ulimit=nproc=512:512", "--network=none")
        settings = ("--env=HOME=/home/dev", "--env=PATH=/python/bin:/bin")
        words = ("run", "--detach", "--rm", "--init", f"--name={self.name}", *bounds, *settings)
        sleep = "import time; time.sleep(3600)"
        podman(*words, "--log-driver=none", *more, pinned, PYTHON, "-c", sleep)

    @property
    def pid(self) -> int:
        return int(podman("inspect", "--format={{.State.Pid}}", self.name))

    def processes(self) -> list[int]:
        """Return every process of a bridge in the container."""
        return [pid for pid in self.all_processes() if b"capd.pyz" in cmdline(pid)]

    def all_processes(self) -> list[int]:
        """Return every process in the container."""
        own = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = []
        for pid in pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/ns/pid").readlink() == own:
                    found.append(pid)
        return found

    def python(self, program: str, *words: str) -> str:
        return podman("exec", self.name, "python3", "-c", program, *words)

    def left(self) -> list[str]:
        """Return the files and processes that a bridge has left."""
        files = json.loads(self.python(FILES, "/home").replace("'", '"'))
        return [*files, *map(str, self.processes())]

    def editor(self, session: str) -> McpHost:
        words = ["podman", "exec", "--interactive", f"--env=CAPD_SESSION={session}"]
        command = [*words, self.name, "python3", f"{FOLDER}/capd.pyz"]
        return McpHost(command, env=dict(os.environ), cwd="/")

    def remove(self) -> None:
        podman("rm", "--force", "--time=0", self.name)


class ContainerBridge(BridgeCommand):
    """A running `capd bridge container`."""

    def __init__(self, home: Home, box: Box, *more: str) -> None:
        super().__init__(home, "container", box.name, "--name", "box", *more)

    def engine(self) -> int:
        """Return the process of the engine that holds the stream."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        for each in children.split():
            with contextlib.suppress(OSError):
                if b"hold-streams" in Path("/proc", each, "cmdline").read_bytes():
                    return int(each)
        return 0
