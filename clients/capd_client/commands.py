"""The `capd` command beyond `capd mcp`: asks the daemon, and says what it answered.

Exit codes: 0 fine, 1 failed, 2 usage, 3 daemon not running, 4 degraded. With `--json` the
daemon's result object is printed as it came.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import click

from capd_client import tables
from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.install import InstallError
from capd_client.install_commands import install, uninstall
from capd_client.taps import TapError, TapList
from capd_protos.places import Places, places

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_DAEMON = 3
EXIT_DEGRADED = 4

START_HINT = "Start it with: capd daemon run"

_F = TypeVar("_F", bound=Callable[..., Any])


class Failure(click.ClickException):
    """The command failed; what happened goes to stderr, its first line behind the name."""

    exit_code: ClassVar[int] = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        """Print the message."""
        stream = sys.stderr if file is None else file
        click.echo(f"capd: {tables.printable(self.message, keep_lines=True)}", file=stream)


class NoDaemon(Failure):
    """There is no daemon to ask."""

    exit_code: ClassVar[int] = EXIT_NO_DAEMON


class _Capd(click.Group):
    """The group that turns what can go wrong into one line for a person."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except DaemonDownError as error:
            raise NoDaemon(f"{error}\n{START_HINT}") from None
        except ControlError as error:
            raise Failure(error.message) from None
        except (TapError, InstallError) as error:
            raise Failure(str(error)) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise Failure(f"{where}{error.strerror or error}") from None


def _places() -> Places:
    return places(os.environ, os.getuid())


def _ask(method: str, **params: Any) -> dict[str, Any]:
    """Return the daemon's result; parameters that are not given are left out."""
    with Control(_places().socket) as control:
        return control.call(method, {key: value for key, value in params.items() if value != ""})


def _print_json(result: Mapping[str, Any], *, indent: int | None = 2) -> None:
    # ASCII: what servers say must not steer a terminal, and any JSON parser gives it back.
    click.echo(json.dumps(result, indent=indent))


def _session_option(command: _F) -> _F:
    return click.option(
        "--session",
        metavar="KEY",
        default="",
        envvar="CAPD_SESSION",
        help="Act for this session; may be left out while there is one.",
    )(command)


def _json_option(command: _F) -> _F:
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON."
    )(command)


def _text_of(words: tuple[str, ...]) -> str:
    """Return the words as one text; a lone `-` reads it from standard input."""
    text = " ".join(words)
    if text == "-":
        text = sys.stdin.read().strip()
    if not text.strip():
        raise click.UsageError("the text is empty")
    return text


