"""`capd bridge`: editors of containers and other hosts use this user's daemon."""

import time

import click

from capd_client import tables
from capd_client.commands.shared import ask, json_option, print_json
from capd_client.status_text import bridge_line


@click.group()
def bridge() -> None:
    """Let editors and agents of another host or a container use this daemon.

    What they may use is in your configuration: `[bridges.NAME]`. A session over a bridge is not
    you: it has no control over capd, grants no trust, and approves nothing.
    """


@bridge.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """Show the bridges that are open."""
    listed = ask("bridges")
    if as_json:
        print_json(listed)
        return
    found = listed.get("bridges") or []
    for each in found:
        tables.say(bridge_line(each, time.time()))
    if not found:
        tables.say("No bridge is open.")
    closed = set(listed.get("configured") or []) - {each.get("name") for each in found}
    if closed:
        tables.say(f"Configured, and not open: {', '.join(sorted(map(str, closed)))}")


@bridge.command("revoke")
@click.argument("name")
@json_option
def revoke(*, name: str, as_json: bool) -> None:
    """End the bridge NAME at once, with its sessions and what is saved of them.

    Its credential counts no more. Whoever holds it open has to open it again.
    """
    answer = ask("bridge_revoke", name=name)
    if as_json:
        print_json(answer)
    else:
        tables.say(f"The bridge {answer.get('revoked')} is revoked.")


COMMANDS = {"bridge": bridge}
