"""Worlds with servers that try to escape their trees, and terminals that start daemons."""

import contextlib
import os
import pty
import signal
import sys
from pathlib import Path

from capd_client.control import ControlError, DaemonDownError
from whole_daemon import pids_with, wait_for

from .world import World

ESCAPING_SERVER = Path(__file__).parent / "escaping_server.py"
PATIENCE = 10.0
"""Seconds after which nothing may be left."""


def escaping(world: World, modes: str, name: str = "evil", more: str = "") -> None:
    """Define a server that does `modes` when its tool `go` is called."""
    # As a text: at `strict` a checkout in a home or in /tmp is out of the server's sight.
    program = ["-I", "-S", "-c", ESCAPING_SERVER.read_text()]
    argv = [sys.executable, *program, f"{world.home.tag}-{name}.", modes]
    world.home.capability(name, argv)
    file = world.home.folder / "tap/capabilities" / name / "default.toml"
    file.write_text(file.read_text() + more)


def escaped(world: World, name: str = "evil") -> list[int]:
    """Return the processes of a server: itself, and what it has started."""
    return [
        pid
        for pid in pids_with(f"{world.home.tag}-{name}.")
        # What stands above it inside a sandbox has its arguments as well.
        if not is_gone(pid)
    ]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended; its parent may still have to hear of it."""
    try:
        return state(pid) in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Terminal:
    """A terminal with a shell as its session leader, and a daemon that the shell runs."""

    def __init__(self, world: World, line: str) -> None:
        """`line` is what the shell runs, with `{command}` for the daemon."""
        command = f"{sys.executable} -P -m capd daemon run 2>>{world.home.folder}/daemon.log"
        script = line.format(command=command)
        self.shell, self._master = pty.fork()
        if not self.shell:
            os.chdir(world.home.folder)
            # Tests that are run under nohup ignore it, and a closed window would end nobody.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.execve("/bin/bash", ["bash", "--norc", "-c", script], world.home.env)
        self._world = world
        wait_for(self._answers)
        self.daemon = int(world.home.ask("status")["daemon"]["pid"])

    def close_window(self) -> None:
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def end(self) -> None:
        """Leave nothing, whatever went wrong."""
        self.close_window()
        kill(self.shell, self.daemon)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.shell, 0)

    def _answers(self) -> bool:
        with contextlib.suppress(DaemonDownError, ControlError):
            return bool(self._world.home.ask("status"))
        return False
