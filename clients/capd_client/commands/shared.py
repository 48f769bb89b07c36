"""Code that all commands share: asking the daemon, common options, and errors."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn, TypeVar

import click

from capd_client import tables
from capd_client.commands.completers import session_keys
from capd_client.control import Control
from capd_client.status import START_HINT
from capd_client.waiting import Waiting, waiting_for_servers
from capd_protos.places import Places, places

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_DAEMON = 3
EXIT_DEGRADED = 4
EXIT_INTERRUPTED = 130

__all__ = ["START_HINT"]

_F = TypeVar("_F", bound=Callable[..., Any])


class Failure(click.ClickException):
    """The command failed; `capd: MESSAGE` is printed to standard error."""

    exit_code: ClassVar[int] = EXIT_FAILED

    def show(self, file: Any = None) -> None:
        """Print the message, wrapped to the terminal's width."""
        stream = sys.stderr if file is None else file
        click.echo(tables.fitting(f"capd: {self.message}"), file=stream)


class NoDaemon(Failure):
    """No daemon is running, so the command ends with exit code 3."""

    exit_code: ClassVar[int] = EXIT_NO_DAEMON


class _Filled(click.types.StringParamType):
    """A text that must not be empty: the daemon takes an empty parameter for a missing one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return `value`; a usage error names the parameter if it is empty."""
        if not str(value).strip():
            self.fail("it is empty", param, ctx)
        return str(value)


FILLED = _Filled()


def this_places() -> Places:
    """Return the paths of this user's daemon and its files."""
    return places(os.environ, os.getuid())


def check_folder() -> None:
    """Check that the current folder exists, for a program that uses relative paths.

    Raises:
        FileNotFoundError: somebody has removed it.
    """
    os.getcwd()  # noqa: PTH109 - as in `_is_folder_gone`


def ask(method: str, **params: Any) -> dict[str, Any]:
    """Return the daemon's result of `method`; parameters that are an empty text are left out.

    On a terminal a line shows what the command waits for.

    Raises:
        DaemonDownError: no daemon answers.
        ControlError: the daemon refused, or did not answer in time.
    """
    given = {key: value for key, value in params.items() if value != ""}
    with Control(this_places().socket) as control, _waiting(method):
        return control.call(method, given)


_LARGE = 200_000
"""Characters: longer results are indented by msgspec, which is faster than json."""
_WAITS = {
    "call": "waiting for the tool",
    "enable": "switching it on",
    "reload": "reading settings and taps",
    "tokens": "counting tokens",
    "turn": "handing the message over",
}
_STARTS_SERVERS = frozenset({"call", "enable", "turn"})


def _waiting(method: str) -> AbstractContextManager[object]:
    """Return a context manager that shows on a terminal what the command waits for.

    The text appears after a second. `method` is the request that the daemon gets.
    """
    what = _WAITS.get(method, "waiting for the daemon")
    if method in _STARTS_SERVERS:
        return waiting_for_servers(this_places().socket, what)
    return Waiting(what)


def print_json(result: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Print a result as JSON in ASCII, indented by `indent`; None prints it on one line."""
    # ASCII: texts of servers must not steer a terminal, and any JSON parser restores them.
    text = json.dumps(result)
    if indent is not None and len(text) > _LARGE:
        # Ten thousand capabilities take json a second to indent.
        from msgspec import json as fast  # noqa: PLC0415 - 50 ms that a small result never pays

        text = fast.format(text, indent=indent)
    elif indent is not None:
        text = json.dumps(result, indent=indent)
    click.echo(text)


def session_option(command: _F) -> _F:
    """Add the option `--session`, which is passed on as `session`."""
    return click.option(
        "--session",
        metavar="KEY",
        default="",
        envvar="CAPD_SESSION",
        shell_complete=session_keys,
        help="Act for this session.  [default: the only one, or a scratch session of this folder]",
    )(command)


def json_option(command: _F) -> _F:
    """Add the option `--json`, which is passed on as `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the daemon's answer as JSON."
    )(command)


def text_of(words: tuple[str, ...]) -> str:
    """Return `words` as one text. If they are a single `-`, return standard input instead.

    Raises:
        click.UsageError: the text is empty.
    """
    text = " ".join(words)
    if text == "-":
        text = sys.stdin.read().strip()
    if not text.strip():
        raise click.UsageError("the text is empty")
    return text


def fail(message: str) -> NoReturn:
    """End the command with exit code 1 and `message` on stderr."""
    raise Failure(message)
