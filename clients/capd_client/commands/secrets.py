"""`capd secret`: stores, lists and removes the secret values that servers need."""

import contextlib
import sys
from pathlib import Path

import click

from capd_client import stored_secrets, tables
from capd_client.commands import completers
from capd_client.commands.shared import ask, fail, json_option, print_json, this_places
from capd_client.control import ControlError, DaemonDownError
from capd_client.stored_secrets import SecretError
from capd_protos.extras import missing
from capd_protos.secret_places import FILE_NAME

_ABSENT = "missing"


@click.group()
def secret() -> None:
    """Store, list and remove secrets: the values that server definitions ask for."""


@secret.command("set")
@click.argument("key", shell_complete=completers.secrets)
@click.option("--file", "in_file", is_flag=True, help=f"Keep it in {FILE_NAME} (mode 0600).")
def secret_set(*, key: str, in_file: bool) -> None:
    """Store the value of KEY in the keyring; prompts for it, or reads it from standard input."""
    try:
        stored_secrets.checked_key(key)
        if not in_file and not stored_secrets.is_keyring_installed():
            in_file = True
            click.echo(missing("keyring"), err=True)
        if not in_file and not stored_secrets.has_keyring():
            text = "there is no keyring here that keeps secrets safely"
            fail(f"{text}: keep it in a file with --file")
        value = stored_secrets.checked_value(_value(key))
        if in_file:
            stored_secrets.keep_in_file(_file(), key, value)
        else:
            stored_secrets.keep_in_keyring(key, value)
    except SecretError as error:
        fail(str(error))
    click.echo(f"{key}: kept in {_file() if in_file else 'the keyring'}")
    _tell_daemon()


@secret.command("remove")
@click.argument("key", shell_complete=completers.secrets)
def secret_remove(*, key: str) -> None:
    """Remove the value of KEY from the keyring and from the file, wherever it is."""
    removed: list[str] = []
    problems: list[str] = []
    try:
        stored_secrets.checked_key(key)
    except SecretError as error:
        fail(str(error))
    for place, remove in (("the keyring", _from_keyring), (str(_file()), _from_file)):
        try:
            if remove(key):
                removed.append(place)
        except SecretError as error:
            problems.append(str(error))
    if removed:
        click.echo(f"{key}: removed from {' and '.join(removed)}")
        _tell_daemon()
    if problems:
        fail("; ".join(problems))
    if not removed:
        fail(f"{key} is in neither the keyring nor {_file()}")


@secret.command("list")
@json_option
def secret_list(*, as_json: bool) -> None:
    """List the keys that definitions use, and where each value comes from; prints no value."""
    result = ask("secrets")
    if as_json:
        print_json(result)
        return
    entries = result.get("secrets") or []
    rows = [
        (
            str(each.get("name")),
            _source(each.get("source"), each.get("sessions")),
            ", ".join(each.get("wanted_by") or []) or "nobody",
        )
        for each in entries
    ]
    width = [max((len(row[n]) for row in rows), default=0) for n in range(2)]
    for name, source, wanted_by in rows:
        tables.say(f"{name:<{width[0]}}  {source:<{width[1]}}  {wanted_by}")
    if not rows:
        click.echo("No definition asks for a secret, and none is kept.")
    for line in (*(result.get("problems") or []), *(result.get("notes") or [])):
        tables.say(line)


def _from_keyring(key: str) -> bool:
    return stored_secrets.has_keyring() and stored_secrets.remove_from_keyring(key)


def _from_file(key: str) -> bool:
    return stored_secrets.remove_from_file(_file(), key)


def _source(stored: object, sessions: object) -> str:
    names = [str(each) for each in sessions] if isinstance(sessions, list) else []
    found = [f"session {name}" for name in names]
    if stored:
        found.append(str(stored))
    return ", ".join(found) or _ABSENT


def _value(key: str) -> str:
    if sys.stdin.isatty():
        asked: str = click.prompt(key, hide_input=True, default="", show_default=False)
        return asked
    # The line end that `echo` adds is not part of the value.
    try:
        return sys.stdin.read().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretError("the value is not UTF-8") from None


def _file() -> Path:
    return Path(this_places().config, FILE_NAME)


def _tell_daemon() -> None:
    """Have a running daemon read the stored secrets again.

    A daemon that does not run reads them when it starts.
    """
    with contextlib.suppress(DaemonDownError, ControlError):
        ask("reload")


COMMANDS = {"secret": secret}
