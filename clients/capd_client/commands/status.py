"""`capd status`, and the same live, `capd top`."""

import sys

import click

from capd_client.commands.completing import session_keys
from capd_client.commands.shared import ask, fail, print_json, this_places


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON.")
@click.option("--line", is_flag=True, help="Print what is on, in one line a session.")
@click.option("--tokens", is_flag=True, help="Say what each session costs, and what is saved.")
@click.option(
    "--session",
    metavar="KEY",
    default="",
    envvar="CAPD_SESSION",
    shell_complete=session_keys,
    help="The session of --line; all of them without it.",
)
def status(*, as_json: bool, line: bool, tokens: bool, session: str) -> None:
    """Say how the daemon is: taps, sessions, servers, decisions. Exit code 4: degraded."""
    if tokens:
        _tokens(as_json=as_json)
        return
    from capd_client.status import Form, show  # noqa: PLC0415 - what `capd status` alone goes by

    form: Form = "json" if as_json else "line" if line else "page"
    click.get_current_context().exit(show(form, session))


def _tokens(*, as_json: bool) -> None:
    from capd_client.token_tables import print_tokens  # noqa: PLC0415 - the page has no use for it

    document = ask("tokens")
    if as_json:
        print_json(document)
    else:
        print_tokens(document)


@click.command()
@click.option(
    "--every",
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.2, 60),
    help="How often the daemon is asked.",
)
def top(*, every: float) -> None:
    """Watch sessions, servers, calls and decisions, until q."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail("`capd top` needs a terminal\nFor a script: capd status --json, or capd events --json")
    from capd_client.control import Control  # noqa: PLC0415
    from capd_client.top.app import TopApp  # noqa: PLC0415 - 0.5 s that only this command pays

    socket = this_places().socket
    with Control(socket):
        # Without a daemon it is said in a line, not on an empty screen.
        pass
    app = TopApp(socket, every)
    app.run()
    click.get_current_context().exit(app.return_code or 0)


COMMANDS = {"status": status, "top": top}
