"""`capd status` prints the daemon's state once; `capd top` shows it live."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import click

from capd_client.commands.completers import session_keys
from capd_client.commands.shared import ask, fail, print_json, this_places
from capd_client.control import ControlError
from capd_client.tables import say
from capd_client.terminal import duration, many, width, wrapped
from capd_protos.extras import missing

_NAMES_SHOWN = 6
NO_AGES: Mapping[str, object] = {}


def print_tokens(result: Mapping[str, Any], ages: Mapping[str, object] = NO_AGES) -> None:
    """Print what each session costs and saves in tokens.

    `result` is the daemon's answer to `tokens`. `ages` maps a session's key to the seconds since it
    began.
    """
    if result.get("problem"):
        say(result["problem"])
    sessions = result.get("sessions") or []
    for session in sessions:
        _print_session(session, ages.get(str(session.get("key"))))
    if not sessions:
        say("no session is open")
    vocabulary = result.get("vocabulary", "?")
    say(f"Counted with {vocabulary}: exact for OpenAI's models, an estimate for others.")


def in_words(session: Mapping[str, Any], age: object) -> str:
    """Return two sentences on `session`: what each prompt carries, and what capd saved or added.

    Empty if a number is not known yet. `age` is in seconds; None if it is not known.
    """
    surface = (session.get("surface") or {}).get("tokens")
    everything = session.get("all_tools") or {}
    added, net = (session.get("added") or {}).get("tokens"), session.get("net")
    if surface is None or everything.get("tokens") is None or net is None:
        return ""
    over = f"In {duration(age)}" if isinstance(age, int | float) else "So far"
    growth = (
        f"{over} it added {added:,} more in texts and lists" if added else f"{over} it added none"
    )
    against = f"{abs(net):,} {'fewer' if net >= 0 else 'more'} than with every tool listed"
    if net < 0:
        against += ", because so few are installed"
    return (
        f"Each prompt carries {surface:,} tokens of tools and instructions instead of "
        f"{everything['tokens']:,} of tools. {growth}: in all {against}."
    )


def _print_session(session: Mapping[str, Any], age: object) -> None:
    surface, everything = session.get("surface") or {}, session.get("all_tools") or {}
    added = session.get("added") or {}
    unknown = "counting" if session.get("counting") else "unknown"
    if surface.get("tools") is None:
        unknown = "not listed"
    loss = "the list of all tools is shorter"
    growth: int | None = session.get("saved")
    rows = [
        ("list of tools", surface.get("list"), many(surface.get("tools"), "tool")),
        ("  capd's own", surface.get("own_tools"), "of these"),
        ("instructions", surface.get("instructions"), ""),
        ("before every prompt", surface.get("tokens"), ""),
        ("all tools", everything.get("tokens"), _of_all(everything)),
        ("lost", -growth, loss) if growth is not None and growth < 0 else ("saved", growth, ""),
        _sent("turns", added.get("turns"), "text"),
        _sent("searches", added.get("searches"), "answer"),
        _sent("answers", added.get("answers"), "answer"),
        _sent("list changes", added.get("list_changes"), "change"),
        _net(session.get("net")),
    ]
    say(f"{session.get('key', '?')}  {session.get('client', '?')}, {session.get('mode', '?')}")
    if words := in_words(session, age):
        for line in wrapped(words, width()):
            say(line)
    for name, tokens, of in rows:
        figure = unknown if tokens is None else f"{tokens:,}"
        say(f"  {name:<20}{figure:>12}  {of}".rstrip())
    for change in session.get("last_changes") or []:
        _print_change(change)
    say("")


def _net(net: int | None) -> tuple[str, int | None, str]:
    if net is not None and net < 0:
        return ("net cost", -net, "more than all tools, as if all of it were one prompt")
    return ("net", net, "as if all of it were one prompt")


def _print_change(change: Mapping[str, Any]) -> None:
    at, tokens = change.get("at"), change.get("tokens")
    when = f"{datetime.fromtimestamp(at):%H:%M:%S}" if isinstance(at, int | float) else "?"
    figure = "uncounted" if tokens is None else f"{tokens:,}"
    came, went = change.get("added", 0), change.get("removed", 0)
    say(f"    {when:<18}{figure:>12}  {came} came, {went} went")


def _sent(name: str, sent: Mapping[str, Any] | None, noun: str) -> tuple[str, Any, str]:
    found = sent or {}
    of = many(found.get("count", 0), noun)
    if found.get("uncounted"):
        of += f", {found['uncounted']} of them uncounted"
    return (name, found.get("tokens"), of)


def _of_all(everything: Mapping[str, Any]) -> str:
    of = many(everything.get("tools"), "tool")
    unlisted = [str(each) for each in everything.get("unlisted") or []]
    if unlisted:
        more = ", ..." if len(unlisted) > _NAMES_SHOWN else ""
        names = ", ".join(unlisted[:_NAMES_SHOWN]) + more
        servers = many(len(unlisted), "server")
        of += f"; without {servers} never asked for theirs (capd index): {names}"
    return of


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
@click.option("--line", is_flag=True, help="Print what is on, in one line a session.")
@click.option(
    "--client",
    type=click.Choice(["claude"]),
    default=None,
    help="With --line: for this client's status line; reads the client's JSON.",
)
@click.option("--tokens", is_flag=True, help="Say what each session costs, and what is saved.")
@click.option(
    "--session",
    metavar="KEY",
    default="",
    envvar="CAPD_SESSION",
    shell_complete=session_keys,
    help="The session of --line; all of them without it.",
)
def status(*, as_json: bool, line: bool, client: str | None, tokens: bool, session: str) -> None:
    """Show the daemon's state: taps, sessions, servers, decisions. Exit code 4 if degraded."""
    if tokens:
        _tokens(as_json=as_json)
        return
    from capd_client.status import Form, show, show_in_client  # noqa: PLC0415 - for `status` alone

    if client:
        if not line:
            raise click.UsageError("--client goes with --line")
        click.get_current_context().exit(show_in_client())

    form: Form = "json" if as_json else "line" if line else "page"
    click.get_current_context().exit(show(form, session))


