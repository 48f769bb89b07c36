"""The user's own tap, `<config>/own`: one capability for each server that was added by hand.

A capability's folder is created and removed as a whole, so that a watching daemon sees a complete
definition or none. The tap is in the list of taps while it contains a capability.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from capd_client.install.files import naming
from capd_client.taps import OWN, TapError, TapList, find_name
from capd_client.toml_files import text_of
from capd_protos.places import make_folders

NAME = OWN
_SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME = 64
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server as a person describes it: it has either a `command` or a `url`."""

    name: str
    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    triggers: Sequence[str] = ()
    scope: str = ""
    description: str = ""
    tools: Sequence[str] = ()
    """The tools that are used; empty means all."""
    timeout: float = 0.0
    """Seconds for a call; 0 means the default."""
    triggers_from_tools: bool = False
    """Whether the daemon adds triggers once the server has listed its tools."""


class OwnTap:
    """The user's own tap below the configuration folder `config`.

    Raises:
        TapError: a change is not possible; the text says why, and what to do.
    """

    def __init__(self, config: str) -> None:
        self._list = TapList(config)
        self.folder = Path(config, NAME)
        self._capabilities = self.folder / "capabilities"

    def names(self) -> list[str]:
        """Return the names of all servers in the tap."""
        try:
            found = [folder.name for folder in self._capabilities.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))

    def add(self, server: OwnServer, beside: Mapping[str, str] = NOTHING) -> Path:
        """Write the definition of `server`, and put the tap on the list.

        Return the definition's folder. `beside` has the texts of more files for that folder, by
        name.
        """
        check(server)
        place = self._capabilities / server.name
        if place.exists():
            raise TapError(
                f"{server.name} is there already: {place / 'default.toml'}\n"
                f"Edit that file, or remove it first: capd remove {server.name}"
            )
        is_listed = self._is_listed()
        make_folders(self._capabilities)
        made = Path(tempfile.mkdtemp(dir=self.folder, prefix=".adding."))
        try:
            for name, text in {**definition(server), **beside}.items():
                with naming(place / name):
                    (made / name).write_text(text, encoding="utf-8")
            made.rename(place)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            raise
        if not is_listed:
            try:
                self._list.add(self.folder, NAME)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
        return place

    def place(self, name: str) -> Path:
        """Return the folder of the definition of `name`, whether it exists or not."""
        return self._capabilities / name

    def replace(self, name: str, files: Mapping[str, str]) -> Path:
        """Write `files`, new texts by file name, into the definition of `name`; return its folder.

        Other files in the folder stay.
        """
        place = self.place(name)
        made = Path(tempfile.mkdtemp(dir=self.folder, prefix=".replacing."))
        try:
            shutil.copytree(place, made / "new", symlinks=True)
            for file, text in files.items():
                with naming(place / file):
                    (made / "new" / file).write_text(text, encoding="utf-8")
            place.rename(made / "old")
            try:
                (made / "new").rename(place)
            except OSError:
                (made / "old").rename(place)
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return place

    def remove(self, name: str) -> Path:
        """Remove the definition of `name`; return its former folder."""
        hint = "What a tap has goes with it: capd tap remove TAP"
        name = find_name(name, self.names(), f"no server named {name} was added\n{hint}")
        place = self._capabilities / name
        gone = Path(tempfile.mkdtemp(dir=self.folder, prefix=".removing.")) / name
        place.rename(gone)
        shutil.rmtree(gone.parent)
        if not self.names() and self._is_listed():
            self._list.remove(NAME)
            self._capabilities.rmdir()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()
        return place

    def _is_listed(self) -> bool:
        entry = next((each for each in self._list.read() if each["name"] == NAME), None)
        # As `TapList.add` writes it.
        if entry is not None and entry["path"] != os.path.abspath(self.folder):  # noqa: PTH100
            raise TapError(
                f"the name `{NAME}` is taken by the tap at {entry['path']}\n"
                f"Rename that tap: capd tap remove {NAME}, then"
                f" capd tap add {entry['path']} --name OTHER"
            )
        return entry is not None


