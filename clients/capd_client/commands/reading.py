"""Commands that only read: what is installed, what runs, and what happens."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from capd_client import tables
from capd_client.commands.scratch import ask_started, in_session, once_the_model_is_there
from capd_client.commands.shared import (
    NoDaemon,
    ask,
    json_option,
    print_json,
    session_option,
    text_of,
    this_places,
)
from capd_client.control import Control, DaemonDownError


def _reading(name: str, help_text: str, show: Callable[[Mapping[str, Any]], None]) -> click.Command:
    """Return a command `name`, which asks the daemon with the method `name`.

    `help_text` is its help, and `show` prints the daemon's answer.
    """

    @click.command(name, help=help_text)
    @json_option
    def command(*, as_json: bool) -> None:
        result = ask(name)
        if as_json:
            print_json(result)
        else:
            show(result)

    return command


@click.command()
@session_option
@click.option("--flags", is_flag=True, help="Show suspicious parts of the tools' definitions.")
@json_option
def tools(*, session: str, flags: bool, as_json: bool) -> None:
    """List the tools that a session sees."""
    if flags:
        found = ask_started("definitions", flags=True)
        if as_json:
            print_json(found)
        else:
            tables.print_flags(found)
        return
    result = in_session(session, lambda key: ask("tools", session=key))
    if as_json:
        print_json(result)
    else:
        tables.print_tools(result)


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", default=5, show_default=True, type=click.IntRange(min=1))
@json_option
def discover(*, text: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Rank capabilities for TEXT without switching any on."""
    result = ask_started("discover", intent=text_of(text), limit=limit)
    if as_json:
        print_json(result)
    else:
        tables.print_hits(result)


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1, 25))
@click.option("--session", metavar="KEY", default="", help="Find what this session may use.")
@json_option
def search(*, text: tuple[str, ...], limit: int, session: str, as_json: bool) -> None:
    """Find capabilities, skills and tools for TEXT, whether their servers run or not."""
    query = text_of(text)
    result = once_the_model_is_there(
        lambda: ask_started("search", query=query, limit=limit, session=session),
        lambda found: found.get("mode") == "lexical",
    )
    if as_json:
        print_json(result)
    else:
        tables.print_found(result)


@click.command()
@click.argument("topics", nargs=-1)
@click.option("--topic", "more", metavar="T", multiple=True, help="The same as TOPICS.")
@json_option
def events(*, topics: tuple[str, ...], more: tuple[str, ...], as_json: bool) -> None:
    """Print events as they happen, all of them or those whose topic begins with a TOPIC.

    If the daemon stops, the command says so and ends with exit code 3.
    """
    try:
        with Control(this_places().socket) as control:
            for event in control.events([*topics, *more]):
                if as_json:
                    print_json(event, indent=None)
                else:
                    tables.print_event(event)
    except KeyboardInterrupt:
        return
    text = f"the daemon at {this_places().socket} has closed the connection, so no more events come"
    raise NoDaemon(f"{text}\nOnce a daemon runs again, follow its events with: capd events")


@click.command()
@json_option
def version(*, as_json: bool) -> None:
    """Show the version of this command, and of the running daemon."""
    from importlib.metadata import version as version_of  # noqa: PLC0415

    running: Mapping[str, Any] | None = None
    try:
        with Control(this_places().socket) as control:
            running = control.daemon
    except DaemonDownError:
        running = None
    if as_json:
        print_json({"schema": 1, "client": version_of("capd"), "daemon": running})
        return
    click.echo(f"capd {version_of('capd')}")
    if running is None:
        click.echo("daemon: not running")
    else:
        tables.say(f"daemon {running.get('version', '?')}, pid {running.get('pid', '?')}")


COMMANDS = {
    "caps": _reading(
        "caps", "List every capability, and why one is not used.", tables.print_capabilities
    ),
    "servers": _reading("servers", "List every server, and who holds it.", tables.print_servers),
    "sessions": _reading("sessions", "List every session.", tables.print_sessions),
    "tools": tools,
    "discover": discover,
    "search": search,
    "events": events,
    "version": version,
}
