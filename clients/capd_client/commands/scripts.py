"""`capd run`: runs a script that calls tools (docs/scripts.md)."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from capd_client import tables
from capd_client.commands.scratch import in_session
from capd_client.commands.shared import ask, fail, json_option, print_json, session_option

_TOOL = "script_run"


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--input",
    "inputs",
    metavar="NAME=VALUE",
    multiple=True,
    help="An entry of the dict `inputs`: JSON, or else text.",
)
@session_option
@json_option
def run(*, file: str, inputs: tuple[str, ...], session: str, as_json: bool) -> None:
    """Run FILE, Python that calls tools; `-` reads it from standard input."""
    arguments = {"code": _code(file), "inputs": dict(_named(each) for each in inputs)}
    if not arguments["code"]:
        raise click.UsageError(f"{file} is empty")
    result = in_session(
        session, lambda key: ask("call", name=_TOOL, arguments=arguments, session=key)
    )
    answer = result.get("result") or {}
    if as_json:
        print_json(result)
    else:
        _print(answer)
    if answer.get("isError"):
        fail("the script ended in an error")


def _code(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is not UTF-8") from None
    return text.strip("\n") if text.strip() else ""


def _named(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--input is NAME=VALUE, not {text[:80]!r}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _print(answer: dict[str, Any]) -> None:
    """Print the value of a script; print the report on its calls to standard error."""
    value, *blocks = answer.get("content") or [{}]
    tables.print_result({"content": [value]})
    for each in blocks:
        click.echo(tables.printable(str(each.get("text", "")), keep_lines=True), err=True)


COMMANDS = {"run": run}
