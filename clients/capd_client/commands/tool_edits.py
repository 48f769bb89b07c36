"""`capd tool`: renames single tools, changes their descriptions and arguments, or disables them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from capd_client import tables
from capd_client.commands.records import edit_line
from capd_client.commands.shared import ask, fail, json_option, print_json, this_places
from capd_client.tool_edits import Changes, ToolEdits, preset_value

_PAIR = "ARG=VALUE"
_NAME = re.compile(r"[A-Za-z0-9_.-]{0,64}")


@click.group()
def tool() -> None:
    """Change how clients see single tools: names, descriptions, arguments.

    Policy rules still match the name that the server gives the tool.
    """


@tool.command("list")
@json_option
def list_edits(*, as_json: bool) -> None:
    """List the tools that were edited."""
    result = ask("tool_edits")
    if as_json:
        print_json(result)
        return
    for each in result.get("edits") or ():
        tables.say(edit_line(each))
    if not result.get("edits"):
        tables.say("no tool was edited: capd tool edit NAME --help says how")


@tool.command("show")
@click.argument("name")
@json_option
def show(*, name: str, as_json: bool) -> None:
    """Show the tool NAME as clients see it, and as its server lists it.

    NAME is its name for clients, or server:tool.
    """
    result = ask("tool", name=name)
    if as_json:
        print_json(result)
    else:
        _print(result)


@tool.command("edit")
@click.argument("name")
@click.option("--name", "new_name", metavar="NAME", default=None, help="What to call the tool.")
@click.option("--title", metavar="TEXT", default=None, help="Its title, for people.")
@click.option("--description", metavar="TEXT", default=None, help="What models read of the tool.")
@click.option("--disable/--enable", "disabled", default=None, help="Switch it off, or on again.")
@click.option(
    "--preset", "presets", metavar=_PAIR, multiple=True, help="Always send VALUE: JSON, or a text."
)
@click.option("--hide", metavar="ARG", multiple=True, help="Leave the optional argument ARG out.")
@click.option("--show", "shown", metavar="ARG", multiple=True, help="Neither hide nor preset ARG.")
@click.option(
    "--rename-argument", "names", metavar="ARG=NAME", multiple=True, help="What to call ARG."
)
@click.option(
    "--describe-argument",
    "texts",
    metavar="ARG=TEXT",
    multiple=True,
    help="What models read of ARG.",
)
def edit(
    *,
    name: str,
    new_name: str | None,
    title: str | None,
    description: str | None,
    disabled: bool | None,
    presets: Sequence[str],
    hide: Sequence[str],
    shown: Sequence[str],
    names: Sequence[str],
    texts: Sequence[str],
) -> None:
    """Change how clients see the tool NAME.

    NAME is its name for clients, or server:tool. Options add to earlier edits; an option with an
    empty text undoes its earlier edit. If the tool's capability is on, switch it off and on again
    to see the change.
    """
    changes = Changes(
        new_name,
        title,
        description,
        disabled,
        names=_pairs("--rename-argument", names),
        descriptions=_pairs("--describe-argument", texts),
        presets={key: preset_value(v) for key, v in _pairs("--preset", presets).items()},
        hidden=hide,
        shown=shown,
    )
    for each in (changes.name or "", *changes.names.values()):
        if not _NAME.fullmatch(each):
            text = (
                f"{each[:80]!r} is not a valid name: use up to 64 letters, digits, `_`, `.` and `-`"
            )
            raise click.UsageError(text)
    if changes.are_none:
        raise click.UsageError("say what to change: capd tool edit --help lists what can be")
    found = ask("tool", name=name)
    edits = ToolEdits(this_places().config)
    tap, _, capability = str(found["capability"]).partition("/")
    place = edits.file(tap, capability)
    file = str((found.get("edit") or {}).get("file", ""))
    # A tap's own edits come after every overlay.
    is_of_overlay = bool(file) and (Path(file).parents[1] / "overlay.toml").exists()
    if is_of_overlay and file != str(place):
        fail(f"{found['tool']} is edited in {file}, which comes first\nMake the change there.")
    edits.change(tap, capability, str(found["tool"]), changes)
    ask("reload")
    _print(ask("tool", name=found["tool"]))


@tool.command("reset")
@click.argument("name")
def reset(*, name: str) -> None:
    """Undo all edits of the tool NAME."""
    found = ask("tool", name=name)
    tap, _, capability = str(found["capability"]).partition("/")
    if not ToolEdits(this_places().config).reset(tap, capability, str(found["tool"])):
        file = (found.get("edit") or {}).get("file")
        text = f"is edited in {file}: change it there" if file else "was not edited"
        fail(f"{found['tool']} {text}")
    ask("reload")
    _print(ask("tool", name=found["tool"]))


def _pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} {word[:80]} has no ARGUMENT before `=`")
        found[key] = value
    return found


def _print(result: Mapping[str, Any]) -> None:
    edit = result.get("edit") or {}
    off = " (switched off)" if edit.get("disabled") else ""
    tables.say(f"{result.get('tool')} of {result.get('capability')}{off}")
    tables.say(f"  clients see   {_signature(str(result.get('name')), result.get('shown'))}")
    tables.say(f"                {_first_line(result.get('shown'))}")
    if not edit:
        tables.say("  not edited: this is how its server lists it")
        return
    own = str(result.get("tool")).partition(":")[2]
    tables.say(f"  server lists  {_signature(own, result.get('listed'))}")
    tables.say(f"                {_first_line(result.get('listed'))}")
    tables.say(f"  edited in     {edit.get('file')}")
    for each in edit.get("changes") or ():
        tables.say(f"                {each}")
    for problem in result.get("problems") or ():
        tables.say(f"  not applied: {problem}")


def _signature(name: str, definition: Any) -> str:
    schema = definition.get("inputSchema") if isinstance(definition, dict) else None
    schema = schema if isinstance(schema, dict) else {}
    names, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    given = names if isinstance(names, dict) else {}
    return f"{name}({', '.join(each if each in needed else f'{each}?' for each in given)})"


def _first_line(definition: Any) -> str:
    description = definition.get("description") if isinstance(definition, dict) else None
    return str(description or "no description").strip().partition("\n")[0]


COMMANDS = {"tool": tool}