@click.group(cls=_Capd, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Every editor and agent gets the MCP tools it needs, when it needs them."""


def _reading(
    name: str, help_text: str, show: Callable[[Mapping[str, Any]], None]
) -> Callable[..., None]:
    """Register a command that asks `name` and shows the answer."""

    @cli.command(name, help=help_text)
    @_json_option
    def command(*, as_json: bool) -> None:
        result = _ask(name)
        if as_json:
            _print_json(result)
        else:
            show(result)
        if name == "status" and (result.get("daemon") or {}).get("degraded"):
            click.get_current_context().exit(EXIT_DEGRADED)

    return command


_reading(
    "status", "Say how the daemon is: taps, sessions, servers, decisions.", tables.print_status
)
_reading("caps", "List every capability, and why it is not used.", tables.print_capabilities)
_reading("servers", "List every server, and who holds it.", tables.print_servers)
_reading("sessions", "List every session.", tables.print_sessions)


@cli.command()
@_session_option
@_json_option
def tools(*, session: str, as_json: bool) -> None:
    """List the tools that a session sees."""
    result = _ask("tools", session=session)
    if as_json:
        _print_json(result)
    else:
        tables.print_tools(result)


@cli.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", default=5, show_default=True, type=click.IntRange(min=1))
@_json_option
def discover(*, text: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Rank capabilities for TEXT without switching any on."""
    result = _ask("discover", intent=_text_of(text), limit=limit)
    if as_json:
        _print_json(result)
    else:
        tables.print_hits(result)


@cli.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1, 25))
@_json_option
def search(*, text: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find tools for TEXT among all that are known, whether their servers run or not."""
    result = _ask("search", query=_text_of(text), limit=limit)
    if as_json:
        _print_json(result)
    else:
        tables.print_found_tools(result)


@cli.command()
@_session_option
@_json_option
def index(*, session: str, as_json: bool) -> None:
    """Ask every server of the catalog once for its tools."""
    from capd_client.indexing import indexed  # noqa: PLC0415

    result = indexed(_places().socket, session, show_progress=not as_json)
    servers = result.get("servers") or []
    failed = [str(each.get("name")) for each in servers if each.get("error")]
    if as_json:
        _print_json(result)
    else:
        tools = sum(int(each.get("tools", 0)) for each in servers)
        click.echo(f"{len(servers)} servers asked, {tools} tools known")
    if failed:
        _fail(f"{len(failed)} of {len(servers)} servers did not answer: {', '.join(failed)}")


@cli.command()
@click.argument("name")
@_session_option
@_json_option
def enable(*, name: str, session: str, as_json: bool) -> None:
    """Switch the capability NAME on."""
    _switch("enable", name, session, as_json=as_json)


@cli.command()
@click.argument("name")
@_session_option
@_json_option
def disable(*, name: str, session: str, as_json: bool) -> None:
    """Switch the capability NAME off."""
    _switch("disable", name, session, as_json=as_json)


def _switch(method: str, name: str, session: str, *, as_json: bool) -> None:
    result = _ask(method, name=name, session=session)
    is_ok = bool(result.get("ok"))
    if as_json:
        _print_json(result)
    elif is_ok:
        tables.say(result.get("text", ""), keep_lines=True)
        tables.print_changes(result.get("changed") or {})
    if not is_ok:
        _fail(f"{name} was not {method}d: {result.get('text') or 'no reason given'}")


def _fail(message: str) -> NoReturn:
    raise Failure(message)


@cli.command()
@click.argument("text", nargs=-1, required=True)
@_session_option
@_json_option
def turn(*, text: tuple[str, ...], session: str, as_json: bool) -> None:
    """Hand TEXT, the user's message, to a session; `-` reads it from standard input."""
    result = _ask("turn", text=_text_of(text), session=session)
    if as_json:
        _print_json(result)
    elif not result.get("problem"):
        tables.print_turn(result)
    if result.get("problem"):
        _fail(f"{result.get('name')} could not be switched on: {result['problem']}")


@cli.command()
@click.argument("name")
@click.argument("arguments", metavar="[JSON]", default="{}")
@_session_option
@_json_option
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
    result = _ask("call", name=name, arguments=value, session=session)
    outcome = result.get("outcome")
    answer = result.get("result") or {}
    if as_json:
        _print_json(result)
    else:
        tables.print_result(answer)
    if outcome != "result":
        _fail(f"{name}: {outcome}: {result.get('message') or 'no reason given'}")
    if answer.get("isError"):
        _fail(f"{name} answered with an error")


@cli.command()
@click.argument("topics", nargs=-1)
@_json_option
def events(*, topics: tuple[str, ...], as_json: bool) -> None:
    """Follow what happens, all of it or the TOPICS (by prefix), until interrupted."""
    with Control(_places().socket) as control:
        try:
            for event in control.events(list(topics)):
                if as_json:
                    _print_json(event, indent=None)
                else:
                    tables.print_event(event)
        except KeyboardInterrupt:
            return


@cli.command()
@_json_option
def reload(*, as_json: bool) -> None:
    """Read the taps again."""
    result = _ask("reload")
    taps = result.get("taps") or []
    if as_json:
        _print_json(result)
    else:
        for each in taps:
            click.echo(tables.tap_line(each))
    broken = [str(each.get("name")) for each in taps if each.get("error")]
    if broken:
        _fail(f"not reloaded, the last good state is in use: {', '.join(broken)}")


@cli.command()
@click.argument("server")
@click.option("--no-browser", is_flag=True, help="Print the address, open nothing.")
def login(*, server: str, no_browser: bool) -> None:
    """Log in at a server that is reached by URL."""
    opened = _ask("login", name=server)
    address = str(opened["open"])
    click.echo(f"Open this address to log in at {server}:\n\n  {tables.printable(address)}\n")
    if not no_browser:
        click.launch(address)
    _ask("login_wait", ticket=opened["ticket"])
    click.echo(f"Logged in at {server}.")


@cli.command()
@_json_option
def stop(*, as_json: bool) -> None:
    """Stop the daemon."""
    result = _ask("stop")
    if as_json:
        _print_json(result)
    else:
        click.echo("capd is stopping")


@cli.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
def check(*, path: Path | None) -> None:
    """Say what is wrong with taps and overlays, or with the one in the folder PATH."""
    import subprocess  # noqa: PLC0415 - as in `tap add`

    command = [sys.executable, "-m", "capd", "check", *([str(path)] if path else [])]
    # The rules are the daemon's, and no daemon need run for them.
    done = subprocess.run(command, check=False)
    click.get_current_context().exit(done.returncode)


@cli.group()
def tap() -> None:
    """Add, list, update and remove taps, the folders that hold capabilities."""


@tap.command("add")
@click.argument("where", metavar="PATH|URL")
@click.option("--name", default=None, help="Its name here.  [default: the folder's name]")
def tap_add(*, where: str, name: str | None) -> None:
    """Add the tap in the folder PATH, or clone it from the git repository at URL."""
    from capd_client import tap_git  # noqa: PLC0415 - subprocess, which most commands do without

    path = Path(where)
    if tap_git.is_url(where):
        path = Path(_places().data, "taps", name or tap_git.name_of(where))
        TapList(_places().config).check_free(path.name)
        tap_git.clone(where, path)
    added = TapList(_places().config).add(path, name)
    try:
        result = _ask("reload")
    except DaemonDownError:
        click.echo(f"{added['name']}: will be loaded when the daemon starts")
        return
    for each in result.get("taps") or []:
        if each.get("name") == added["name"]:
            click.echo(tables.tap_line(each))
            if each.get("error"):
                _fail(f"{added['name']} is on the list and was not loaded")
            return
    _fail(f"{added['name']} is on the list, and the daemon has not loaded it: see capd status")


@tap.command("update")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def tap_update(*, names: tuple[str, ...]) -> None:
    """Bring taps that are git checkouts up to date, all of them or those named."""
    from capd_client import tap_git  # noqa: PLC0415 - as above

    taps = TapList(_places().config).read()
    known = {each["name"] for each in taps}
    if unknown := [name for name in names if name not in known]:
        _fail(f"no tap named {unknown[0]}: there are {', '.join(sorted(known)) or 'none'}")
    failed = []
    for each in taps:
        if names and each["name"] not in names:
            continue
        try:
            revisions = tap_git.update(Path(each["path"]))
        except TapError as error:
            tables.say(f"{each['name']}: {error}", keep_lines=True)
            failed.append(each["name"])
            continue
        if revisions is None:
            tables.say(f"{each['name']}: no git checkout, left as it is")
        elif revisions[0] == revisions[1]:
            tables.say(f"{each['name']}: up to date at {revisions[1]}")
        else:
            tables.say(f"{each['name']}: {revisions[0]} -> {revisions[1]}")
    with contextlib.suppress(DaemonDownError):
        _ask("reload")
    if failed:
        _fail(f"not updated: {', '.join(failed)}")


@tap.command("list")
@_json_option
def tap_list(*, as_json: bool) -> None:
    """List the taps that were added."""
    taps = TapList(_places().config).read()
    if as_json:
        _print_json({"schema": 1, "taps": taps})
    else:
        tables.print_taps(taps)


@tap.command("remove")
@click.argument("name")
def tap_remove(*, name: str) -> None:
    """Take the tap NAME off the list; its folder stays."""
    TapList(_places().config).remove(name)
    try:
        _ask("reload")
    except DaemonDownError:
        click.echo(f"{name}: will not be loaded when the daemon starts")
        return
    click.echo(f"{name}: removed")


cli.add_command(install)
cli.add_command(uninstall)


@cli.group()
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


@cli.command(
    "eval",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def evaluate(*, arguments: tuple[str, ...]) -> None:
    """Measure routing and search on labelled data; no daemon takes part."""
    sys.stdout.flush()
    command = [sys.executable, "-P", "-m", "capd", "eval", *arguments]
    os.execv(sys.executable, command)  # noqa: S606 - as above


@cli.command()
@click.argument("socket", required=False)
def mcp(*, socket: str | None) -> None:
    """Serve an editor on standard input and output; editors start this."""
    from capd_client import shim  # noqa: PLC0415

    click.get_current_context().exit(shim.main([socket] if socket else []))


@cli.command()
@_json_option
def version(*, as_json: bool) -> None:
    """Say which version this is, and which one runs."""
    from importlib.metadata import version as version_of  # noqa: PLC0415

    running: Mapping[str, Any] | None = None
    try:
        with Control(_places().socket) as control:
            running = control.daemon
    except DaemonDownError:
        running = None
    if as_json:
        _print_json({"schema": 1, "client": version_of("capd"), "daemon": running})
        return
    click.echo(f"capd {version_of('capd')}")
    if running is None:
        click.echo("daemon: not running")
    else:
        tables.say(f"daemon {running.get('version', '?')}, pid {running.get('pid', '?')}")