def definition(server: OwnServer) -> dict[str, str]:
    """Return the files of the capability that `server` becomes: their texts by name."""
    block: dict[str, object] = {"name": server.name}
    if server.url:
        block |= {"type": "http", "url": server.url}
    else:
        block |= {"command": server.command[0], "args": list(server.command[1:])}
    if server.scope:
        block["scope"] = server.scope
    if server.description:
        block["description"] = server.description
    if server.tools:
        block["tools"] = list(server.tools)
    if server.timeout:
        block["timeout_seconds"] = server.timeout
    for key, table in (("env", server.env), ("headers", server.headers)):
        if table:
            block[key] = dict(table)
    # At least three, as for every tap: a capability with fewer is found too rarely.
    triggers = [*server.triggers, *words_of(server.name)[len(server.triggers) :]]
    config: dict[str, object] = {"triggers": triggers}
    if server.triggers_from_tools:
        config["triggers_from_tools"] = True
    return {
        "config.toml": text_of(Path("config.toml"), config),
        "default.toml": text_of(Path("default.toml"), {"mcp": {"servers": [block]}}),
    }


def words_of(name: str) -> list[str]:
    """Return three triggers that are made from a server's name: `use NAME`, `ask NAME`, ..."""
    spoken = re.sub(r"[-_.]+", " ", name).strip()
    return [f"use {spoken}", f"ask {spoken}", f"with the help of {spoken}"]


def env_of(words: Sequence[str]) -> dict[str, str]:
    """Return environment variables from words of `--env`: `KEY=VALUE`, or `KEY` for a secret.

    Raises:
        TapError: a word has no valid key.
    """
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not _KEY.fullmatch(key):
            raise TapError(
                f"--env {word[:80]} has no key before `=`\n"
                "Write KEY=VALUE, or KEY alone for a secret (capd secret set KEY)."
            )
        found[key] = value if equals else f"{{{{ENV:{key}}}}}"
    return found


def headers_of(words: Sequence[str]) -> dict[str, str]:
    """Return headers from words of `--header`, each `Name: value`.

    Raises:
        TapError: a word has no name or no colon.
    """
    found = {}
    for word in words:
        name, colon, value = word.partition(":")
        if not colon or not name.strip():
            raise TapError(f"--header {word[:80]} is not a header\nWrite 'Name: value'.")
        found[name.strip()] = value.strip()
    return found


def is_server_name(name: str) -> bool:
    """Tell whether `name` is allowed for a server.

    It has 1 to 64 characters of A-Z a-z 0-9 . _ -, begins with a letter or digit, and contains no
    `__`.
    """
    return bool(_SERVER.fullmatch(name)) and "__" not in name and len(name) <= LONGEST_NAME


def check(server: OwnServer) -> None:
    """Check that `server` can be added.

    Raises:
        TapError: it cannot; the text says why, and what to do.
    """
    name = server.name
    if not is_server_name(name):
        raise TapError(
            f"{name[:80]!r} is not a valid server name\n"
            f"Use letters, digits, dots, dashes and single underscores, at most {LONGEST_NAME}."
        )
    if bool(server.url) == bool(server.command):
        raise TapError(
            "a server has a command or a --url, one of the two\n"
            "For example: capd add weather -- npx -y weather-mcp@1.2.3"
        )
    if server.command and not server.command[0].strip():
        raise TapError(
            "the server's command is empty\n"
            "For example: capd add weather -- npx -y weather-mcp@1.2.3"
        )
    if server.url and not server.url.startswith(("http://", "https://")):
        raise TapError(f"{server.url[:80]} is not an address\nIt begins with https:// or http://.")
    if server.url and not _has_host(server.url):
        raise TapError(
            f"{server.url[:80]} is not an address\nIt has a host, and maybe a port:"
            " https://host:8080/mcp"
        )
    if any(not trigger.strip() for trigger in server.triggers):
        raise TapError("a --trigger is empty\nWrite what you would say, in your own words.")


def _has_host(url: str) -> bool:
    """Tell whether `url` has a host, and no port that cannot be one."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - few commands need it

    try:
        parts = urlsplit(url)
        # The value of a secret, `{{KEY}}`, is not known yet. It may be the port.
        return bool(parts.hostname) and ("{{" in parts.netloc or parts.port != 0)
    except ValueError:
        return False
