"""opencode: the server in its configuration, and the plugin that hands over what the user says."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from capd_client.install.client import Client
from capd_client.install.edits import FileEdit


class Opencode(Client):
    """The files of opencode."""

    @property
    def plugin(self) -> Path:
        """Where it looks for plugins."""
        return self.config.parent / "plugin" / "capd.js"

    @property
    def whole_files(self) -> tuple[Path, ...]:
        """The plugin."""
        return (self.plugin,)

    def hooks(self) -> list[FileEdit]:
        """Return the plugin."""
        return [FileEdit(self.plugin, lambda _: plugin_text(self._env), _remove_plugin)]


def plugin_text(env: Mapping[str, str]) -> str:
    """Return the plugin, as it comes with this version; it knows the `CAPD_HOME` of its user."""
    text = (files("capd_client") / "opencode_plugin" / "capd.js").read_text(encoding="utf-8")
    if not env.get("CAPD_HOME"):
        return text
    home = json.dumps(str(Path(env["CAPD_HOME"]).absolute()))
    return text.replace('const INSTALLED_HOME = ""', f"const INSTALLED_HOME = {home}")


def _remove_plugin(text: str, original: str | None) -> str:
    """Keep a plugin that was edited: whose lines are whose cannot be told."""
    del original
    return text
