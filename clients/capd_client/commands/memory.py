"""`capd memory`: lists memories of capabilities and tools, and edits the user's own."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from capd_client import tables
from capd_client.commands.shared import FILLED, ask, fail, json_option, print_json
from capd_client.control import ControlError

_LONGEST = 80


def print_memories(memories: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with a row for each memory, and how often it helped."""
    columns = (
        *("memory", "kind", "of", "refuses"),
        *("tokens", "told", "refused", "worked", "what it says"),
    )
    rows = [
        (
            _name(each),
            each.get("kind"),
            each.get("tool") or each.get("capability"),
            "yes" if each.get("refuses") else "",
            each.get("tokens"),
            each.get("told"),
            each.get("refused"),
            each.get("worked"),
            _short(each.get("content")),
        )
        for each in memories
    ]
    tables.print_rows(columns, rows)


def print_suggestions(suggestions: Sequence[Mapping[str, Any]]) -> None:
    """Print each suggested memory with the number that `--accept` takes."""
    if not suggestions:
        tables.say("Nothing is suggested: no call has failed and then worked with other arguments.")
        return
    for each in suggestions:
        count = each.get("count", 1)
        times = f"{count} times" if count != 1 else "once"
        tables.say(f"{each.get('number')}. {each.get('tool')}, {times}: {each.get('content')}")
        if each.get("arguments"):
            tables.say(f"   matches {json.dumps(each['arguments'])}")
    tables.say("Write one down: capd memory suggest --accept N (--refuse refuses such calls).")


def _name(memory: Mapping[str, Any]) -> str:
    """Return the name of a memory as `tap/name`; without a tap if it is the user's own."""
    tap = memory.get("tap")
    name = str(memory.get("name"))
    return name if tap == "~" else f"{tap}/{name}"


