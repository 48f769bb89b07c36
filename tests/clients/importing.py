"""A user whose clients are configured with the servers of `import_samples`."""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import keyring
from click.testing import CliRunner
from keyring.backends.fail import Keyring

from capd_client.commands import cli

from .installing import Said

SAMPLES = Path(__file__).parent / "import_samples"
PLAIN_SERVER = Path(__file__).parents[1] / "whole" / "plain_server.py"
SECRETS = (
    "ghp_SAMPLEsampleSAMPLEsampleSAMPLE000001",
    "ghp_SAMPLEsampleSAMPLEsampleSAMPLE000002",
    "xoxb-1234567890-canaryslack",
    "ZjQ4YmQ5NTIt0wOTk5LTRhM2Et",
    "canary",
)
"""Each secret of the samples has one of these in it."""


class Importer:
    """A user, and the `capd import` that is run in a project of theirs."""

    def __init__(self, folder: Path, *, samples: bool = True, tag: str = "tag") -> None:
        self.folder = folder
        self.home, self.project, self.capd_home = folder / "home", folder / "work", folder / "capd"
        for made in (self.home, self.project, self.capd_home):
            made.mkdir()
        self.places = {
            "@HOME@": str(self.home),
            "@PROJECT@": str(self.project),
            "@SERVER@": str(PLAIN_SERVER),
            "@PYTHON@": sys.executable,
            "@TAG@": tag,
        }
        if samples:
            self._fill("home", self.home)
            self._fill("project", self.project)
        # A developer's own keyring is nothing to a test, nor to the programs that it starts.
        keyring.set_keyring(Keyring())  # type: ignore[no-untyped-call]  # it is keyring's
        self.env: dict[str, str] = {
            "HOME": str(self.home),
            "CAPD_HOME": str(self.capd_home),
            "CAPD_NO_START": "1",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }

    @property
    def config(self) -> Path:
        return self.capd_home / "config"

    def file(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def servers(self, name: str = ".cursor/mcp.json", **servers: Any) -> Path:
        """Write a configuration of Cursor, or of another client with the same format."""
        return self.file(name, json.dumps({"mcpServers": servers}))

    def capd(self, *arguments: str, typed: str | None = None) -> Said:
        cleared = dict.fromkeys(
            ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "CODEX_HOME", "COPILOT_HOME",
             "CLAUDE_CONFIG_DIR", "CONTINUE_GLOBAL_DIR", "CAPD_SOCKET", "GITHUB_TOKEN")
        )  # fmt: skip
        result = CliRunner().invoke(cli, list(arguments), env={**cleared, **self.env}, input=typed)
        assert result.exception is None or isinstance(result.exception, SystemExit), result
        return Said(result.exit_code, result.stdout, result.stderr)

    def catalog(self) -> dict[str, Any]:
        """Return every capability of the own tap, by name."""
        folders = sorted((self.config / "own" / "capabilities").iterdir())
        return {
            folder.name: {
                path.name: tomllib.loads(path.read_text()) for path in sorted(folder.iterdir())
            }
            for folder in folders
        }

    def triggers(self, name: str) -> list[str]:
        """Return the triggers of a capability of the own tap."""
        triggers: list[str] = self.catalog()[name]["config.toml"]["triggers"]
        return triggers

    def server(self, name: str) -> dict[str, Any]:
        """Return the one server of a capability."""
        (server,) = self.catalog()[name]["default.toml"]["mcp"]["servers"]
        return dict(server)

    def secrets(self) -> dict[str, str]:
        """Return the content of `secrets.env`."""
        from dotenv import dotenv_values

        file = self.config / "secrets.env"
        return {key: value or "" for key, value in dotenv_values(file, interpolate=False).items()}

    def neutral(self, text: str) -> str:
        """Return `text` without the parts that differ between folders."""
        for place, value in self.places.items():
            text = text.replace(value, place)
        return text.replace(str(self.capd_home), "@CAPD@")

    def _fill(self, part: str, to: Path) -> None:
        shutil.copytree(SAMPLES / part, to, dirs_exist_ok=True)
        for path in to.rglob("*"):
            if path.is_file():
                text = path.read_bytes().decode()
                for place, value in self.places.items():
                    text = text.replace(place, value)
                path.write_bytes(text.encode())
