"""Commands that change a session or the daemon."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import click

from capd_client import tables
from capd_client.commands import completers
from capd_client.commands.scratch import in_session, once_the_model_is_there
from capd_client.commands.shared import (
    FILLED,
    ask,
    fail,
    json_option,
    print_json,
    session_option,
    text_of,
    this_places,
)
from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.waiting import Waiting, waiting_for_servers

_ACCOUNT = re.compile("[A-Za-z][A-Za-z0-9_]*")
_MOST_ACCOUNT = 64
_MOST_PASTED = 9000
"""How many characters of a pasted address are read. The daemon refuses one that is this long."""
_MOST_PASTES = 5


def enable_with_progress(
    socket: str, name: str, session: str, *, show_progress: bool
) -> dict[str, Any]:
    """Switch the capability `name` on in `session`; return the daemon's result of `enable`.

    `socket` is the daemon's. An empty `session` means the only open one. With `show_progress`, the
    output of the scripts that install the capability's dependencies appears on standard error.

    Raises:
        DaemonDownError: no daemon answers.
        ControlError: the daemon refused.
    """
    params = {"name": name, **({"session": session} if session else {})}
    with Control(socket) as control:
        if not show_progress:
            return control.call("enable", params)
        with waiting_for_servers(socket, f"switching {name} on") as shown, Control(socket) as other:
            events = other.events(["install."])
            # A daemon thread: it ends with the connection, or with the command.
            threading.Thread(target=_follow, args=(events, shown), daemon=True).start()
            return control.call("enable", params)


def _follow(events: Iterator[dict[str, Any]], shown: Waiting) -> None:
    try:
        for each in events:
            line = _line(str(each.get("topic")), each.get("event") or {})
            if line:
                shown.print_above(line)
    except (DaemonDownError, ControlError, OSError):
        return


def _line(topic: str, event: dict[str, Any]) -> str:
    dependency, seconds = event.get("dependency", "?"), event.get("seconds", 0)
    match topic:
        case "install.started":
            return f"{dependency}: installing"
        case "install.said":
            return f"{dependency}: {event.get('line', '')} ({seconds:.0f} s)"
        case "install.ended" if event.get("outcome") != "present":
            return f"{dependency}: {event.get('outcome', '')} ({seconds:.0f} s)"
    return ""


@click.command()
@click.argument("name", type=FILLED, shell_complete=completers.capabilities)
@session_option
@json_option
def enable(*, name: str, session: str, as_json: bool) -> None:
    """Switch the capability NAME on."""
    result = in_session(
        session,
        lambda key: enable_with_progress(
            this_places().socket, name, key, show_progress=not as_json
        ),
    )
    _switched("enable", name, result, as_json=as_json)


@click.command()
@click.argument("name", type=FILLED, shell_complete=completers.active_capabilities)
@session_option
@json_option
def disable(*, name: str, session: str, as_json: bool) -> None:
    """Switch the capability NAME off."""
    result = in_session(session, lambda key: ask("disable", name=name, session=key))
    _switched("disable", name, result, as_json=as_json)


@click.command()
@click.argument("switch", type=click.Choice(["on", "off"]))
@session_option
@json_option
def routing(*, switch: str, session: str, as_json: bool) -> None:
    """Switch routing on or off: whether a session's messages activate capabilities."""
    result = in_session(session, lambda key: ask("routing", enabled=switch == "on", session=key))
    if as_json:
        print_json(result)
    else:
        tables.say(result.get("text", ""))


def _switched(method: str, name: str, result: dict[str, Any], *, as_json: bool) -> None:
    is_ok = bool(result.get("ok"))
    if as_json:
        print_json(result)
    elif is_ok:
        tables.say_lines(str(result.get("text", "")))
        tables.print_changes(result.get("changed") or {})
    if not is_ok:
        fail(f"{name} was not {method}d: {result.get('text') or 'no reason given'}")


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option(
    "--budget",
    metavar="TOKENS",
    type=click.IntRange(0, 10_000_000),
    default=0,
    help="The most tokens for all that the message switches on and delivers.",
)
@session_option
@json_option
def turn(*, text: tuple[str, ...], budget: int, session: str, as_json: bool) -> None:
    """Send TEXT, the user's message, to a session; `-` reads it from standard input."""
    # A terminal shows only what was switched on. A program that reads the JSON may pass the text
    # for the model on.
    has_no_output = not as_json
    message = text_of(text)
    result = in_session(
        session,
        lambda key: once_the_model_is_there(
            lambda: ask("turn", text=message, session=key, budget=budget or "", mute=has_no_output),
            lambda result: result.get("reason") == "model_not_ready",
        ),
    )
    if as_json:
        print_json(result)
    elif not result.get("problem"):
        tables.print_turn(result)
    if result.get("problem"):
        fail(f"{result.get('name')} could not be switched on: {result['problem']}")


