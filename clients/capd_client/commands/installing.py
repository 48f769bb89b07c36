"""`capd install CLIENT` and `capd uninstall CLIENT`."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from capd_client import tables
from capd_protos.places import places

if TYPE_CHECKING:
    from capd_client.install.claude import Claude
    from capd_client.install.ledger import Ledger
    from capd_client.install.opencode import Opencode

    Client: TypeAlias = Claude | Opencode

_CLIENTS = ("claude", "opencode")


@click.command()
@click.argument("client", type=click.Choice(_CLIENTS))
@click.option("--dry-run", is_flag=True, help="Print what would change, as a diff.")
def install(*, client: str, dry_run: bool) -> None:
    """Put capd into the configuration of CLIENT."""
    # Imported here, as no other command has use for them.
    from capd_client.install.edits import plan_install  # noqa: PLC0415
    from capd_client.install.launcher import launcher_path, write_launcher  # noqa: PLC0415
    from capd_client.install.vendor import make_with_vendor  # noqa: PLC0415

    made, ledger = _client(client), _ledger(client)
    if dry_run:
        for change in plan_install(ledger, made.edits()):
            if change.is_none:
                continue
            command = made.vendor_command(change)
            if command:
                click.echo(f"# by: {shlex.join(['claude', *command[1:]])}")
            click.echo(change.diff(), nl=False)
        return
    with ledger.locked():
        changes = plan_install(ledger, made.edits())
        if write_launcher(os.environ):
            tables.say(f"{launcher_path(os.environ)}: written")
        for change in changes:
            if not change.is_none:
                _say_backup(change.path, "changed", make_with_vendor(ledger, made, change))
    if all(change.is_none for change in changes):
        click.echo(f"{made.title} has capd already: no change")
    else:
        click.echo(f"{made.title} has capd from its next start on")


@click.command()
@click.argument("client", type=click.Choice(_CLIENTS))
@click.option("--dry-run", is_flag=True, help="Print what would change, as a diff.")
def uninstall(*, client: str, dry_run: bool) -> None:
    """Take capd out of the configuration of CLIENT."""
    from capd_client.install.edits import plan_uninstall, unmake  # noqa: PLC0415

    made, ledger = _client(client), _ledger(client)
    if dry_run:
        for change in plan_uninstall(ledger, made.edits()):
            click.echo(change.diff(), nl=False)
        return
    with ledger.locked():
        changes = plan_uninstall(ledger, made.edits())
        for change in changes:
            backup = unmake(ledger, change)
            if not change.is_none:
                is_exact = change.after == change.original
                what = "as it was before" if is_exact else "capd is taken out, the rest is as it is"
                _say_backup(change.path, what, backup)
            elif change.before is not None and change.path == _plugin(made):
                tables.say(f"{change.path}: was edited and stays; remove it by hand")
    if all(change.is_none for change in changes):
        click.echo(f"{made.title} does not have capd: no change")


def _client(name: str) -> "Client":
    from capd_client.install.claude import Claude  # noqa: PLC0415
    from capd_client.install.launcher import launcher_path  # noqa: PLC0415
    from capd_client.install.opencode import Opencode  # noqa: PLC0415

    launcher = launcher_path(os.environ)
    if name == Claude.name:
        return Claude(os.environ, launcher)
    return Opencode(os.environ, launcher)


def _ledger(name: str) -> "Ledger":
    from capd_client.install.ledger import Ledger  # noqa: PLC0415

    return Ledger(Path(places(os.environ, os.getuid()).state), name)


def _plugin(made: "Client") -> Path | None:
    plugin: Path | None = getattr(made, "plugin", None)
    return None if plugin is None else plugin.resolve()


def _say_backup(path: Path, what: str, backup: Path | None) -> None:
    tables.say(f"{path}: {what}" + (f" (backup: {backup})" if backup is not None else ""))


COMMANDS = {"install": install, "uninstall": uninstall}
