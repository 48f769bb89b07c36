"""Commands on the daemon itself, and the two that run a program of ours."""

import os
import sys

import click

from capd_client.commands.shared import ask, json_option, print_json


@click.command()
@json_option
def stop(*, as_json: bool) -> None:
    """Stop the daemon."""
    result = ask("stop")
    if as_json:
        print_json(result)
    else:
        click.echo("capd is stopping")


@click.group()
def daemon() -> None:
    """Run the daemon."""


@daemon.command(
    "run",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def daemon_run(*, arguments: tuple[str, ...]) -> None:
    """Run the daemon in the foreground."""
    sys.stdout.flush()
    # -P: a folder `capd` in the working directory is not the daemon.
    command = [sys.executable, "-P", "-m", "capd", "daemon", "run", *arguments]
    os.execv(sys.executable, command)  # noqa: S606 - our own program, no shell


@click.command()
@click.argument("socket", required=False)
def mcp(*, socket: str | None) -> None:
    """Serve an editor on standard input and output; editors start this."""
    from capd_client import shim  # noqa: PLC0415

    click.get_current_context().exit(shim.main([socket] if socket else []))


COMMANDS = {"daemon": daemon, "mcp": mcp, "stop": stop}