@click.command()
@click.argument("name", type=FILLED, shell_complete=completers.tools)
@click.argument("arguments", metavar="[JSON]", default="{}")
@session_option
@json_option
def call(*, name: str, arguments: str, session: str, as_json: bool) -> None:
    """Call the tool NAME with the arguments JSON; `-` reads them from standard input."""
    if arguments == "-":
        arguments = sys.stdin.read()
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"the arguments are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.UsageError('the arguments are a JSON object, such as {"path": "/src"}')
    result = in_session(session, lambda key: ask("call", name=name, arguments=value, session=key))
    outcome = result.get("outcome")
    answer = result.get("result") or {}
    if as_json:
        print_json(result)
    else:
        tables.print_result(answer)
    if outcome != "result":
        fail(f"{name}: {outcome}: {result.get('message') or 'no reason given'}")
    if answer.get("isError"):
        fail(f"{name} answered with an error")


@click.command()
@json_option
def reload(*, as_json: bool) -> None:
    """Read the taps again."""
    result = ask("reload")
    taps = result.get("taps") or []
    if as_json:
        print_json(result)
    else:
        for each in taps:
            click.echo(tables.tap_line(each))
    broken = [str(each.get("name")) for each in taps if each.get("error")]
    if broken:
        fail(f"not reloaded; the last good state stays in use: {', '.join(broken)}")


account_option = click.option(
    "--account",
    metavar="NAME",
    default="",
    help="One of several logins at SERVER: for profiles with `secrets = NAME`.",
)


@click.command()
@click.argument("server", type=FILLED, shell_complete=completers.servers)
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening it.")
@click.option(
    "--paste", is_flag=True, help="Log in in a browser elsewhere, then paste its last address."
)
@click.option("--device", is_flag=True, help="Log in with a code, on any device.")
@account_option
def login(*, server: str, no_browser: bool, paste: bool, device: bool, account: str) -> None:
    """Log in at a server that is reached by URL."""
    if paste and device:
        raise click.UsageError("choose one of --paste and --device")
    _check_account(account)
    opened = ask("login", name=server, account=account, way="device" if device else "browser")
    address, ticket = str(opened["open"]), opened["ticket"]
    where = f"{server} as {account}" if account else server
    click.echo(f"Open this address to log in at {where}:\n\n  {tables.printable(address)}\n")
    if device:
        click.echo(f"Check that the page shows this code, or enter it: {opened['user_code']}\n")
    elif paste:
        _paste(ticket)
    elif not no_browser:
        click.launch(address)
    ask("login_wait", ticket=ticket)
    click.echo(f"Logged in at {where}.")
    if account:
        _say_who_has(account)


@click.command()
@click.argument("server", type=FILLED, shell_complete=completers.servers)
@account_option
def logout(*, server: str, account: str) -> None:
    """Delete the login at a server that is reached by URL."""
    _check_account(account)
    where = f"{server} as {account}" if account else server
    left = ask("logout", name=server, account=account)
    if not left.get("was_logged_in"):
        click.echo(f"No login at {where}.")
        return
    revoked = " Its tokens are revoked there." if left.get("revoked") else ""
    click.echo(f"Logged out at {where}.{revoked}")
    if left.get("failure"):
        click.echo(
            f"The tokens are deleted here, but not revoked: its authorization server was asked,"
            f" and {left['failure']}. They may be valid there for a while: end the grant there, if"
            " somebody else may have them."
        )


def _check_account(account: str) -> None:
    if account and not (_ACCOUNT.fullmatch(account) and len(account) <= _MOST_ACCOUNT):
        raise click.UsageError(
            f"an account begins with a letter and has {_MOST_ACCOUNT} letters, digits and"
            " underscores at most"
        )


def _paste(ticket: int) -> None:
    """Send each address that the person pastes to the daemon, until the daemon accepts one.

    `ticket` is the number of the login. After `_MOST_PASTES` addresses the command fails.
    """
    click.echo(
        "The browser ends at an address that it cannot open: it begins with http://127.0.0.1."
        " Paste that address here."
    )
    for tries_left in reversed(range(_MOST_PASTES)):
        click.echo("> ", nl=False)
        line = sys.stdin.readline(_MOST_PASTED)
        if not line.strip():
            fail("nothing was pasted: run the command again")
        try:
            with Control(this_places().socket) as control:
                control.call("login_paste", {"ticket": ticket, "address": line.strip()})
        except ControlError as error:
            # The rest of a line that was too long is no answer to the next question.
            if not tries_left or not line.endswith("\n"):
                fail(error.message)
            click.echo(f"{tables.printable(error.message)}")
        else:
            return


def _say_who_has(account: str) -> None:
    """Print which profiles log in with `account`, or how to make a profile use it."""
    listed = ask("profiles").get("profiles") or []
    having = [
        each["name"]
        for each in listed
        if str(each.get("secrets", "")).casefold() == account.casefold()
    ]
    if having:
        click.echo(f"Sessions with the profile {' or '.join(having)} use it.")
    else:
        click.echo(
            f'No session uses it yet: give a profile `secrets = "{account}"` in config.toml.'
        )


COMMANDS = {
    "call": call,
    "disable": disable,
    "enable": enable,
    "login": login,
    "logout": logout,
    "reload": reload,
    "routing": routing,
    "turn": turn,
}
