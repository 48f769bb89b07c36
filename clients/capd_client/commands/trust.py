"""`capd trust`: records what a person trusts, in one subcommand for each kind."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from capd_client import definition_texts, tables
from capd_client.commands.shared import ask, fail, json_option, print_json

_LAUNCHERS = "launchers"
"""The `transport` of the entry that stands for the files that launchers such as npx read."""

_NO_TERMINAL = (
    "capd trust asks a person, on a terminal, and this is none: nothing was trusted\n"
    "Run it yourself in a terminal, or only look with --json."
)


@click.command("project")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--list", "is_list", is_flag=True, help="List what is trusted, of all projects.")
@click.option("--revoke", is_flag=True, help="Trust nothing of the project any more.")
@json_option
def project(*, path: Path | None, is_list: bool, revoke: bool, as_json: bool) -> None:
    """Show what the project at PATH (default: here) would start, and ask whether to trust it.

    Each server is trusted with its whole content: the command line, environment, address, headers,
    and the project's files that these name. If any of it changes, you are asked again.
    """
    if is_list:
        _show_list(ask("trust_list"), as_json=as_json)
        return
    folder = os.path.abspath(path or Path.cwd())  # noqa: PTH100 - keeps symlinks, as editors do
    if as_json and not revoke:
        print_json(ask("trust", project=folder))
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail(_NO_TERMINAL)
    if revoke:
        ended = ask("trust_revoke", project=folder).get("ended") or []
        also = f" Ended: {', '.join(map(str, ended))}." if ended else ""
        tables.say(f"{folder}: nothing of it is trusted any longer.{also}")
        return
    _ask_about(ask("trust", project=folder))


def _ask_about(shown: Mapping[str, Any]) -> None:
    project, servers = str(shown["project"]), list(shown["servers"])
    if shown.get("error"):
        fail(tables.printable(shown["error"]))
    for finding in shown.get("findings") or []:
        tables.say(f"{finding['path']}: {finding['reason']}")
    own = [each for each in servers if each["transport"] != _LAUNCHERS]
    if not own:
        tables.say(f"{project} defines no servers.")
    fresh = [each for each in servers if each["state"] != "trusted"]
    if not fresh:
        tables.say(f"{project}: all {len(own)} of its servers are trusted, as they are.")
        return
    if any(each["transport"] != _LAUNCHERS for each in fresh):
        tables.say(f"{project} would start, as you, whenever a session of it asks:")
    for each in fresh:
        _show(each)
    click.echo()
    tables.say("Files are pinned as they are; what they read or import in turn is not.")
    able = [each for each in fresh if not each["problem"]]
    if not able:
        fail("nothing of it can be trusted")
    if not click.confirm(f"Trust {_counted(able)}?", default=False):
        fail("nothing was trusted")
    ask("trust_grant", project=project, digests=[each["digest"] for each in able])
    tables.say(f"{project}: trusted {_counted(able)}.")


def _show(server: Mapping[str, Any]) -> None:
    lines = [
        ("for", ", ".join(server["capabilities"])),
        ("runs", shlex.join(server["command"])),
        ("in image", server["image"]),
        ("in", server["cwd"] if server["command"] or server["image"] else ""),
        ("connects to", server["url"]),
        *(("sets", f"{key}={value}") for key, value in server["env"].items()),
        *(("sends", f"{key}: {value}") for key, value in server["headers"].items()),
        ("is given your", ", ".join(server["wanted_keys"])),
        ("at once", "" if server["lazy"] else "it starts with every session of the project"),
        *(("file", f"{name}  {_content(each)}") for name, each in server["files"].items()),
        ("changed", ", ".join(server["changes"])),
        *(("warning", each) for each in server["warnings"]),
        ("cannot", server["problem"]),
    ]
    tables.say(f"\n  {server['name']} ({server['state']})", keep_lines=True)
    for label, text in lines:
        if text:
            tables.say(f"    {label:<13} {text}")


def _content(digest: str) -> str:
    # A file that is trusted whatever its content has words in place of a digest.
    return digest if " " in digest else digest[:12]


def _show_list(listed: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(listed)
        return
    for each in listed["projects"]:
        tables.say(f"{each['project']}: {', '.join(each['servers'])}")
    if listed.get("problem"):
        fail(tables.printable(listed["problem"]))
    if not listed["projects"]:
        click.echo("No project is trusted.")


def _counted(entries: Sequence[Mapping[str, Any]]) -> str:
    number = len([each for each in entries if each["transport"] != _LAUNCHERS])
    parts = [f"{number} server{'s' if number != 1 else ''}"] if number else []
    if number < len(entries):
        parts.append("what launchers read")
    return " and ".join(parts)


@click.command()
@click.argument("server", default="")
@click.option("--accept", is_flag=True, help="Trust what is shown, after asking you.")
@click.option("--reject", is_flag=True, help="Withhold what is shown for as long as it is listed.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="Only this tool; repeatable.")
@json_option
def definitions(
    *, server: str, accept: bool, reject: bool, tools: tuple[str, ...], as_json: bool
) -> None:
    """Show how tools of SERVER (or of all) differ from what was trusted, and decide on it."""
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
        tables.say(definition_texts.overview(found))
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
    # A program that a model runs has no terminal. If it opens a pseudo-terminal, this check does
    # not stop it; no check that runs as the same user could.
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
        fail(f"these have changed since they were shown; look again: {names}")
    if result.get("problem"):
        fail(f"it is not saved, and is lost when the daemon ends: {result['problem']}")


DEFAULT = "project"
"""The subcommand that runs if the arguments name none."""


class _Trust(click.Group):
    """The group that passes arguments without a subcommand to its default command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args`; if they name no subcommand, parse them as those of the default command."""
        is_named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named else [DEFAULT, *args])


@click.group(cls=_Trust)
def trust() -> None:
    """Review what projects and servers bring, and decide what to trust.

    Without a command: `capd trust [PATH]` is `capd trust project [PATH]`.
    """


trust.add_command(definitions)


trust.add_command(project)


COMMANDS = {"trust": trust}
