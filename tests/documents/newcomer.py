"""A user with an empty HOME who types the commands of a page, line by line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from capd_client.mcp_host import McpHost, without_capd
from whole_daemon import wait_for

TESTS = Path(__file__).parents[1]
EDITORS = ("claude", "opencode")
LONGEST = 600.0
"""Seconds for a line that downloads."""
_AT_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


class Newcomer:
    """A HOME, a project to work in, and a shell."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        """`python` is that of the environment in which capd is installed."""
        self.home = folder / "home"
        self.project = folder / "work"
        commands, run = folder / "bin", folder / "run"
        for each in (self.home, self.project, commands, run):
            each.mkdir(mode=0o700)
        capd = commands / "capd"
        capd.write_text(f'#!/bin/sh\nexec "{python}" -P -m capd_client.entry "$@"\n')
        capd.chmod(0o700)
        kept = {
            name: value
            for name, value in without_capd().items()
            # Neither the service manager nor the keyring of whoever runs the tests.
            if not name.startswith(("XDG_", "DBUS_", "VIRTUAL_"))
        }
        self.env = {
            **kept,
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(run),
            "PATH": ":".join([str(commands), str(Path(sys.executable).parent), *_others()]),
            "SHELL": "/bin/sh",
            "PYTHONPATH": str(TESTS),
            "PYTHON_KEYRING_BACKEND": "file_keyring.FileKeyring",
            "CAPD_TEST_KEYRING": str(folder / "keyring.json"),
        }

    def types(self, line: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run a line; `said` is its input, on a terminal or on standard input."""
        command = ["sh", "-c", line]
        if line.split()[:2] in (["capd", "setup"], ["capd", "top"], ["capd", "trust"]):
            command = [sys.executable, "-c", _AT_TERMINAL, *command]
        return subprocess.run(
            command,
            env=self.env,
            cwd=self.project,
            input=said,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )

    @contextmanager
    def editor(self) -> Iterator[McpHost]:
        """Play the connected editor: start the program that its configuration names."""
        entry = json.loads((self.home / ".claude.json").read_text())["mcpServers"]["capd"]
        command = [entry["command"], *entry["args"]]
        with McpHost(command, env=self.env, cwd=str(self.project)) as host:
            host.initialize("claude-code")
            host.tools()
            yield host

    def ends(self) -> None:
        """End the daemon that the editor started, if it still runs."""
        socket = Path(self.env["XDG_RUNTIME_DIR"], "capd", "capd.sock")
        done = self.types("capd version --json")
        daemon = json.loads(done.stdout or "{}").get("daemon")
        if daemon:
            os.kill(daemon["pid"], signal.SIGTERM)
            wait_for(lambda: not socket.exists() or None)


def left_in(home: Path, others: tuple[str, ...]) -> list[str]:
    """Return the files in a HOME, except those of `others` that are not capd's."""
    files = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    return sorted(
        str(file) for file in files if "capd" in file.parts or not str(file).startswith(others)
    )


def _others() -> list[str]:
    """Return PATH without the developer's own editors, which would write to HOME."""
    folders = os.environ["PATH"].split(":")
    return [each for each in folders if not any(Path(each, name).exists() for name in EDITORS)]


@contextmanager
def newcomer(python: str = sys.executable) -> Iterator[Newcomer]:
    """Create a user with the `capd` of `python`; remove everything afterwards."""
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    made = Newcomer(folder, python)
    try:
        yield made
        made.ends()
    finally:
        _end_what_runs(made.home)
        shutil.rmtree(folder, ignore_errors=True)


def _end_what_runs(home: Path) -> None:
    """End the processes that the page or a failed test left running."""
    mark = f"HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
