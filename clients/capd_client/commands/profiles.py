"""`capd profile`: shows the configured profiles, and the profile of each session."""

from collections.abc import Mapping
from typing import Any

import click

from capd_client import tables
from capd_client.commands.shared import ask, fail, json_option, print_json, session_option

_CONDITIONS = (
    ("folders", "in"),
    ("remotes", "with the remote"),
    ("branches", "on the branch"),
    ("clients", "for"),
)


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def profile(ctx: click.Context, *, as_json: bool) -> None:
    """Show the profiles, the conditions of each, and the profile of each session.

    Profiles are tables of your configuration: `[profiles.NAME]`.
    """
    if ctx.invoked_subcommand is not None:
        return
    listed = ask("profiles")
    if as_json:
        print_json(listed)
        return
    if not listed.get("profiles"):
        tables.say("There are no profiles: config.toml has no [profiles.NAME].")
    for each in listed.get("profiles") or []:
        tables.say(f"{each['name']}: {_chosen(each)}")
    for each in listed.get("sessions") or []:
        if each.get("problem"):
            tables.say(f"session {each['session']} has no profile: {each['problem']}")
        else:
            name = each["profile"] or "no profile"
            tables.say(f"session {each['session']} has {name} ({each['why']})")


@profile.command("use")
@click.argument("name", required=False, default="")
@click.option("--auto", is_flag=True, help="Have it chosen by its conditions again.")
@session_option
def use(*, name: str, auto: bool, session: str) -> None:
    """Give the session the profile NAME, whatever the profiles' conditions say."""
    if bool(name) == auto:
        raise click.UsageError("name a profile, or have it chosen with --auto")
    answer = ask("profile_use", name=name, session=session)
    if not answer.get("ok"):
        fail(str(answer.get("text")))
    tables.say(str(answer.get("text")))


def _chosen(entry: Mapping[str, Any]) -> str:
    parts = [
        f"{word} {' or '.join(map(str, entry[kind]))}"
        for kind, word in _CONDITIONS
        if entry.get(kind)
    ]
    return ", ".join(parts) if parts else "chosen by its name alone"


COMMANDS = {"profile": profile}