def _tokens(*, as_json: bool) -> None:
    document = ask("tokens")
    if as_json:
        print_json(document)
        return
    ages: dict[str, object] = {}
    with suppress(ControlError):
        listed = ask("sessions").get("sessions") or []
        ages = {str(each.get("key")): each.get("age_s") for each in listed}
    print_tokens(document, ages)


@click.command()
@click.option(
    "--every",
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.2, 60),
    help="How often the daemon is asked.",
)
@click.option("--web", "in_browser", is_flag=True, help="Show it in a browser, on this machine.")
def top(*, every: float, in_browser: bool) -> None:
    """Watch sessions, servers, calls and decisions, until you press q.

    Enter shows the details of a row, w explains the selected decision, / searches, p pauses.
    """
    if in_browser:
        _top_in_browser(every)
        return
    # textual-serve runs it without a terminal.
    is_served = bool(os.environ.get("TEXTUAL_DRIVER"))
    if not is_served and not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("`capd top` needs a terminal\nFor a script: capd status --json, or capd events --json")
    from capd_client.control import Control  # noqa: PLC0415

    try:
        from capd_client.top.app import TopApp  # noqa: PLC0415 - 0.5 s that only this command pays
    except ModuleNotFoundError:
        fail(missing("top"))

    socket = this_places().socket
    with Control(socket):
        # If no daemon runs, this raises an error, which is shown instead of an empty screen.
        pass
    app = TopApp(socket, every)
    app.run()
    click.get_current_context().exit(app.return_code or 0)


def _top_in_browser(every: float) -> None:
    from capd_client.control import Control  # noqa: PLC0415

    try:
        from capd_client.top.web import TokenServer, free_port  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        fail(missing("web"))
    with Control(this_places().socket):
        # As in a terminal: if no daemon runs, this raises an error.
        pass
    server = TokenServer(free_port(), every)
    click.echo(
        f"Open this address in a browser; it works once. Ctrl-C ends it.\n\n  {server.address}"
    )
    server.serve()


COMMANDS = {"status": status, "top": top}
