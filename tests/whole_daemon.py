"""A real daemon in a temporary folder, with a tap of local servers, and helpers to inspect it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.mcp_host import McpHost, without_capd
from support import forked_daemons, forked_scripts

PLAIN_SERVER = Path(__file__).parent / "whole" / "plain_server.py"
SHIM = Path(__file__).parents[1] / "clients/capd_client/launch.py"
PATIENCE = 90.0
PATIENCE_OF_A_COMMAND = 280.0
"""A bound on a hang: a command may start several processes on a machine that has much to do."""
OWN_TOOLS = ["capability", "tool_search", "tool_call", "result_read"]

T = TypeVar("T")


def wait_for(look: Callable[[], T | None], patience: float = PATIENCE) -> T:
    """Call `look` until its result is true; return that. The time limit is only for hangs."""
    give_up_at = time.monotonic() + patience
    while time.monotonic() < give_up_at:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {patience:g} s in vain")


def pids_with(tag: str) -> list[int]:
    """Return every process whose command line has `tag`."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if tag in (folder / "cmdline").read_text(errors="replace"):
                    found.append(int(folder.name))
    return found


def toml_list(values: list[str]) -> str:
    return json.dumps(values)


class Home:
    """A folder with a tap, and the daemons that are run on it."""

    def __init__(self, folder: Path, *, is_shipped: bool = True, is_forked: bool = False) -> None:
        """Unless `is_shipped`, the daemons have the folder's own tap and nothing that capd ships.

        The starter tap costs each daemon some of the processor: its files are read and compared.
        If `is_forked`, they are started without the cost of their imports (`forked_daemons`).
        """
        self.folder = folder
        self._is_forked = is_forked
        self.tag = f"capd-test-{folder.name}"
        self.env = {**without_capd(), "CAPD_HOME": str(folder), "CAPD_LINGER": "0.2"}
        # A shim whose daemon was killed would start another, which nobody here ends.
        self.env["CAPD_NO_START"] = "1"
        # readline gives it to the workers of a parallel run: a pipe has no columns.
        self.env.pop("COLUMNS", None)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.python = sys.executable
        """What the daemon runs on."""
        self._tap = folder / "tap"
        self._taps = "" if is_shipped else "starter = false\nshipped_overlays = false\n"
        if self._taps:
            config = folder / "config"
            config.mkdir(exist_ok=True)
            (config / "taps.toml").write_text(self._taps)

    def leave_out_model(self) -> None:
        """Switch routing off for new daemons, so that they load no model."""
        self.env |= {"CAPD_ROUTING": "false", "CAPD_CURATION_SCORER": "keyword"}

    @property
    def socket(self) -> str:
        return str(self.folder / "run" / "capd.sock")

    def capability(
        self, name: str, argv: list[str], *, server: str = "", filters: list[str] | None = None
    ) -> None:
        """Define a capability on a local server; the tag in its argv finds its processes."""
        folder = self._tap / "capabilities" / name
        folder.mkdir(parents=True, exist_ok=True)
        triggers = [f"use {name} now", f"please run {name}", f"{name} something for me"]
        (folder / "config.toml").write_text(f"triggers = {toml_list(triggers)}\n")
        allowed = "" if filters is None else f"[roles.mcp]\nallowed_tools = {toml_list(filters)}\n"
        (folder / "default.toml").write_text(
            f"{allowed}[[mcp.servers]]\nname = {json.dumps(server or name)}\n"
            f"command = {json.dumps(argv[0])}\nargs = {toml_list(argv[1:])}\n"
        )
        config = self.folder / "config"
        config.mkdir(exist_ok=True)
        (config / "taps.toml").write_text(
            f'{self._taps}[[taps]]\nname = "mine"\npath = {json.dumps(str(self._tap))}\n'
        )

    def plain(self, name: str, **more: Any) -> None:
        """Define a capability on the plain server."""
        self.capability(name, [sys.executable, "-I", str(PLAIN_SERVER), self.tag], **more)

    def start(self, under: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start a daemon, `under` another program if need be, and return it when it serves."""
        process: subprocess.Popen[bytes]
        with (self.folder / "daemon.log").open("ab") as log:
            if self._may_fork(under):
                process = forked_daemons.starter().start(self.env, self.folder, log.fileno())
            else:
                process = subprocess.Popen(
                    [*under, self.python, "-P", "-m", "capd", "daemon", "run"],
                    env=self.env,
                    stderr=log,
                    cwd=self.folder,
                )
        self.processes.append(process)

        def serving() -> bool:
            assert process.poll() is None, self.log()
            try:
                with Control(self.socket):
                    return True
            except (DaemonDownError, ControlError):
                # Not there yet, or there and without a turn on a machine that has much to do.
                return False

        wait_for(serving)
        return process

    def _may_fork(self, under: Sequence[str]) -> bool:
        is_ordinary = not under and self.python == sys.executable
        is_possible = forked_daemons.can_fork(self.env)
        return self._is_forked and is_ordinary and is_possible

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        # A person is told sooner that a daemon hangs; here it may only have much to do.
        with Control(self.socket, timeout=PATIENCE_OF_A_COMMAND) as control:
            return control.call(method, params)

    def shim(self, session: str, cwd: Path | None = None) -> McpHost:
        """Connect an editor through the shim, handshake done; it works in `cwd`."""
        host = McpHost(
            [sys.executable, "-I", "-S", str(SHIM), self.socket],
            env={**self.env, "CAPD_SESSION": session, "CAPD_CLIENT": "test-editor"},
            cwd=str(cwd or self.folder),
        )
        host.initialize("test-editor")
        return host

    def capd(self, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run the `capd` command with `said` as standard input."""
        if self._is_forked and forked_scripts.can_fork_capd(self.env):
            return forked_scripts.run_capd(
                list(arguments), self.env, str(self.folder), said, PATIENCE_OF_A_COMMAND
            )
        return subprocess.run(
            [sys.executable, "-P", "-m", "capd_client.entry", *arguments],
            env=self.env,
            cwd=self.folder,
            input=said,
            capture_output=True,
            text=True,
            timeout=PATIENCE_OF_A_COMMAND,
            check=False,
        )

    def at_terminal(self, *arguments: str, typed: str) -> subprocess.CompletedProcess[str]:
        """Run the `capd` command on a terminal of its own, and type input there."""
        command = [sys.executable, "-P", "-m", "capd_client.entry", *arguments]
        spawn = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
        return subprocess.run(
            [sys.executable, "-c", spawn, *command],
            env=self.env,
            cwd=self.folder,
            input=typed,
            capture_output=True,
            text=True,
            timeout=PATIENCE_OF_A_COMMAND,
            check=False,
        )

    def servers(self) -> list[dict[str, Any]]:
        return [entry for entry in self.ask("servers")["servers"] if entry["pid"]]

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        # A killed daemon's servers end by their guards' hands, a moment later.
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not pids_with(self.tag))
        left = pids_with(self.tag)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"left behind: {left}"


@contextlib.contextmanager
def home_of_its_own(*, is_shipped: bool = True, is_forked: bool = False) -> Iterator[Home]:
    """Make a folder for daemons; at the end nothing of it or of them is left.

    Unless `is_shipped`, its daemons do without the starter tap. If `is_forked`, they are started
    without the cost of their imports.
    """
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    made = Home(folder, is_shipped=is_shipped, is_forked=is_forked)
    try:
        yield made
        made.close()
    finally:
        for process in made.processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
