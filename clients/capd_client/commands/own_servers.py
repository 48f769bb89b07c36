"""`capd add` and `capd remove`: the user's own MCP servers, each in one command."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from capd_client import tables
from capd_client.commands.shared import ask, fail, this_places
from capd_client.control import DaemonDownError

if TYPE_CHECKING:
    from capd_client.mcp_registry.adding import AddOptions


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("command", metavar="[URL | -- COMMAND [ARGUMENT]...]", nargs=-1)
@click.option("--url", default="", help="An http server's address, in place of a command.")
@click.option(
    "--trigger",
    "triggers",
    multiple=True,
    metavar="TEXT",
    help="What you would say when you need it; more than once.  [default: its name]",
)
@click.option(
    "--env",
    "env",
    multiple=True,
    metavar="KEY[=VALUE]",
    help="A variable for it; KEY alone is a secret (capd secret set KEY).",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header for requests to --url.",
)
@click.option(
    "--scope",
    type=click.Choice(("shared", "project", "session")),
    default=None,
    help="Which sessions share its process.  [default: by its kind of server]",
)
@click.option(
    "--as", "own_name", default="", metavar="NAME", help="The name for a registry's server."
)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value that a registry's server asks for; @KEY: a stored secret.",
)
@click.option(
    "--kind",
    type=click.Choice(("npm", "pypi", "oci", "remote")),
    default=None,
    help="Which package or address of a registry's server.  [default: what runs here]",
)
@click.option("--unlisted", is_flag=True, help="Add it even if it lists no tools.")
@click.option("--secrets-file", is_flag=True, help="Keep secrets in secrets.env (mode 0600).")
@click.option("--yes", is_flag=True, help="Do not ask.")
def add(
    *,
    name: str,
    command: tuple[str, ...],
    url: str,
    triggers: tuple[str, ...],
    env: tuple[str, ...],
    headers: tuple[str, ...],
    scope: str | None,
    own_name: str,
    given: tuple[str, ...],
    kind: str | None,
    unlisted: bool,
    secrets_file: bool,
    yes: bool,
) -> None:
    """Add the MCP server that COMMAND starts, or that is at a URL, as the capability NAME.

    Without either, NAME is that of a server in the public registry, as `capd find` prints it:
    io.github.owner/server, or io.github.owner/server@1.2.3. Its package is fetched and checked. You
    are asked before it is started once, in a sandbox, to list its tools, and again before it is
    added.
    """
    from capd_client.own_tap import (  # noqa: PLC0415 - as few commands need it
        OwnServer,
        OwnTap,
        env_of,
        headers_of,
    )

    if "/" in name and "://" not in name and not command and not url:
        if headers:
            raise click.UsageError("--header is for a --url; a server of the registry asks: --set")
        from capd_client.mcp_registry.adding import AddOptions  # noqa: PLC0415

        _add_of_registry(
            AddOptions(
                name,
                own_name=own_name,
                kind=kind or "",
                given=given,
                triggers=triggers,
                env=env_of(env),
                scope=scope or "",
                is_agreed=yes,
                is_unlisted=unlisted,
                secrets_in_file=secrets_file,
            )
        )
        return
    if own_name or given or kind or unlisted or secrets_file:
        text = "--as, --set, --kind, --unlisted and --secrets-file are for a server of the registry"
        raise click.UsageError(f"{text}: io.github.owner/server")
    if not url and len(command) == 1 and command[0].startswith(("http://", "https://")):
        (url,), command = command, ()
    server = OwnServer(
        name,
        command,
        url,
        env_of(env),
        headers_of(headers),
        triggers,
        scope or "",
        triggers_from_tools=not triggers,
    )
    place = OwnTap(this_places().config).add(server)
    tables.say(f"{name}: added ({place / 'default.toml'})")
    program = command[0] if command else ""
    if len(program.split()) > 1 and shutil.which(program) is None:
        tables.say(
            f"warning: `{program}` is one word with spaces, and no such program is here: leave"
            f" out the quotes (capd remove {name}, then add it again)"
        )
        program = ""
    _load(name, program)


def _add_of_registry(options: "AddOptions") -> None:
    """Add the server that `options` name from the registry, and have a running daemon load it."""
    from capd_client.mcp_registry import adding, process  # noqa: PLC0415 - as few commands need it
    from capd_client.stored_secrets import SecretError  # noqa: PLC0415

    try:
        name = adding.add(options, this_places().config)
    except (process.RegistryError, SecretError) as error:
        fail(str(error))
    except adding.NotAgreedError:
        fail("nothing was added")
    tables.say(f"{name}: added")
    _load(name)


def _load(name: str, program: str = "") -> None:
    """Have a running daemon load the new capability `name`, and print what it finds.

    `program` is the command of its server. A warning is printed if that is not on the daemon's
    PATH; if it is empty, nothing is checked.
    """
    try:
        result = ask("reload")
        entries = ask("caps").get("capabilities") or []
        path = str((ask("status").get("daemon") or {}).get("path") or "") if program else ""
    except DaemonDownError:
        click.echo("It will be loaded when the daemon starts.")
        return
    for line in _said_of(name, result, entries):
        tables.say(line)
    if program and shutil.which(program, path=path or os.environ.get("PATH")) is None:
        tables.say(f"warning: `{program}` is not on the daemon's PATH: it cannot be started")
    tables.say(f"Switch it on with: capd enable {name}, or by saying one of its triggers.")


def _said_of(
    name: str, reloaded: Mapping[str, Any], capabilities: list[Mapping[str, Any]]
) -> list[str]:
    """Return lines that tell a person how the daemon loaded the capability `name` of the tap `own`.

    `reloaded` is the daemon's answer to `reload`, `capabilities` the list of all capabilities.
    """
    from capd_client.taps import OWN  # noqa: PLC0415

    lines = []
    for tap in reloaded.get("taps") or []:
        if tap.get("name") == OWN:
            if tap.get("error"):
                lines.append(f"error: not loaded: {tap['error']}")
            lines += [
                f"{each.get('severity')}: {each.get('reason')}"
                for each in tap.get("findings") or []
                if str(each.get("path")).startswith(f"capabilities/{name}/")
            ]
    same = [each for each in capabilities if each.get("name") == name and each.get("routable")]
    if same and same[0].get("tap") != OWN:
        other = f"{same[0].get('tap')}/{name}"
        lines.append(f"note: `{name}` means {other}, which comes first; yours is {OWN}/{name}")
    for each in same:
        if each.get("tap") == OWN:
            lines += [f"missing: {key} (capd secret set {key})" for key in each.get("missing", ())]
    return lines


def _own_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from capd_client.own_tap import OwnTap  # noqa: PLC0415

    del ctx, param
    names = OwnTap(this_places().config).names()
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("name", shell_complete=_own_names)
def remove(*, name: str) -> None:
    """Remove the server NAME that was added with `capd add`."""
    from capd_client.own_tap import OwnTap  # noqa: PLC0415

    place: Path = OwnTap(this_places().config).remove(name)
    tables.say(f"{name}: removed ({place})")
    try:
        ask("reload")
    except DaemonDownError:
        return
    tables.say("A session that has it on keeps it until it is switched off there.")


COMMANDS = {"add": add, "remove": remove}
