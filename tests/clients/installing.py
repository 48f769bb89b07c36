"""A home folder, runs of `capd install` on it, and a `claude` that records its arguments."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from capd_client.commands import cli

_CLEARED = ("CAPD_HOME", "CAPD_SOCKET", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "COLUMNS")
_XDG = ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")


@dataclass(frozen=True)
class Said:
    """A command's output and exit code."""

    code: int
    out: str
    err: str


class User:
    """A folder that serves as a user's HOME."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.more: dict[str, str] = {}
        self.launcher = self.home / ".local/share/capd/bin/capd-mcp"
        self.state = self.home / ".local/state/capd"

    def capd(self, *arguments: str) -> Said:
        env: dict[str, str | None] = dict.fromkeys((*_CLEARED, *_XDG))
        # What `capd install` tries in the end would start a daemon, which nobody here ends.
        env |= {"CAPD_NO_START": "1"}
        env |= {"HOME": str(self.home), "PATH": f"{self.bin}:{os.defpath}", **self.more}
        result = CliRunner().invoke(cli, list(arguments), env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        return Said(result.exit_code, result.stdout, result.stderr)

    def file(self, name: str, text: str | bytes) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def snapshot(self) -> dict[str, bytes]:
        """Return every file but capd's own, with its bytes."""
        paths = [path for path in self.home.rglob("*") if path.is_file()]
        names = {path.relative_to(self.home).as_posix(): path.read_bytes() for path in paths}
        return {name: data for name, data in names.items() if not name.startswith(".local/")}

    def json(self, name: str) -> Any:
        return json.loads((self.home / name).read_text())

    def backups(self) -> list[Path]:
        return sorted((self.state / "install").glob("*.backup"))


CLAUDE = """\
#!{python}
import json, pathlib, sys, os
home = pathlib.Path(os.environ["HOME"])
with (home.parent / "journal").open("a") as journal:
    journal.write(json.dumps(sys.argv[1:]) + "\\n")
{act}
path = home / ".claude.json"
document = json.loads(path.read_text()) if path.exists() else {{"firstStartTime": "today"}}
document.setdefault("mcpServers", {{}})[sys.argv[3]] = json.loads(sys.argv[4])
path.write_text(json.dumps(document, indent=4))
"""


def add_claude(user: User, act: str = "") -> None:
    """Put a `claude` on the path that adds a server as the real one does, after `act`."""
    program = user.bin / "claude"
    program.write_text(CLAUDE.format(python=sys.executable, act=act))
    program.chmod(0o755)


def journal(user: User) -> list[list[str]]:
    """Return the arguments that each `claude` was run with."""
    path = user.home.parent / "journal"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
