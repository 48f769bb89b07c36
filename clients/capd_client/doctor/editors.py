"""Clients in which capd is installed, and whether what they start is still there."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capd_client.doctor.findings import Finding
from capd_client.doctor.surroundings import Surroundings
from capd_client.install import InstallError
from capd_client.install.claude import Claude
from capd_client.install.edits import plan_install
from capd_client.install.files import read
from capd_client.install.jsonc import JsoncError, find, parse
from capd_client.install.launcher import NAME, is_launcher_current, launcher_path
from capd_client.install.ledger import Ledger
from capd_client.install.opencode import Opencode

_SERVERS = {Claude.name: ("mcpServers", "capd"), Opencode.name: ("mcp", "capd")}


def check_editors(seen: Surroundings) -> Iterator[Finding]:
    """Look into the configuration of each client that capd can be installed in."""
    launcher = launcher_path(seen.env)
    for client in (Claude(seen.env, launcher), Opencode(seen.env, launcher)):
        yield from _looked_at(seen, client, launcher)


def _looked_at(seen: Surroundings, client: Claude | Opencode, launcher: Path) -> Iterator[Finding]:
    check, again = client.name, f"capd install {client.name}"
    try:
        data = read(client.config)
        text = "" if data is None else data.decode()
        node = find(parse(text), _SERVERS[client.name]) if text.strip("\ufeff \t\r\n") else None
    except (OSError, UnicodeDecodeError, JsoncError) as error:
        yield Finding(
            check,
            "warning",
            f"{client.config} cannot be read",
            " ".join(str(error).split()),
            f"correct it; {client.title} may have started without it",
        )
        return
    if node is None:
        if data is not None:
            yield Finding(check, "note", f"{client.title} does not have capd (`{again}`)")
        return
    command = _command(node.value)
    if Path(command).name != NAME:
        yield Finding(check, "note", f"{client.title} starts capd its own way: {command or '?'}")
    elif not os.access(command, os.X_OK):
        yield Finding(
            check,
            "error",
            f"{client.title} cannot start capd: {command} is not there, or cannot be run",
            "it was removed after capd was installed in it",
            again,
        )
    elif Path(command) != launcher:
        yield Finding(
            check,
            "warning",
            f"{client.title} starts another capd: {command}",
            f"the one of this environment is {launcher}",
            f"{again}, if this is the one that you want",
        )
    elif not is_launcher_current(seen.env):
        yield Finding(
            check,
            "warning",
            f"{client.title} starts capd by {launcher}, which this capd did not write",
            "it was written by another version or by another Python, which may be gone",
            again,
        )
    else:
        yield from _whole(seen, client)


def _whole(seen: Surroundings, client: Claude | Opencode) -> Iterator[Finding]:
    """See whether installing once more would change anything: a hook that is gone, for one."""
    try:
        changes = plan_install(Ledger(Path(seen.places.state), client.name), client.edits())
    except InstallError as error:
        what, _, fix = str(error).partition("\n")
        yield Finding(client.name, "warning", f"{client.title} cannot be looked at", what, fix)
        return
    lacking = [str(change.path) for change in changes if not change.is_none]
    if lacking:
        yield Finding(
            client.name,
            "warning",
            f"{client.title} has capd in part",
            f"what `capd install` puts there is not in {', '.join(lacking)}",
            f"capd install {client.name}",
        )
    else:
        yield Finding(client.name, "ok", f"{client.title} has capd")


def _command(server: Any) -> str:
    """Return the program of a server's entry, in either client's way of writing it."""
    command = server.get("command") if isinstance(server, dict) else None
    if isinstance(command, list):
        command = command[0] if command else None
    return command if isinstance(command, str) else ""
