"""Checks the clients that `capd install` edits: what it wrote there must be whole and current.

Clients that a person added capd to by hand are checked in `other_editors.py`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding
from capd_client.install import InstallError, UnreadableError
from capd_client.install.client import Client
from capd_client.install.edits import plan_install
from capd_client.install.files import read
from capd_client.install.installed_clients import edited_clients
from capd_client.install.launcher import NAME, is_launcher_current, launcher_path
from capd_client.install.ledger import Ledger
from capd_client.install.prompt_hooks import TRUSTED_BY_HASH, trust_edits


def check_editors(seen: CheckContext) -> Iterator[Finding]:
    """Check the configuration of every client that `capd install` can edit."""
    for client in edited_clients(seen.env):
        yield from _looked_at(seen, client, launcher_path(seen.env))


def _looked_at(seen: CheckContext, client: Client, launcher: Path) -> Iterator[Finding]:
    check, again = client.name, f"capd install {client.name}"
    try:
        data = read(client.config)
        command = client.server.own_program("" if data is None else data.decode())
    except (OSError, UnicodeDecodeError, UnreadableError) as error:
        yield Finding(
            check,
            "warning",
            f"{client.config} cannot be read",
            " ".join(str(error).split()),
            f"correct it; {client.title} may have started without it",
        )
        return
    if command is None:
        if data is not None:
            yield Finding(check, "note", f"{client.title} does not have capd (`{again}`)")
        return
    if Path(command).name != NAME:
        # Added by hand: another check looks at it.
        return
    if not os.access(command, os.X_OK):
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


def _whole(seen: CheckContext, client: Client) -> Iterator[Finding]:
    """Yield whether the client has everything that `capd install` puts into its files.

    For example, a file may lack capd's hook.
    """
    try:
        changes = plan_install(Ledger(Path(seen.places.state), client.name), client.edits())
    except InstallError as error:
        what, _, fix = str(error).partition("\n")
        yield Finding(client.name, "warning", f"{client.title} cannot be checked", what, fix)
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
    elif _is_hook_untrusted(seen, client):
        yield Finding(
            client.name,
            "warning",
            f"{client.title} skips capd's hook: no prompt reaches capd",
            "its user has not trusted the hook, or trusted one of another command line",
            f"run codex, then /hooks; or: capd install {client.name} --trust-hooks",
        )
    else:
        yield Finding(client.name, "ok", f"{client.title} has capd")


def _is_hook_untrusted(seen: CheckContext, client: Client) -> bool:
    """Tell whether the client ignores capd's hook because its user has not trusted it yet.

    Codex does so.
    """
    if client.name not in TRUSTED_BY_HASH:
        return False
    try:
        edits = trust_edits(client.name, seen.env, launcher_path(seen.env))
        texts = [(read(edit.path) or b"").decode() for edit in edits]
        return any(edit.add(text) != text for edit, text in zip(edits, texts, strict=True))
    except (OSError, UnicodeDecodeError, UnreadableError, InstallError):
        # The problem with the file was reported above.
        return False
