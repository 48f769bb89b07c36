"""`capd trust definitions`: what servers say of their tools, and a person's word on changes."""

import sys
from typing import Any

import click

from capd_client import definition_texts, tables
from capd_client.commands.shared import ask, fail, json_option, print_json


@click.command()
@click.argument("server", default="")
@click.option("--accept", is_flag=True, help="Trust what is shown, after a question.")
@click.option("--reject", is_flag=True, help="Withhold what is shown for as long as it is listed.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Only this tool; repeatable.")
@json_option
def definitions(
    *, server: str, accept: bool, reject: bool, tools: tuple[str, ...], as_json: bool
) -> None:
    """Show how tools differ from what was trusted, of SERVER or of all; decide on it."""
    if accept and reject:
        raise click.UsageError("--accept or --reject, not both")
    if as_json and (accept or reject):
        raise click.UsageError("a decision is made on a terminal, not with --json")
    found = ask("definitions", server=server, differences=True)
    if server and not found.get("servers"):
        fail(
            f"{server} was never started, so nothing is known of its definitions "
            "(capd servers lists those that were)"
        )
    changed = [_of_tools(each, tools) for each in found.get("servers") or []]
    changed = [each for each in changed if each["changes"]]
    if as_json:
        print_json({**found, "servers": changed if tools else found.get("servers")})
        return
    for problem in found.get("problems") or []:
        tables.say(f"problem: {problem}")
    if not changed:
        click.echo(definition_texts.overview(found))
        return
    for each in changed:
        for line in definition_texts.change_lines(each):
            tables.say(line)
        if accept or reject:
            _decide(each, is_accepted=accept)
        click.echo()
    if not (accept or reject):
        click.echo("Trust them with --accept, withhold them with --reject.")


def _of_tools(server: dict[str, Any], tools: tuple[str, ...]) -> dict[str, Any]:
    changes = [
        each for each in server.get("changes") or [] if not tools or each.get("tool") in tools
    ]
    return {**server, "changes": changes}


def _decide(server: dict[str, Any], *, is_accepted: bool) -> None:
    # A program that a model runs has no terminal by itself; one that makes itself a terminal is
    # not stopped by this, nor by anything else that runs as the same user.
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("a decision needs a terminal: it is a person's, not a program's")
    shown = [
        each
        for each in server["changes"]
        if each.get("difference") or each.get("kind") == "removed"
    ]
    name, count = tables.printable(server.get("name")), len(shown)
    word = "Trust" if is_accepted else "Withhold"
    if not shown or not click.confirm(f"{word} these {count} of {name}?", default=False):
        click.echo("Nothing is decided.")
        return
    digests = {str(each["tool"]): str(each["digest"]) for each in shown}
    result = ask(
        "trust_definitions", identity=server["identity"], digests=digests, accept=is_accepted
    )
    decided, stale = result.get("decided") or [], result.get("stale") or []
    done = "trusted" if is_accepted else "withheld"
    click.echo(f"{len(decided)} definitions of {name} are {done}.")
    if stale:
        names = ", ".join(map(tables.printable, stale))
        fail(f"these are not any more as they were shown, look again: {names}")
    if result.get("problem"):
        fail(f"it is not written down, and ends with the daemon: {result['problem']}")
