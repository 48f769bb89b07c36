"""Checks by click's own parsers that a command line is valid; runs nothing."""

import shlex

import click

from capd.evaluation.command import _parser  # as `capd eval` is another process's command
from capd_client.commands import cli


class NoSuchCommandError(Exception):
    """The command line is invalid; the text says why."""


def check(words: str) -> str:
    """Return the path of the command that `words` are for, such as `tap add`.

    Raises:
        NoSuchCommandError: there is no such command, option or choice, or a word too many.
    """
    _, *arguments = shlex.split(words)
    command: click.Command = cli
    context = click.Context(cli, info_name="capd")
    path: list[str] = []
    while isinstance(command, click.Group):
        if not arguments or arguments[0].isupper() or arguments == ["--help"]:
            # The group as a whole is meant.
            return " ".join(path)
        name = arguments[0]
        found = command.get_command(context, name)
        if found is None and "project" in command.commands:
            found, name, arguments = command.commands["project"], "project", ["", *arguments]
        if found is None:
            raise NoSuchCommandError(f"capd {' '.join(path)} has no {name}")
        command, arguments = found, arguments[1:]
        context = click.Context(command, context, info_name=name)
        path.append(name)
    if path == ["eval"]:
        _check_evaluation(arguments)
    else:
        _check_words(command, context, arguments)
    return " ".join(path)


def _check_words(command: click.Command, context: click.Context, arguments: list[str]) -> None:
    if "--help" in arguments:
        return
    try:
        values, left, _ = command.make_parser(context).parse_args(list(arguments))
    except click.UsageError as error:
        raise NoSuchCommandError(error.format_message()) from None
    if left:
        raise NoSuchCommandError(f"{left[0]} is too much")
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice):
            given = value if isinstance(value, tuple) else (value,)
            for each in (word for word in given if isinstance(word, str)):
                _check_choice(parameter, parameter.type, each)


def _check_choice(parameter: click.Parameter, type_: click.Choice[str], value: str) -> None:
    if not value.isupper() and value not in type_.choices:
        raise NoSuchCommandError(f"{parameter.name} is one of {', '.join(type_.choices)}: {value}")


def _check_evaluation(arguments: list[str]) -> None:
    if len(arguments) < 2 and arguments[:1] in ([], ["route"], ["search"]):
        # A mention, which leaves out what it is about.
        return
    try:
        _parser().parse_args(arguments)
    except SystemExit:
        raise NoSuchCommandError("capd eval does not take that") from None
