"""The steps of a newcomer, timed: clone, `make run`, an editor, a server of one's own, uninstall.

Run as: python bench/newcomer.py [FOLDER]. Everything happens in a new folder with its own HOME,
which is removed at the end; FOLDER is used and kept instead. Packages come from wherever pip is
configured to get them. The server is a script, so that nothing else is downloaded. Prints each step
and its time.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capd_client.mcp_host import McpHost, without_capd

HERE = Path(__file__).parents[1]
SERVER = HERE / "tests" / "whole" / "plain_server.py"
LONGEST = 900.0


def main() -> None:
    given = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else None
    folder = given or Path(tempfile.mkdtemp(prefix="capd"))
    try:
        Newcomer(folder).walk()
    finally:
        if given is None:
            shutil.rmtree(folder, ignore_errors=True)


class Newcomer:
    """Somebody with an empty HOME."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "capd"
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        run = folder / "run"
        run.mkdir(mode=0o700, exist_ok=True)
        self.env = {
            **{k: v for k, v in without_capd().items() if not k.startswith(("XDG_", "VIRTUAL_"))},
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(run),
            "SHELL": "/bin/sh",
        }
        self.total = 0.0

    def walk(self) -> None:
        """Take every step, the way it is written in the README."""
        self.do("clone", ["git", "clone", "-q", str(HERE), str(self.checkout)], self.home)
        self.do("set up, and see one turn", ["make", "run"], self.checkout)
        self.capd("connect an editor", "install", "claude")
        with self.editor():
            words = ["add", "notes", "--trigger", "look into my notes"]
            self.capd("add a server of one's own", *words, "--", sys.executable, str(SERVER))
            self.capd("switch it on", "enable", "notes")
            page = self.capd("see it", "status")
            assert "notes  ready" in page, page
            self.capd("say something else", "turn", "thanks a lot")
            self.capd("find out why nothing came on", "why", may_fail=True)
            self.capd("is all well?", "doctor", may_fail=True)
        self.capd("take the server away", "remove", "notes")
        self.capd("take the editor back", "uninstall", "claude")
        self.capd("stop", "daemon", "stop")
        with self.timed("delete what is left"):
            for place in (".config/capd", ".local/state/capd", ".local/share/capd", ".cache/capd"):
                shutil.rmtree(self.home / place, ignore_errors=True)
            shutil.rmtree(self.checkout)
        left = sorted(
            str(path.relative_to(self.home))
            for path in self.home.rglob("*")
            if path.is_file() and ".cache/" not in str(path)
        )
        print(f"{'in all':34} {self.total:7.2f} s\nleft in HOME, caches of others apart: {left}")

    def capd(self, what: str, *arguments: str, may_fail: bool = False) -> str:
        """Run the `capd` of the checkout."""
        command = [str(self.checkout / ".venv/bin/capd"), *arguments]
        return self.do(what, command, self.home, may_fail=may_fail)

    def do(self, what: str, command: list[str], cwd: Path, *, may_fail: bool = False) -> str:
        """Run a step; return its output."""
        with self.timed(what):
            done = subprocess.run(
                command,
                cwd=cwd,
                env=self.env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LONGEST,
                check=False,
            )
        if done.returncode and not may_fail:
            sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        if done.returncode:
            print(f"    exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-200:]}")
        return done.stdout

    @contextmanager
    def editor(self) -> Iterator[None]:
        """Play the editor: start what its configuration names."""
        entry = json.loads((self.home / ".claude.json").read_text())["mcpServers"]["capd"]
        with self.timed("the editor starts it, and the daemon"):
            host = McpHost([entry["command"], *entry["args"]], env=self.env, cwd=str(self.home))
            host.initialize("claude-code")
            host.tools()
        with host:
            yield

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Print how long a step took."""
        started_at = time.perf_counter()
        yield
        took = time.perf_counter() - started_at
        self.total += took
        print(f"{what:34} {took:7.2f} s", flush=True)


if __name__ == "__main__":
    os.environ.pop("MAKEFLAGS", None)
    main()
