"""`capd import`: turns the MCP servers in clients' files into the user's own capabilities."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from capd_client import tables
from capd_client.commands import replacing
from capd_client.commands.installing import ClientName
from capd_client.commands.shared import ask, fail, print_json, this_places
from capd_client.control import ControlError, DaemonDownError
from capd_client.install.known_clients import KnownClient, known_clients

if TYPE_CHECKING:
    from capd_client.importing.plan import ImportPlan
    from capd_client.importing.source_files import SourceEntry
    from capd_client.importing.stores import KnownValues
    from capd_client.own_tap import OwnServer, OwnTap

_STARTER = "starter"
_LAUNCHERS = frozenset({"npx", "bunx", "uvx"})
_OF_PROJECT = "only a file of this folder has it: --project takes it over for all projects"


@click.command("import")
@click.argument("clients", metavar="[CLIENT]...", nargs=-1, type=ClientName())
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--project", "of_project", is_flag=True, help="Also the servers of this folder's files."
)
@click.option("--replace", is_flag=True, help="Replace the servers by capd in the clients.")
@click.option("--undo", is_flag=True, help="Restore what --replace removed, and exit.")
@click.option("--forget", is_flag=True, help="Delete the backups that --undo needs, and exit.")
@click.option("--secrets-file", is_flag=True, help="Keep secrets in secrets.env (mode 0600).")
@click.option("--json", "as_json", is_flag=True, help="Print what is done as JSON.")
def import_(
    *,
    clients: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    of_project: bool,
    replace: bool,
    undo: bool,
    forget: bool,
    secrets_file: bool,
    as_json: bool,
) -> None:
    """Take over the MCP servers of each CLIENT; without one, of all clients on this machine.

    capd reads your own files and those of the current folder. A server that only a file of the
    folder has is taken over only with --project, because others may have written that file. With
    --replace, capd takes the place of these servers in your clients' files; `capd uninstall CLIENT`
    restores them.
    """
    from capd_client.importing import report  # noqa: PLC0415 - as few commands need it
    from capd_client.importing.execution import carry_out  # noqa: PLC0415
    from capd_client.importing.stores import SecretStore  # noqa: PLC0415
    from capd_client.stored_secrets import SecretError  # noqa: PLC0415

    if undo or forget:
        replacing.undo(clients) if undo else replacing.forget(yes=yes)
        return
    config = this_places().config
    is_done, replaced = False, []
    try:
        plan, entries, tap, known = planned(_chosen(clients), config)
        if not of_project:
            for each in [planned for planned in plan.added if planned.is_of_project]:
                plan.leave_out(each, _OF_PROJECT)
        store = SecretStore(config, in_file=secrets_file)
        if not as_json:
            for line in report.lines(plan, str(store)):
                tables.say(line)
        is_agreed = bool(plan.added) and not dry_run and _is_agreed(plan, yes=yes, as_json=as_json)
        if is_agreed and not yes:
            _ask_of_project(plan)
        if is_agreed and plan.added:
            carry_out(plan, tap, store, known)
            is_done = True
            _tell_daemon(plan, as_json=as_json)
    except SecretError as error:
        fail(f"nothing was imported: {error}")
    if replace and (is_done or not plan.added or dry_run):
        replaced = replacing.replace(plan, entries, yes=yes, dry_run=dry_run, is_quiet=as_json)
    if as_json:
        print_json({**report.document(plan, is_done=is_done), "replaced": replaced})


def _chosen(names: tuple[str, ...]) -> list[KnownClient]:
    chosen = [known_clients()[name] for name in dict.fromkeys(names)]
    for client in chosen:
        if not client.is_edited:
            fail(
                f"{client.title} keeps its servers in a place that capd cannot read safely\n"
                "Add each one yourself: capd add NAME -- COMMAND [ARGUMENT]..."
            )
    return chosen or list(known_clients().values())


def planned(
    clients: list[KnownClient], config: str
) -> "tuple[ImportPlan, list[SourceEntry], OwnTap, KnownValues]":
    """Return the plan for importing the servers of `clients`, and the data that it was made from.

    Nothing is written. The data are every entry that was found, the user's own tap below the folder
    `config`, and the values of keys (variables and secrets, by name) that capd can look up.

    Raises:
        SecretError: others can read `secrets.env`.
    """
    from capd_client.importing.plan import own_definitions, plan_import  # noqa: PLC0415
    from capd_client.importing.source_files import read_sources  # noqa: PLC0415
    from capd_client.importing.stores import KnownValues  # noqa: PLC0415
    from capd_client.importing.variables import ImportValues  # noqa: PLC0415
    from capd_client.own_tap import OwnTap  # noqa: PLC0415

    project, home = Path.cwd(), Path(os.environ.get("HOME") or Path.home())
    known = KnownValues(os.environ, config)
    tap = OwnTap(config)
    sources = read_sources(clients, os.environ, project)
    around = ImportValues(os.environ, home, project)
    plan = plan_import(sources, around, own_definitions(tap), known, _triggers())
    _take_known_tools(plan)
    return plan, sources.entries, tap, known


def _take_known_tools(plan: "ImportPlan") -> None:
    """Add triggers to planned servers whose tools are known; no server is started."""
    from capd_client.mcp_registry.process import RegistryError  # noqa: PLC0415
    from capd_client.mcp_registry.process import ask as ask_registry  # noqa: PLC0415
    from capd_client.own_tap import definition  # noqa: PLC0415

    added = [each.server for each in plan.added if each.server is not None]
    # If no server has run here, only taps have tool lists, and only for packages that a launcher
    # runs.
    has_lists = any(Path(this_places().cache, "tools").glob("*"))
    servers = {each.name: definition(each) for each in added if has_lists or _is_launched(each)}
    if not servers:
        return
    try:
        found = ask_registry("triggers", {"servers": servers}, what="looking for their tools")
    except RegistryError:
        # Then the triggers are made from the servers' names.
        return
    for each in plan.added:
        if proposed := found["servers"].get(each.name):
            each.take_tools(proposed["triggers"], proposed["source"])


def _is_launched(server: "OwnServer") -> bool:
    return bool(server.command) and Path(server.command[0]).name in _LAUNCHERS


def _triggers() -> dict[str, list[str]]:
    """Return the triggers of the starter tap's capabilities by name; none if no daemon runs."""
    try:
        entries = ask("caps").get("capabilities") or []
    except (DaemonDownError, ControlError):
        return {}
    # Only the starter tap comes after the user's own tap. So the user's capabilities can hide only
    # capabilities of the starter tap.
    return {
        str(each.get("name")): [str(text) for text in each.get("triggers") or ()]
        for each in entries
        if each.get("tap") == _STARTER and each.get("routable")
    }


