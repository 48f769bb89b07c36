"""Every client that capd can be put into, and the state of each."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from capd_client.install import UnreadableError
from capd_client.install.claude import Claude
from capd_client.install.client import Client
from capd_client.install.edits import FileEdit
from capd_client.install.files import read, real_path
from capd_client.install.known_clients import KnownClient, known_clients
from capd_client.install.launcher import NAME, launcher_path

_NEEDING = ("plugin", "plugins", "tool", "tools")
"""Folders for plugins and tools of a user's own, which import the package that opencode fetches."""
_FETCHED = ("node_modules", "package.json", "package-lock.json", "bun.lock", "bun.lockb")


class Opencode(Client):
    """opencode, whose prompts capd gets from a plugin instead of a hook."""

    @property
    def plugin(self) -> Path:
        """The path at which opencode looks for the plugin."""
        return self.config.parent / "plugin" / "capd.js"

    @property
    def whole_files(self) -> tuple[Path, ...]:
        """The plugin, a file whose whole content capd writes."""
        return (self.plugin,)

    def first_start(self) -> list[str]:
        """Return a command that starts opencode, which then fetches what plugins may need.

        opencode 1.18.33 fetches a package whenever it finds a plugin and no `node_modules`. It
        answers nothing until then: the first start took 31 s, the next one 5 s.
        """
        program = shutil.which("opencode", path=self._env.get("PATH", os.defpath))
        is_done = (self.config.parent / "node_modules").exists()
        return [program, "debug", "config"] if program and not is_done else []

    def hooks(self) -> list[FileEdit]:
        """Return the edit that writes the plugin."""
        return [FileEdit(self.plugin, lambda _: plugin_text(self._env), _remove_plugin)]

    def leftovers(self) -> list[Path]:
        """Return the empty folder of plugins, and the package that opencode fetched for them.

        The package is not returned if the user may need it: if they have a plugin or tool of their
        own, or if package.json contains anything else. opencode fetches it again when needed.
        """
        folder = self.config.parent
        own = [path for name in _NEEDING for path in (folder / name).glob("*")]
        plugins = self.plugin.parent
        empty = [plugins] if plugins.is_dir() and not any(plugins.iterdir()) else []
        try:
            package = json.loads((folder / "package.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return empty
        needed = package.get("dependencies") if isinstance(package, dict) else None
        is_opencodes = (
            isinstance(needed, dict)
            and list(package) == ["dependencies"]
            and list(needed) == ["@opencode-ai/plugin"]
        )
        if own or not is_opencodes:
            return empty
        found = [folder / name for name in _FETCHED if (folder / name).exists()]
        return [path for path in (*empty, *found) if not path.is_symlink()]


def plugin_text(env: Mapping[str, str]) -> str:
    """Return the text of opencode's plugin; if `CAPD_HOME` is set, the text contains its value."""
    text = (files("capd_client") / "opencode_plugin" / "capd.js").read_text(encoding="utf-8")
    if not env.get("CAPD_HOME"):
        return text
    home = json.dumps(str(Path(env["CAPD_HOME"]).absolute()))
    return text.replace('const INSTALLED_HOME = ""', f"const INSTALLED_HOME = {home}")


def _remove_plugin(text: str, original: str | None) -> str:
    """Return `text` unchanged: capd cannot tell the user's edits from its own lines."""
    del original
    return text


_OWN = {"claude": Claude, "opencode": Opencode}
"""The clients for which the table of clients is not enough, with their classes."""


@dataclass(frozen=True, slots=True)
class State:
    """Whether a client has capd, in words for the list that `capd install` prints."""

    words: str
    has_capd: bool = False
    is_off: bool = False
    """Whether the user has switched capd off in the client."""


def client_of(known: KnownClient, env: Mapping[str, str]) -> Client:
    """Return the object that installs capd into `known`, which must be `is_edited`."""
    return _OWN.get(known.id, Client)(known, env, launcher_path(env))


def edited_clients(env: Mapping[str, str]) -> list[Client]:
    """Return every client whose file capd edits."""
    return [client_of(known, env) for known in known_clients().values() if known.is_edited]


def needed_by_others(client: Client, env: Mapping[str, str]) -> dict[Path, KnownClient]:
    """Return the files with hooks of `client` that another client with capd uses as well.

    Each is returned with that other client. Uninstalling `client` leaves these files alone.
    """
    own = {real_path(edit.path) for edit in client.hooks()}
    needed: dict[Path, KnownClient] = {}
    for other in edited_clients(env):
        shared = own & {real_path(edit.path) for edit in other.hooks()}
        if shared and other.name != client.name and state_of(other.known, env).has_capd:
            needed |= dict.fromkeys(shared, other.known)
    return needed


def state_of(known: KnownClient, env: Mapping[str, str]) -> State:
    """Return the state of the client `known`, as its file shows it.

    An unreadable file is one of the states.
    """
    if not known.is_edited:
        return State("by hand: capd prints what to add where")
    client = client_of(known, env)
    try:
        data = read(client.config)
        text = "" if data is None else data.decode()
        program = client.server.own_program(text)
        is_off = client.server.is_off(text)
    except UnreadableError as error:
        return State(f"cannot be read, line {error.line}: {error}")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        return State(f"cannot be read: {reason}")
    if program is None:
        return State("does not have capd")
    if Path(program).name != NAME:
        return State(f"has a server of that name: {program or '?'}", has_capd=True)
    words = "has capd, switched off" if is_off else "has capd"
    return State(words, has_capd=True, is_off=is_off)
