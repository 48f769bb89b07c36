"""`capd import --replace`, `--undo`, `--forget`: edits clients' files, undoes it, drops backups."""

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capd_client import tables
from capd_client.commands import installing
from capd_client.commands.shared import fail, this_places
from capd_client.install import InstallError
from capd_client.install.known_clients import known_clients

if TYPE_CHECKING:
    from capd_client.importing.definition import Origin
    from capd_client.importing.plan import ImportPlan
    from capd_client.importing.replacing import Replacements
    from capd_client.importing.source_files import SourceEntry


def replace(
    plan: "ImportPlan",
    entries: "Iterable[SourceEntry]",
    *,
    yes: bool,
    dry_run: bool,
    is_quiet: bool,
) -> list[str]:
    """Install capd in the clients of `plan`, and remove the imported servers from their files.

    `entries` are those that the plan was made from. The person is asked first, unless `yes`. With
    `dry_run` nothing is changed, and with `is_quiet` only errors are printed. Return the paths of
    the changed files. A client that fails does not stop the others; the command fails after the
    last.
    """
    from capd_client.importing.definition import shown  # noqa: PLC0415

    values = {entry.origin: entry.value for entry in entries}
    by_client, theirs = _by_client(plan)
    say = _nothing if is_quiet else tables.say
    for path in theirs:
        say(f"{shown(path)}: is the project's, and stays as it is")
    if not by_client:
        say("No file of yours has a server that was imported.")
        return []
    for client, files in by_client.items():
        for path, origins in files.items():
            names = ", ".join(origin.name for origin in origins)
            say(f"{shown(path)}: loses {names}; {known_clients()[client].title} gets capd")
    if dry_run or not _is_agreed(yes=yes, is_quiet=is_quiet):
        return []
    changed, failed = [], []
    for client, files in by_client.items():
        try:
            changed += _replace_in(client, files, values, is_quiet=is_quiet)
        except (InstallError, OSError) as error:
            failed.append(client)
            click.echo(f"capd: {tables.printable(_words(error), keep_lines=True)}", err=True)
    if changed and not is_quiet:
        click.echo("`capd import --undo` restores all of it.")
        _offer_to_forget(yes=yes)
    if failed:
        fail(f"not replaced in {', '.join(failed)}\nThe reasons are above; the others are done.")
    return changed


def undo(clients: tuple[str, ...]) -> None:
    """Put the servers that an import removed back into the clients' files.

    capd is removed from the clients into which an import installed it. Without `clients`, all
    clients are meant.
    """
    kept = _kept()
    taken = {each.client for each in kept.files().values()} | set(kept.installed())
    chosen = [name for name in known_clients() if name in taken and name in (clients or taken)]
    if not chosen:
        click.echo("No import has removed servers: no change")
    for client in chosen:
        is_ours = client in kept.installed()
        for path in kept.put_back(client):
            tables.say(f"{path}: the imported servers were restored")
        if is_ours:
            _run(installing.uninstall, client)


def forget(*, yes: bool) -> None:
    """Delete the backups that `undo` needs. Without `yes`, the person is asked first."""
    if not yes:
        if not _is_terminal():
            fail("nothing was removed: there is nobody to ask\nGive --yes.")
        click.confirm("Then nothing can put the servers back. Remove the copies?", abort=True)
    gone = _kept().forget()
    for path in gone:
        tables.say(f"{path}: removed")
    if not gone:
        click.echo("There are no copies: no change")


def _by_client(
    plan: "ImportPlan",
) -> "tuple[dict[str, dict[Path, list[Origin]]], list[Path]]":
    """Return in which files the imported servers were found.

    The first result has the servers' origins, by client and by the user's file. The second is the
    list of the project's files.
    """
    own: dict[str, dict[Path, list[Origin]]] = {}
    theirs: dict[Path, None] = {}
    for origin in (origin for planned in plan.planned for origin in planned.origins):
        files = known_clients()[origin.client].user_files(os.environ)
        if origin.file in {file.path for file in files}:
            own.setdefault(origin.client, {}).setdefault(origin.file, []).append(origin)
        else:
            theirs.setdefault(origin.file)
    return own, list(theirs)


def _replace_in(
    client: str,
    files: "Mapping[Path, list[Origin]]",
    values: "Mapping[Origin, Mapping[str, Any]]",
    *,
    is_quiet: bool,
) -> list[str]:
    from capd_client.install.installed_clients import state_of  # noqa: PLC0415

    kept, known = _kept(), known_clients()[client]
    if not state_of(known, os.environ).has_capd:
        output = io.StringIO()
        with contextlib.redirect_stdout(output) if is_quiet else contextlib.nullcontext():
            _run(installing.install, client, check=False)
        kept.note_installed(client)
    changed = []
    for path, origins in files.items():
        backup = kept.take({origin: values[origin] for origin in origins})
        changed.append(str(path))
        if not is_quiet:
            tables.say(f"{path}: changed (backup: {backup})")
    return changed


def _run(command: click.Command, client: str, **options: bool) -> None:
    context = click.get_current_context()
    context.invoke(command, names=(client,), is_all=False, dry_run=False, **options)


def _offer_to_forget(*, yes: bool) -> None:
    if yes or not _is_terminal():
        click.echo("The backups have the secrets that were there: capd import --forget")
        return
    click.echo("The backups have the secrets that were there, and only you can read them.")
    if click.confirm("Remove them? Then nothing can put the servers back."):
        forget(yes=True)


def _is_agreed(*, yes: bool, is_quiet: bool) -> bool:
    if yes:
        return True
    if is_quiet or not _is_terminal():
        fail("nothing was replaced: there is nobody to ask\nLook with --dry-run, then give --yes.")
    return click.confirm("Replace them?")


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _kept() -> "Replacements":
    from capd_client.importing.replacing import Replacements  # noqa: PLC0415

    return Replacements(Path(this_places().state))


def _words(error: InstallError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)


def _nothing(text: str) -> None:
    del text
