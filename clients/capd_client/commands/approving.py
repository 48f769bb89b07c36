"""`capd approve`: shows calls that wait for a person's approval, and takes the answers."""

import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from capd_client import tables
from capd_client.commands.shared import FILLED, ask, fail, json_option, print_json

_HINTS = {
    "destructive": "may destroy or overwrite something",
    "not said": "does not say whether it destroys something",
    "not destructive": "changes something, and destroys nothing",
    "read-only": "changes nothing",
}
_CHOICES = {"o": "once", "s": "session", "a": "always", "r": "refuse"}
_NO_TERMINAL = (
    "capd approve asks a person, on a terminal, and this is none: nothing was answered\n"
    "Run it yourself in a terminal, or only look with --json."
)


@click.command()
@click.argument("number", type=click.IntRange(min=1), required=False)
@click.option("--once", "answer", flag_value="once", help="Approve only this call.")
@click.option(
    "--for-session", "answer", flag_value="session", help="Approve its tool in this session."
)
@click.option("--always", "answer", flag_value="always", help="Approve its tool in every session.")
@click.option("--refuse", "answer", flag_value="refuse", help="Refuse this call.")
@click.option(
    "--forget",
    metavar="NAME",
    type=FILLED,
    help="Ask again about SERVER:TOOL, or all of SERVER.",
)
@json_option
def approve(*, number: int | None, answer: str | None, forget: str | None, as_json: bool) -> None:
    """Show the calls that wait for your approval and ask about each, or only about call NUMBER.

    `ask` in `[policy]` decides which calls wait. An approval is for one tool of one server, as the
    server is defined at that moment.
    """
    if forget is not None and (number is not None or answer):
        raise click.UsageError("--forget cannot be combined with a NUMBER or an answer")
    if answer and number is None:
        raise click.UsageError(f"--{_option(answer)} needs the NUMBER of a call: capd approve")
    if as_json and (answer or forget is not None):
        raise click.UsageError("an answer is given on a terminal, not with --json")
    if as_json:
        print_json(ask("approvals"))
        return
    if forget is not None:
        _forget(forget)
        return
    listed = ask("approvals")
    waiting = list(listed.get("waiting") or [])
    if number is not None:
        waiting = [each for each in waiting if each["number"] == number]
        if not waiting:
            fail(f"no call {number} waits for you\ncapd approve lists those that wait.")
    if answer:
        _say_answered(waiting[0], answer, _answered(waiting[0], answer))
        return
    _show_all(listed, waiting)


def _show_all(listed: Mapping[str, Any], waiting: list[Mapping[str, Any]]) -> None:
    if listed.get("problem"):
        click.echo(f"attention: {tables.printable(listed['problem'])}", err=True)
    if not waiting:
        tables.say("No call waits for you.")
        if always := listed.get("always"):
            tables.say(f"Approved for always: {', '.join(map(str, always))}")
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    done: set[int] = set()
    for each in waiting:
        if each["number"] in done:
            continue
        _show(each)
        if is_terminal:
            done.update(_ask_about(each))
    if waiting and not is_terminal:
        fail(_NO_TERMINAL)


def _show(entry: Mapping[str, Any]) -> None:
    left = max(0, round(float(entry["until"]) - time.time()))
    tables.say(f"\n  {entry['number']}  {entry['server']}:{entry['tool']}", keep_lines=True)
    lines = (
        ("arguments", entry["arguments"]),
        ("its server", _HINTS.get(str(entry["hint"]), str(entry["hint"]))),
        ("called by", f"{entry['client']} in {entry['project'] or 'no project'}"),
        ("session", entry["session"]),
        ("asked by", f"rule '{entry['rule']}' in {entry['place']}"),
        ("time left", f"{left} s"),
    )
    for label, text in lines:
        tables.say(f"    {label:<13} {text}")


def _ask_about(entry: Mapping[str, Any]) -> list[int]:
    """Ask the person about the waiting call `entry`, and send the answer to the daemon.

    Return the numbers of the calls that the answer applies to.
    """
    typed = click.prompt(
        "Approve it: (o)nce, for this (s)ession, (a)lways, or (r)efuse",
        type=click.Choice([*_CHOICES, *_CHOICES.values()], case_sensitive=False),
        show_choices=False,
        default="r",
    )
    answer = _CHOICES.get(typed, typed)
    answered = _answered(entry, answer)
    _say_answered(entry, answer, answered)
    return answered


def _answered(entry: Mapping[str, Any], answer: str) -> list[int]:
    return [int(each) for each in ask("approve", number=entry["number"], answer=answer)["answered"]]


def _say_answered(entry: Mapping[str, Any], answer: str, answered: list[int]) -> None:
    name = f"{entry['server']}:{entry['tool']}"
    if answer == "refuse":
        tables.say(f"{entry['number']}: {name} is refused.")
        return
    more = f", and {len(answered) - 1} more calls of it" if len(answered) > 1 else ""
    how = {"once": "once", "session": f"in session {entry['session']}", "always": "for always"}
    tables.say(f"{entry['number']}: {name} is approved {how[answer]}{more}.")


def _forget(name: str) -> None:
    forgotten = ask("approvals_forget", name=name).get("forgotten") or []
    if not forgotten:
        always = ask("approvals").get("always") or []
        known = f"these are: {', '.join(map(str, always))}" if always else "nothing is"
        fail(f"{name} is not approved for always; {known}")
    tables.say(f"You are asked again about: {', '.join(map(str, forgotten))}")


def _option(answer: str) -> str:
    return "for-session" if answer == "session" else answer


COMMANDS = {"approve": approve}
