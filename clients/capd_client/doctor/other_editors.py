"""Checks clients that a person added capd to by hand: the program they start must exist."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_client.install import UnreadableError
from capd_client.install.documents import program_of, read_servers
from capd_client.install.files import read
from capd_client.install.known_clients import ServersFile, known_clients
from capd_client.install.launcher import NAME as LAUNCHER_NAME

_NAME = "capd"
_OURS = frozenset({_NAME, LAUNCHER_NAME})


def check_other_editors(seen: CheckContext) -> Iterator[Finding]:
    """Check each entry that starts capd and that `capd install` did not write."""
    for client in known_clients().values():
        for file in client.user_files(seen.env) if client.is_edited else ():
            servers = _servers(file)
            if servers is None and file == client.user_file(seen.env):
                # The check of the client itself reports it.
                continue
            if servers is None:
                yield Finding(
                    "editors",
                    "note",
                    f"{file.path} cannot be read: whether {client.title} has capd is not known",
                )
                continue
            for name, entry in servers.items():
                program = program_of(entry)
                is_installed = name == _NAME and Path(program).name == LAUNCHER_NAME
                if not is_installed and (name in _OURS or Path(program).name in _OURS):
                    yield _looked_at(seen, client.title, file.path, program)


def _servers(file: ServersFile) -> Mapping[str, Any] | None:
    """Return the servers' entries in a client's file, by name; None if it cannot be read."""
    try:
        return read_servers((read(file.path) or b"").decode(), file)
    except NotADirectoryError:
        return {}
    except (OSError, UnicodeDecodeError, UnreadableError):
        return None


def _looked_at(seen: CheckContext, title: str, path: Path, command: str) -> Finding:
    search = seen.env.get("PATH", os.defpath)
    if not command:
        return Finding("editors", "note", f"{title} reaches capd its own way ({path})")
    if shutil.which(command, path=search) is None:
        return Finding(
            "editors",
            "error",
            f"{title} cannot start capd: {command} is not there, or cannot be run",
            f"{path} names it",
            "write the path of the capd that there is (`command -v capd`)",
        )
    if Path(command).name not in _OURS:
        return Finding("editors", "note", f"{title} starts capd its own way: {command}")
    return Finding("editors", "ok", f"{title} has capd")
