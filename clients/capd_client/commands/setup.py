"""`capd setup`: from a fresh install to the first tool in an editor, with at most three questions.

    editors that are found here     connected, as `capd install` does
    their servers                   taken over, as `capd import` does
    the daemon                      as a service that starts at login, as `capd daemon install` does

Steps that are done already are skipped, so the command can be repeated at any time.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from capd_client import tables
from capd_client.commands.importing import planned
from capd_client.commands.installing import ClientName, check_prompts, install, reason_of
from capd_client.commands.scratch import start_daemon
from capd_client.commands.shared import Failure, fail, this_places
from capd_client.importing.execution import carry_out
from capd_client.importing.stores import SecretStore
from capd_client.install import InstallError
from capd_client.install.installed_clients import state_of
from capd_client.install.known_clients import KnownClient, known_clients
from capd_client.service.detection import this_manager
from capd_client.service.manager import ServiceError
from capd_client.service.plain import Plain
from capd_client.stored_secrets import SecretError
from capd_protos.extras import command as extra_command

_MOST_NAMED = 6
_SAY = (
    ("uvx", "what time is it in Tokyo right now?"),
    ("npx", "list the files in this folder"),
)
"""Triggers of the starter tap, each after the program that its server needs. The server that starts
quickest comes first."""


@click.command()
@click.argument("names", metavar="[CLIENT]...", nargs=-1, type=ClientName())
@click.option("--yes", is_flag=True, help="Do not ask: connect all, and take over their servers.")
@click.option(
    "--service/--no-service",
    "wants_service",
    default=None,
    help="Start the daemon at login, or not.  [default: asks; with --yes: not]",
)
@click.option("--no-import", is_flag=True, help="Leave the editors' own servers where they are.")
def setup(
    *, names: tuple[str, ...], yes: bool, wants_service: bool | None, no_import: bool
) -> None:
    """Connect the editors found here (or each CLIENT), take over their servers, and start capd."""
    if not yes and not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("there is nobody to ask\nGive --yes: capd setup --yes")
    chosen = _connected(_found(names), is_named=bool(names), yes=yes)
    if not no_import:
        _import(chosen, yes=yes)
    _keep_running(yes=yes, wants_service=wants_service)
    check_prompts(chosen)
    _say_what_next(chosen)


def _found(names: Sequence[str]) -> list[KnownClient]:
    if names:
        return [known_clients()[name] for name in dict.fromkeys(names)]
    return [each for each in known_clients().values() if each.is_detected(os.environ)]


def _connected(found: list[KnownClient], *, is_named: bool, yes: bool) -> list[KnownClient]:
    """Install capd into those clients of `found` that the person wants.

    Return the clients that have capd afterwards. With `is_named` (the person named the clients) or
    `yes`, no question is asked.
    """
    edited = [each for each in found if each.is_edited]
    for each in found:
        if not each.is_edited:
            click.echo(f"{each.title}: by hand, as `capd install {each.id}` says")
    if not edited:
        click.echo("No editor or agent was found here. `capd install` lists those that capd knows.")
        return []
    new = [each for each in edited if not state_of(each, os.environ).has_capd]
    for each in edited:
        if each not in new:
            click.echo(f"{each.title} has capd already")
    titles = ", ".join(each.title for each in new)
    if new and (yes or is_named or click.confirm(f"Connect {titles}?", default=True)):
        context = click.get_current_context()
        for each in new:
            try:
                context.invoke(install, names=(each.id,), check=False)
            except Failure as error:
                click.echo(f"capd: {tables.printable(error.message, keep_lines=True)}", err=True)
            except (InstallError, OSError) as error:
                click.echo(f"capd: {tables.printable(reason_of(error), keep_lines=True)}", err=True)
    return [each for each in edited if state_of(each, os.environ).has_capd]


def _import(clients: list[KnownClient], *, yes: bool) -> None:
    """Import the servers of `clients`, except servers that only this folder's files have.

    With `yes`, no question is asked.
    """
    if not clients:
        return
    config = this_places().config
    try:
        plan, _, tap, known = planned(clients, config)
        for each in [one for one in plan.added if one.is_of_project]:
            plan.leave_out(each, "only a file of this folder has it")
        if not plan.added:
            return
        count = len(plan.added)
        names = ", ".join(str(each.name) for each in plan.added[:_MOST_NAMED])
        more = f" and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
        what = f"{count} server{'' if count == 1 else 's'} of theirs ({names}{more})"
        if not (yes or click.confirm(tables.printable(f"Take over {what}?"), default=True)):
            return
        carry_out(plan, tap, SecretStore(config, in_file=False), known)
        tables.say(f"Took over {what}; the editors keep their own until `capd import --replace`")
    except SecretError as error:
        click.echo(f"capd: nothing was imported: {error}", err=True)


def _keep_running(*, yes: bool, wants_service: bool | None) -> None:
    """Install the service if the person wants it, and start the daemon in any case.

    If `wants_service` is None, the person is asked; with `yes` as well, nobody is asked, and no
    service is installed.
    """
    manager = this_manager(os.environ)
    is_plain = isinstance(manager, Plain)
    if is_plain and wants_service:
        click.echo("No service manager of yours answers here: capd starts with the first editor")
    if not is_plain and not manager.is_installed():
        if wants_service is None and not yes:
            text = f"Start capd at login ({manager.name})?"
            wants_service = click.confirm(text, default=True)
        if wants_service:
            try:
                for line in manager.install(is_hardened=False):
                    tables.say(line)
            except ServiceError as error:
                click.echo(f"capd: {tables.printable(error, keep_lines=True)}", err=True)
    start_daemon()


def _say_what_next(clients: list[KnownClient]) -> None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    text = next((text for program, text in _SAY if shutil.which(program, path=path)), "")
    click.echo()
    if not text:
        click.echo("Most servers need uvx or npx, and neither is here. Get one of them with:")
        click.echo(f"  {extra_command('uv')}")
        return
    if clients:
        titles = " or ".join(each.title for each in clients[:2])
        click.echo(f"Done. Restart {titles}, and say this in your editor:")
    else:
        click.echo("Done. Without an editor, say this here:")
        text = f'capd turn "{text}"'
    click.echo(f"\n  {text}\n")
    click.echo("`capd why` says what it switched on, and why.")


COMMANDS = {"setup": setup}
