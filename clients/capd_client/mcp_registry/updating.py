"""`capd update`: a newer version of a server from a registry, inspected before it is installed.

Nothing is updated automatically. The user's changes to the definition are kept: only the command,
the URL, the environment and the headers of the server's table are replaced.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capd_client.importing.stores import KnownValues
from capd_client.mcp_registry.adding import (
    inspect_server,
    own_server,
    record_of,
    referenced,
    resolve_entry,
)
from capd_client.mcp_registry.process import RegistryError
from capd_client.mcp_registry.record import FILE, SourceRecord, read_record
from capd_client.own_tap import OwnServer, OwnTap

_KEYS = ("command", "args", "url", "env", "headers")
_DEFINITION = "default.toml"
_CONFIG = "config.toml"


@dataclass(frozen=True, slots=True)
class VersionUpdate:
    """A newer version of a server, and what an update to it would change."""

    name: str
    before: SourceRecord
    entry: Mapping[str, Any]
    server: OwnServer
    files: Mapping[str, str]
    """The new texts of the definition's files."""
    found: Mapping[str, Any]
    """What the new version lists in a sandbox."""


def from_registry(tap: OwnTap) -> dict[str, SourceRecord]:
    """Return the servers that were added from a registry, by their local names."""
    found = ((name, read_record(tap.place(name))) for name in tap.names())
    return {name: record for name, record in found if record is not None}


def newer(
    name: str, record: SourceRecord, tap: OwnTap, config: str, given: Mapping[str, list[str]]
) -> "VersionUpdate | None":
    """Return what an update of the server `name` would do; None if it has the latest version.

    `record` says where it came from, and `given` has values for the inputs of its entry. `tap` is
    the user's own tap, and `config` the configuration folder.

    Raises:
        RegistryError: the latest version cannot be downloaded or used here, or needs a value.
        SecretError: others can read `secrets.env`.
    """
    latest = resolve_entry(record.name, "latest", record.kind, tap, fetches=False)
    if latest["version"] == record.version and latest["package"] == record.package:
        return None
    entry = resolve_entry(record.name, str(latest["version"]), record.kind, tap)
    asked = {str(each["name"]): each for each in entry.get("inputs") or ()}
    answers = {key: values for key, values in record.answers.items() if key in asked}
    answers |= {key: values for key, values in given.items() if key in asked}
    missing = [
        key
        for key, each in asked.items()
        if each.get("is_required") and not each.get("default") and not answers.get(key)
    ]
    if missing:
        raise RegistryError(
            f"version {entry['version']} needs {', '.join(missing)}: give --set {missing[0]}=VALUE"
        )
    server = own_server(name, entry, answers)
    place = tap.place(name)
    before = {file: (place / file).read_text(encoding="utf-8") for file in (_CONFIG, _DEFINITION)}
    made = _edited(before[_DEFINITION], server)
    files = {**before, _DEFINITION: made}
    values = referenced([made], KnownValues(os.environ, config))
    found = inspect_server(server, entry, values, files=files, previous=before)
    kept = {_DEFINITION: made, FILE: record_of(entry, answers).text()}
    return VersionUpdate(name, record, entry, server, kept, found)


def _edited(text: str, server: OwnServer) -> str:
    """Return a definition's text with the command, URL and values of `server` put into it."""
    import tomlkit  # noqa: PLC0415 - 25 ms that most commands have no use for

    document = tomlkit.parse(text)
    try:
        block: Any = document["mcp"]["servers"][0]
    except (KeyError, IndexError, TypeError):
        raise RegistryError("its definition was changed by hand, and has no server") from None
    now: dict[str, Any] = {}
    if server.url:
        now = {"url": server.url}
    else:
        now = {"command": server.command[0], "args": list(server.command[1:])}
    added = {key: dict(each) for key, each in (("env", server.env), ("headers", server.headers))}
    for key in _KEYS:
        value = now.get(key) or added.get(key)
        if value:
            block[key] = value
        elif key in block:
            del block[key]
    made = tomlkit.dumps(document)
    read = tomllib.loads(made)["mcp"]["servers"][0]
    if any(read.get(key) != value for key, value in now.items()):
        raise RegistryError("its definition cannot be edited as it is written")
    return made
