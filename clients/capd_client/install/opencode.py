"""opencode: the server in its configuration, and the plugin that hands over what the user says."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from capd_client.install.edits import Change, FileEdit
from capd_client.install.jsonc import find, parse
from capd_client.install.jsonc_edits import put, take
from capd_client.install.launcher import NAME as LAUNCHER_NAME
from capd_client.install.pruning import prune

_SERVER = ("mcp", "capd")
_SCHEMA = "https://opencode.ai/config.json"


class Opencode:
    """The files of opencode."""

    name = "opencode"
    title = "opencode"

    def __init__(self, env: Mapping[str, str], launcher: Path) -> None:
        self._env = env
        home = Path(env.get("HOME") or Path.home())
        folder = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        # It reads both, the second one over the first.
        commented = folder / "opencode.jsonc"
        self.config = commented if commented.exists() else folder / "opencode.json"
        self.plugin = folder / "plugin" / "capd.js"
        self.server: dict[str, Any] = {
            "type": "local",
            "command": [str(launcher)],
            "enabled": True,
        }

    def edits(self) -> list[FileEdit]:
        """Return what capd puts where."""
        return [
            FileEdit(self.config, self._add_server, _remove_server),
            FileEdit(self.plugin, lambda _: plugin_text(self._env), _remove_plugin),
        ]

    def vendor_command(self, change: Change) -> list[str]:
        """Return nothing: `opencode mcp add` asks a person."""
        del change
        return []

    def run_vendor(self, command: list[str]) -> bytes | None:
        """Do nothing."""
        del command
        return None

    def _add_server(self, text: str) -> str:
        if not text.strip():
            # It would write this into a file that has none.
            text = put(text, ("$schema",), _SCHEMA)
        if not _is_ours(text):
            return put(text, _SERVER, self.server)
        for key, value in self.server.items():
            text = put(text, (*_SERVER, key), value)
        return text


def plugin_text(env: Mapping[str, str]) -> str:
    """Return the plugin, as it comes with this version; it knows the `CAPD_HOME` of its user."""
    text = (files("capd_client") / "opencode_plugin" / "capd.js").read_text(encoding="utf-8")
    if not env.get("CAPD_HOME"):
        return text
    home = json.dumps(str(Path(env["CAPD_HOME"]).absolute()))
    return text.replace('const INSTALLED_HOME = ""', f"const INSTALLED_HOME = {home}")


def _value(text: str) -> Any:
    node = find(parse(text), _SERVER) if text.strip("\ufeff \t\r\n") else None
    return None if node is None else node.value


def _is_ours(text: str) -> bool:
    server = _value(text)
    command = server.get("command") if isinstance(server, dict) else None
    if not isinstance(command, list) or len(command) != 1:
        return False
    return isinstance(command[0], str) and Path(command[0]).name == LAUNCHER_NAME


def _remove_server(text: str, original: str | None) -> str:
    if not _is_ours(text):
        return text
    before = _value(original) if original else None
    if before is not None and original and not _is_ours(original):
        return put(text, _SERVER, before)
    return prune(take(text, _SERVER), _SERVER[:-1], original)


def _remove_plugin(text: str, original: str | None) -> str:
    """Keep a plugin that was edited: whose lines are whose cannot be told."""
    del original
    return text