def _is_agreed(plan: "ImportPlan", *, yes: bool, as_json: bool) -> bool:
    if yes:
        return True
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("nothing was imported: there is nobody to ask\nLook with --dry-run, then give --yes.")
    click.echo()
    number = len(plan.added)
    return click.confirm(f"Import {number} server{'s' if number > 1 else ''}?")


def _ask_of_project(plan: "ImportPlan") -> None:
    """Ask about each server that only a file of this folder has, and leave out refused ones.

    A stranger may have written such a file.
    """
    for each in [planned for planned in plan.added if planned.is_of_project]:
        where = tables.printable(str(each.origins[0].file))
        text = f"{each.name} is of {where}. Import it for all of your projects?"
        if not click.confirm(text):
            plan.leave_out(each, "you did not want it for all projects")


def _tell_daemon(plan: "ImportPlan", *, as_json: bool) -> None:
    try:
        ask("reload")
        outcome = "Switch one on with: capd enable NAME, or by saying what it is for."
    except DaemonDownError:
        outcome = "They will be loaded when the daemon starts."
    except ControlError as error:
        outcome = f"The daemon does not load them: {error.message}"
    if not as_json:
        click.echo()
        tables.say(f"Imported: {', '.join(each.name for each in plan.added)}")
        tables.say(outcome)


COMMANDS = {"import": import_}
