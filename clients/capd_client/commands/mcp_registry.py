"""`capd find` and `capd update`: find servers in a public registry, and update them."""

import contextlib
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from capd_client import tables
from capd_client.commands.shared import ask, fail, print_json, text_of, this_places
from capd_client.control import ControlError, DaemonDownError
from capd_client.terminal import duration

_OLD = 2 * 3600
"""Seconds. The local copy is refreshed once an hour. If it is older than this, its age is shown."""


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True)
@click.option("--refresh", is_flag=True, help="Refresh the local copy, even if it is recent.")
@click.option("--offline", is_flag=True, help="Search only the local copy.")
@click.option("--words", is_flag=True, help="Search by words alone, without the model.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def find(
    *,
    text: tuple[str, ...],
    limit: int,
    refresh: bool,
    offline: bool,
    words: bool,
    as_json: bool,
) -> None:
    """Find MCP servers for TEXT in the public registry: what each does, runs on and needs."""
    from capd_client.mcp_registry import process  # noqa: PLC0415 - as few commands need it

    if refresh and offline:
        raise click.UsageError("--refresh and --offline exclude each other")
    more = [f"--limit={limit}"]
    options = (("--refresh", refresh), ("--offline", offline), ("--words", words))
    more += [option for option, is_wanted in options if is_wanted]
    try:
        found = process.ask(
            "find", more=[*more, "--", text_of(text)], what="searching the registry"
        )
    except process.RegistryError as error:
        fail(str(error))
    if as_json:
        print_json(found)
        return
    for each in found["servers"]:
        tables.say(_line(each))
    if not found["servers"]:
        click.echo("Nothing fits. Try other words, or fewer.")
    for each in found["registries"]:
        for line in _about(each):
            click.echo(tables.printable(line), err=True)
    if found["servers"]:
        tables.say(f"Add one with: capd add {found['servers'][0]['name']}")


def _line(each: Mapping[str, Any]) -> str:
    runs = ", ".join(each["runs"]) or "nowhere"
    needs = f"; needs {', '.join(each['needs'])}" if each["needs"] else ""
    status = "" if each["status"] == "active" else f" ({each['status']})"
    does = each["description"] or each["title"]
    return (
        f"{each['name']} {each['version']}{status}: {does} [{runs}{needs}; by {each['namespace']}]"
    )


def _about(each: Mapping[str, Any]) -> list[str]:
    lines = [f"{each['url']}: {each['problem']}"] if each["problem"] else []
    if not each["is_complete"]:
        lines.append(f"{each['url']}: only a part is known: {each['servers']} servers")
    elif each["age"] > _OLD:
        lines.append(f"{each['url']}: as of {duration(each['age'])} ago")
    return lines


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from capd_client.mcp_registry.updating import from_registry  # noqa: PLC0415
    from capd_client.own_tap import OwnTap  # noqa: PLC0415

    del ctx, param
    names = from_registry(OwnTap(this_places().config))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, shell_complete=_names)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value that a new version asks for.",
)
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def update(*, name: str | None, given: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Show newer versions of the servers added from a registry, and install them if you agree.

    The new version is fetched, checked and started once in a sandbox; changes in the definitions of
    its tools are shown before anything is replaced. Nothing is updated automatically.
    """
    from capd_client.mcp_registry.inputs import given_values  # noqa: PLC0415
    from capd_client.mcp_registry.process import RegistryError  # noqa: PLC0415
    from capd_client.mcp_registry.updating import from_registry, newer  # noqa: PLC0415
    from capd_client.own_tap import OwnTap  # noqa: PLC0415
    from capd_client.stored_secrets import SecretError  # noqa: PLC0415
    from capd_client.taps import find_name  # noqa: PLC0415

    config = this_places().config
    tap = OwnTap(config)
    known = from_registry(tap)
    if name is not None:
        hint = "Servers that were added by command or URL have no newer version to look up."
        name = find_name(name, list(known), f"no server {name} was added from a registry\n{hint}")
    elif not known:
        click.echo("No server was added from a registry.")
        return
    failed, changed = [], []
    for each in [name] if name is not None else list(known):
        try:
            found = newer(each, known[each], tap, config, given_values(given))
        except (RegistryError, SecretError) as error:
            tables.say(f"{each}: {error}", keep_lines=True)
            failed.append(each)
            continue
        if found is None:
            tables.say(f"{each}: {known[each].version} is the latest version")
            continue
        _show(found)
        if not found.found.get("listed"):
            tables.say(f"{each}: not changed: {found.found.get('reason')}")
            failed.append(each)
        elif not dry_run and _is_agreed(each, yes=yes):
            tap.replace(each, found.files)
            tables.say(f"{each}: changed to {found.entry['version']}")
            changed.append(each)
    if changed:
        with contextlib.suppress(DaemonDownError, ControlError):
            ask("reload")
    if failed:
        fail(f"not updated: {', '.join(failed)}")


def _show(found: Any) -> None:
    from capd_client.mcp_registry import report  # noqa: PLC0415

    tables.say(f"{found.name}: {found.before.version} -> {found.entry['version']}")
    for line in report.entry_lines(found.entry):
        tables.say(f"  {line}")
    tables.say(report.start_line(found.server.command, found.server.url))
    if found.found.get("listed"):
        for line in report.change_lines(found.found.get("changes") or []):
            tables.say(line)
        for line in report.inspection_lines(found.found):
            tables.say(f"  {line}")


def _is_agreed(name: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("nothing was changed: there is nobody to ask\nLook with --dry-run, then give --yes.")
    return click.confirm(f"Change {name}?")


COMMANDS = {"find": find, "update": update}
