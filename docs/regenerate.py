"""Write the pages, and the parts of pages, that the code says: keys, commands, control methods.

Run `python docs/regenerate.py` after a change of one of them; tests compare.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from capd.adapters.key_documents import KeyDocument, key_documents, meaning_of
from capd_client.commands import cli
from capd_client.commands.purposes import FOR_PROGRAMS
from capd_protos import SOCKET_PROTOCOL
from capd_protos.socket import METHODS

DOCS = pathlib.Path(__file__).parent
CONFIGURATION = DOCS / "configuration.md"
COMMANDS = DOCS / "reference-cli.md"
CONTROL = DOCS / "reference-control.md"
SHAPES = DOCS / "cli.schema.json"

BEGIN = "<!-- keys: written by docs/regenerate.py -->\n"
END = "<!-- end of keys -->"
HEAD = "| key | type | default | meaning | variable | a change counts | in a project |"
NOTE = "<!-- written by docs/regenerate.py -->\n"

COMMANDS_HEAD = """\
# Every command

As `capd COMMAND --help` has it. What the commands are for, exit codes and the rules of `--json` are
in [the command](cli.md). Every command has `--help`, but for `daemon run`, `eval`, `hook` and
`mcp`, which hand their words on.
"""
CONTROL_HEAD = """\
# Every control method

The methods of role `control`, protocol {protocol}, as JSON-RPC on [the socket](protocol.md), which
says how a connection is opened, what results mean, and which errors there are. `session` may be
left out while there is exactly one. The frames and params as JSON Schema are in
`protos/socket.schema.json`, results as commands print them in [cli.schema.json](cli.schema.json).
"""


PRINTED_BY = {
    "approvals": "approve",
    "approve": "",
    "bridges": "bridge list",
    "bridge_open": "",
    "bridge_revoke": "bridge revoke",
    "profiles": "profile",
    "config": "config show",
    "definitions": "trust definitions",
    "learning": "learn",
    "learning_forget": "learn --forget",
    "secrets": "secret list",
    "tokens": "status --tokens",
    "tool": "tool show",
    "tool_edits": "tool list",
    "trust_grant": "trust",
    "trust_list": "trust --list",
}
"""Which command prints a method's result, where it has another name."""


def pages() -> dict[pathlib.Path, str]:
    """Return each page as it has to be."""
    return {
        CONFIGURATION: page_text(),
        COMMANDS: "\n".join([NOTE + COMMANDS_HEAD, *_commands()]),
        CONTROL: "\n".join([NOTE + CONTROL_HEAD.format(protocol=SOCKET_PROTOCOL), *_methods()]),
    }


def page_text() -> str:
    """Return docs/configuration.md with the table as it has to be."""
    before, _, rest = CONFIGURATION.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = "\n".join([HEAD, "|---" * 7 + "|", *map(_key_row, key_documents())])
    return f"{before}{BEGIN}{rows}\n{END}{after}"


def _key_row(key: KeyDocument) -> str:
    counts = "live" if key.is_live else "next start"
    variable = f"`{key.variable}`" if key.variable else ""
    default = f"`{key.default}`" if key.default else ""
    return _row(f"`{key.name}`", key.type, default, key.meaning, variable, counts, key.project)


def _commands() -> Iterator[str]:
    context = click.Context(cli, info_name="capd")
    for name in sorted({*cli.list_commands(context), *FOR_PROGRAMS}):
        if (command := cli.get_command(context, name)) is not None:
            yield from _command(command, click.Context(command, context, info_name=name))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    if isinstance(command, click.Group):
        if command.help and "\n\n" in command.help:
            yield f"## `{context.command_path}`\n\n{_text(command)}\n"
        for name, each in sorted(command.commands.items()):
            yield from _command(each, click.Context(each, context, info_name=name))
        return
    usage = " ".join(command.collect_usage_pieces(context)).replace("[OPTIONS] ", "")
    yield f"## `{context.command_path}`\n\n    {context.command_path} {usage}\n".replace(
        " [OPTIONS]\n", "\n"
    )
    yield f"{_text(command)}\n"
    options = [each for each in command.params if isinstance(each, click.Option)]
    if options:
        yield _row("option", "", "default") + "\n|---|---|---|"
        yield from (_option_row(each) for each in options)
        yield ""


def _text(command: click.Command) -> str:
    return "\n".join(line.strip() for line in (command.help or "").splitlines()).strip()


def _option_row(option: click.Option) -> str:
    names = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
    if not option.is_flag:
        metavar = option.metavar
        if isinstance(option.type, click.Choice):
            metavar = ", ".join(map(str, option.type.choices))
        names += f" {metavar or option.type.name.upper()}"
    is_plain = isinstance(option.default, int | float | str) and not isinstance(
        option.default, bool
    )
    default = f"`{option.default}`" if is_plain and option.default != "" else ""
    return _row(names, option.help or "", default)


def _methods() -> Iterator[str]:
    shapes = json.loads(SHAPES.read_text(encoding="utf-8"))["$defs"]["commands"]
    for name, params in METHODS.items():
        yield f"## `{name}`\n"
        _, _, more = " ".join((params.__doc__ or "").split()).partition(": ")
        if more:
            yield f"{more[0].upper()}{more[1:]}\n"
        fields = msgspec.structs.fields(params)
        properties = msgspec.json.schema_components([params])[1][params.__name__]["properties"]
        if fields:
            yield _row("param", "type", "default", "meaning") + "\n|---|---|---|---|"
            for field in fields:
                meaning = meaning_of(params, field.name)
                shape = properties[field.encode_name]
                yield _row(
                    f"`{field.encode_name}`", _type_text(shape), _default_text(field), meaning
                )
            yield ""
        else:
            yield "No params.\n"
        if members := shapes.get(PRINTED_BY.get(name, name), {}).get("properties", {}):
            yield f"Result: {', '.join(f'`{each}`' for each in members)}.\n"


def _type_text(shape: dict[str, Any]) -> str:
    if "enum" in shape:
        return " or ".join(f"`{json.dumps(each)}`" for each in shape["enum"])
    kinds = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
    }
    kind = shape.get("type", "")
    if kind == "array":
        return f"list of {_type_text(shape.get('items', {}))}s"
    if kind == "object":
        return f"{_type_text(shape.get('additionalProperties', {}))} by name"
    if "minimum" in shape and "maximum" in shape:
        return f"{kinds.get(kind, kind)}, {shape['minimum']} to {shape['maximum']}"
    return kinds.get(kind, "any JSON")


def _default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return f"`{msgspec.json.encode(default).decode()}`"


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text.rstrip() + "\n", encoding="utf-8")