def _short(content: Any) -> str:
    line = " ".join(str(content or "").split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


KINDS = ("corrective", "procedural", "declarative", "episodic")


_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def memory() -> None:
    """Keep notes for models about tools, and refuse calls that make a known mistake."""


@memory.command("list")
@click.option("--kind", type=click.Choice(KINDS), default=None, help="Only of this kind.")
@click.option("--tool", metavar="TEXT", default="", help="Only of tools with TEXT in their names.")
@click.option("--capability", metavar="NAME", default="", help="Only of this capability.")
@click.option("--project", metavar="FOLDER", default="", help="Also the memories of this project.")
@json_option
def list_(*, kind: str | None, tool: str, capability: str, project: str, as_json: bool) -> None:
    """List the memories, and how often each helped."""
    result = ask("memories", project=_absolute(project))
    kept = [
        each
        for each in result.get("memories") or []
        if (not kind or each["kind"] == kind)
        and tool in each["tool"]
        and capability in {"", each["capability"], each["capability"].rpartition("/")[2]}
    ]
    if as_json:
        print_json({**result, "memories": kept})
        return
    print_memories(kept)
    for finding in result.get("findings") or []:
        tables.say(f"{finding['path']}:{finding['line']}: {finding['reason']}")


def _fields(command: _F) -> _F:
    """Add one option to `command` for each key of a memory's file."""
    for option in (
        click.option(
            "--name", metavar="NAME", default="", help="Its name.  [default: made from CONTENT]"
        ),
        click.option(
            "--kind",
            type=click.Choice(KINDS),
            default="corrective",
            show_default=True,
        ),
        click.option("--tool", metavar="SERVER:TOOL", default="", help="The tool it is about."),
        click.option(
            "--capability", metavar="NAME", default="", help="The capability it is about."
        ),
        click.option(
            "--when",
            "patterns",
            metavar="ARGUMENT=GLOB",
            multiple=True,
            help="What the mistake looks like in a call's arguments.",
        ),
        click.option(
            "--schema", metavar="JSON", default="", help="Like --when, but as a JSON Schema."
        ),
        click.option("--refuse", is_flag=True, help="Refuse calls that make the mistake."),
        click.option(
            "--confidence", default=1.0, type=click.FloatRange(0, 1), help="How certain it is."
        ),
        click.option(
            "--priority", default=1.0, type=click.FloatRange(0, 100), help="How important it is."
        ),
    ):
        command = option(command)
    return command


@memory.command()
@click.argument("content", nargs=-1)
@_fields
@json_option
def add(*, content: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Add a memory with the text CONTENT; without it, an editor opens."""
    text = " ".join(content) or _edited("")
    fields = {
        "kind": given["kind"],
        "content": text.strip(),
        "name": given["name"],
        "tool": given["tool"],
        "capability": given["capability"],
        "patterns": _patterns(given["patterns"]),
        "refuses": given["refuse"],
        "confidence": given["confidence"],
        "priority": given["priority"],
    }
    if given["schema"]:
        fields["schema"] = _parsed(given["schema"])
    if not fields["content"]:
        fail("nothing was written: the content is empty")
    _done(ask("memory_add", **fields), "written down", as_json=as_json)


@memory.command()
@click.argument("name", type=FILLED)
def edit(*, name: str) -> None:
    """Open the memory NAME in an editor, and check it."""
    stored = ask("memory_read", name=name)
    text = str(stored["text"])
    suffix = str(stored["file"]).rpartition(".")[2]
    while True:
        edited = _edited(text, suffix=f".{suffix}")
        if edited == stored["text"]:
            tables.say(f"{name} is as it was")
            return
        try:
            _done(ask("memory_write", name=name, text=edited), "changed", as_json=False)
        except ControlError as error:
            tables.say(error.message)
            if not click.confirm("Edit it again?", default=True):
                fail(f"{name} is as it was")
            text = edited
        else:
            return


@memory.command()
@click.argument("name", type=FILLED)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def forget(*, name: str, yes: bool, as_json: bool) -> None:
    """Remove the memory NAME: its file is moved to the folder `.forgotten` beside it."""
    stored = ask("memory_read", name=name)
    if not yes:
        tables.say(stored["text"], keep_lines=True)
        click.confirm(f"Forget {name}?", abort=True)
    _done(ask("memory_forget", name=name), "forgotten", as_json=as_json)


@memory.command()
@click.option("--accept", metavar="N", type=click.IntRange(min=1), help="Save suggestion N.")
@click.option("--refuse", is_flag=True, help="With --accept: refuse calls that repeat the mistake.")
@click.option("--name", metavar="NAME", default="", help="With --accept: its name.")
@json_option
def suggest(*, accept: int | None, refuse: bool, name: str, as_json: bool) -> None:
    """Suggest corrections, from calls that failed and then succeeded with other arguments."""
    result = ask("memory_suggest")
    found = result.get("suggestions") or []
    if accept is None:
        if as_json:
            print_json(result)
        else:
            print_suggestions(found)
        return
    chosen = next((each for each in found if each["number"] == accept), None)
    if chosen is None:
        fail(f"there is no suggestion {accept}: {len(found)} are there")
    written = ask("memory_accept", content=chosen["content"], name=name, refuses=refuse)
    _done(written, "written down", as_json=as_json)


def _done(result: Mapping[str, Any], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        tables.say(f"{result['name']} is {what}: {result['file']}")
        if result.get("warning"):
            tables.say(result["warning"])
            tables.say(f"To change it: capd memory edit {result['name']}")


def _patterns(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, glob = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--when {each!r} is not ARGUMENT=GLOB")
        found[name] = glob
    return found


def _parsed(schema: str) -> Any:
    try:
        return json.loads(schema)
    except ValueError as error:
        raise click.UsageError(f"--schema is not JSON: {error}") from None


def _edited(text: str, suffix: str = ".md") -> str:
    edited = click.edit(text, extension=suffix, require_save=False)
    return text if edited is None else edited


def _absolute(project: str) -> str:
    return str(Path(project).absolute()) if project else ""


COMMANDS = {"memory": memory}
