"""Applies a person's edits to tools: other names and descriptions, hidden or preset arguments.

    the server's definition ──edited──> the clients' definition
    a client's call ──sent_arguments──> the server's call

An edit is part of an overlay (a folder of the user's changes) or of a tap. It changes what clients
see. Policy, approvals, memories and the comparison of definitions still use the server's own names
and texts (docs/tools.md). An edit of an argument that does not exist, or one that hides a required
argument without a preset value, is reported and ignored.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from capd.core.protocol.outcomes import NotSentError
from capd_protos.types import ArgumentEdit, ToolDefinition, ToolEdit

Raws = dict[str, msgspec.Raw]

DISABLED = "switched off by an edit of the user's (capd tool list)"
"""The reason for refusing a call of a tool that an edit disables."""

_raws = msgspec.json.Decoder(Raws)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_ANYWHERE = frozenset(
    {
        "$ref",
        "$dynamicRef",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
    }
)
"""Keywords, beside `properties` and `required`, by which a schema may demand an argument."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class Edited:
    """A tool's definition to which a person's edit was applied."""

    definition: ToolDefinition
    problems: tuple[str, ...] = ()
    """The parts of the edit that do not apply, and why."""


def edited(definition: ToolDefinition, edit: ToolEdit) -> Edited:
    """Return a tool with `edit` applied; the parts that do not apply are in `problems`."""
    try:
        members = _raws.decode(definition.json)
        schema = _raws.decode(members.get("inputSchema", msgspec.Raw(b"{}")))
    except _UNREADABLE:
        return Edited(definition, ("its definition cannot be read",))
    arguments = _Arguments(schema, edit.arguments)
    if edit.name:
        members["name"] = _raw(edit.name)
    for key, text in (("title", edit.title), ("description", edit.description)):
        if text:
            members[key] = _raw(text)
    if arguments.applied:
        members["inputSchema"] = msgspec.Raw(msgspec.json.encode(arguments.schema))
    applied = msgspec.structs.replace(edit, arguments=arguments.applied)
    shown = ToolDefinition(definition.name, msgspec.json.encode(members), applied)
    return Edited(shown, tuple(arguments.problems))


def edited_tools(
    tools: Sequence[ToolDefinition], edits: Iterable[ToolEdit]
) -> tuple[ToolDefinition, ...]:
    """Return a server's tools with `edits` applied, without the tools that these disable."""
    by_tool = {edit.tool: edit for edit in edits}
    if not by_tool:
        return tuple(tools)
    wanted = ((tool, by_tool.get(tool.name)) for tool in tools)
    return tuple(
        tool if edit is None else edited(tool, edit).definition
        for tool, edit in wanted
        if edit is None or not edit.is_disabled
    )


def problems(tools: Sequence[ToolDefinition], edit: ToolEdit) -> tuple[str, ...]:
    """Return why parts of a person's edit do not apply to `tools`, which its server lists."""
    tool = next((each for each in tools if each.name == edit.tool), None)
    if tool is None:
        return (f"server {edit.server!r} lists no tool {edit.tool!r}: the edit changes nothing",)
    if edit.name and any(each.name == edit.name for each in tools if each.name != edit.tool):
        taken = f"{edit.name!r} is another tool of {edit.server!r}: the later one gets a suffix"
        return (taken, *edited(tool, edit).problems)
    return edited(tool, edit).problems


def sent_arguments(name: str, edit: ToolEdit | None, arguments: bytes) -> bytes:
    """Return the arguments that the server gets in a client's call of an edited tool, as JSON.

    `name` is the name under which clients know the tool. `edit` is `ToolDefinition.edit`, which
    contains only parts that apply. Presets are added.

    Raises:
        NotSentError: `arguments` is not an object, or names an argument that clients do not see.
    """
    if edit is None or not edit.arguments:
        return arguments
    try:
        given = _raws.decode(arguments) if arguments.strip() not in {b"", b"null"} else {}
    except _UNREADABLE:
        raise NotSentError(
            f"The arguments of {name} are not a JSON object. The call was not sent."
        ) from None
    own = {_shown(each): each.argument for each in edit.arguments if not _is_hidden(each)}
    gone = {each.argument for each in edit.arguments} - own.keys()
    if foreign := [key for key in given if key in gone]:
        raise NotSentError(f"{name} has no argument {foreign[0]!r}. The call was not sent.")
    sent = {own.get(key, key): value for key, value in given.items()}
    sent.update((each.argument, msgspec.Raw(each.preset)) for each in edit.arguments if each.preset)
    return msgspec.json.encode(sent)


def given_arguments(edit: ToolEdit, arguments: bytes) -> bytes:
    """Return the arguments of a server's tool as a client would write them, as JSON.

    This is the reverse of `sent_arguments`. Arguments that clients do not see are left out. Bytes
    that are not a JSON object are returned unchanged.
    """
    try:
        own = _raws.decode(arguments)
    except _UNREADABLE:
        return arguments
    by_name = {each.argument: each for each in edit.arguments}
    given = {
        _shown(by_name[name]) if name in by_name else name: value
        for name, value in own.items()
        if name not in by_name or not _is_hidden(by_name[name])
    }
    return msgspec.json.encode(given)


def changes(edit: ToolEdit) -> list[str]:
    """Return each change that a person's edit makes, in a few words such as `called find`."""
    lines = [
        text
        for text, is_so in (
            ("switched off", edit.is_disabled),
            (f"called {edit.name}", bool(edit.name)),
            (f"titled {edit.title!r}", bool(edit.title)),
            ("described otherwise", bool(edit.description)),
        )
        if is_so
    ]
    for each in edit.arguments:
        if each.preset:
            lines.append(f"{each.argument} is always {each.preset.decode('utf-8', 'replace')}")
        elif each.is_hidden:
            lines.append(f"{each.argument} is hidden")
        if each.name:
            lines.append(f"{each.argument} is called {each.name}")
        if each.description:
            lines.append(f"{each.argument} is described otherwise")
    return lines


class _Arguments:
    """Applies edits of arguments to the input schema of one tool.

    It collects those that apply, and the problems with others.
    """

    def __init__(self, schema: Raws, edits: Sequence[ArgumentEdit]) -> None:
        self.problems: list[str] = []
        self.schema = schema
        self.applied: tuple[ArgumentEdit, ...] = ()
        try:
            properties = _raws.decode(schema.get("properties", msgspec.Raw(b"{}")))
            required = msgspec.json.decode(
                schema.get("required", msgspec.Raw(b"[]")), type=list[str]
            )
        except _UNREADABLE:
            if edits:
                self.problems.append("its arguments cannot be read: they stay as they are")
            return
        self._properties, self._required = properties, required
        usable = [each for each in edits if self._applies(each)]
        if usable:
            self._apply(self._without_clashes(usable))

    def _applies(self, edit: ArgumentEdit) -> bool:
        name = edit.argument
        reason = ""
        if name not in self._properties:
            reason = "is not there"
        elif (edit.name or _is_hidden(edit)) and self._is_named_elsewhere(name):
            reason = "is part of a condition in the tool's schema: it stays as it is"
        elif edit.is_hidden and not edit.preset and name in self._required:
            reason = "is required: it stays, until the edit presets a value for it"
        elif edit.preset and (wrong := self._wrong_preset(edit)):
            reason = f"cannot be preset: {wrong}"
        if reason:
            self.problems.append(f"argument {name!r} {reason}")
        return not reason

    def _is_named_elsewhere(self, name: str) -> bool:
        quoted = msgspec.json.encode(name)
        for key in _ANYWHERE & self.schema.keys():
            is_whole = key in {"$ref", "$dynamicRef", "patternProperties", "propertyNames"}
            if is_whole or key in {"minProperties", "maxProperties"}:
                return True
            if quoted in msgspec.json.encode(msgspec.json.decode(self.schema[key])):
                return True
        return False

    def _wrong_preset(self, edit: ArgumentEdit) -> str:
        """Return why an edit's preset is not valid for its argument; empty if it may be valid."""
        value = msgspec.json.decode(edit.preset)
        try:
            lines = msgspec.json.decode(self._properties[edit.argument], type=dict[str, Any])
        except _UNREADABLE:
            return ""
        types = lines.get("type", [])
        names = [types] if isinstance(types, str) else types
        listed = names if isinstance(names, list) else []
        known = [each for each in listed if isinstance(each, str) and each in _TYPES]
        if known and not any(_has_type(value, each) for each in known):
            return f"its type is {' or '.join(known)}"
        choices = lines.get("enum")
        if isinstance(choices, list) and value not in choices:
            return f"its value is one of {msgspec.json.encode(choices).decode()[:200]}"
        return ""

    def _without_clashes(self, edits: Sequence[ArgumentEdit]) -> list[ArgumentEdit]:
        """Return the edits of arguments, without new names that two arguments would then have."""
        kept = {each.argument: each for each in edits}
        while True:
            hidden = {name for name, each in kept.items() if _is_hidden(each)}
            shown = {
                name: _shown(kept[name]) if name in kept else name
                for name in self._properties
                if name not in hidden
            }
            # A name in `required` that `properties` lacks is taken, too.
            undescribed = set(self._required) - self._properties.keys()
            counts = Counter([*shown.values(), *undescribed])
            clashing = [n for n, new in shown.items() if counts[new] > 1 and new != n]
            if not clashing:
                return list(kept.values())
            for name in clashing:
                reason = f"argument {name!r} keeps its name: {kept[name].name!r} is another one's"
                self.problems.append(reason)
                kept[name] = msgspec.structs.replace(kept[name], name="")

    def _apply(self, edits: Sequence[ArgumentEdit]) -> None:
        by_name = {each.argument: each for each in edits}
        properties: Raws = {}
        for name, lines in self._properties.items():
            edit = by_name.get(name)
            if edit is None:
                properties[name] = lines
            elif not _is_hidden(edit):
                properties[_shown(edit)] = _described(lines, edit.description)
        required = [
            _shown(by_name[name]) if name in by_name else name
            for name in self._required
            if name not in by_name or not _is_hidden(by_name[name])
        ]
        self.schema = dict(self.schema)
        self.schema["properties"] = msgspec.Raw(msgspec.json.encode(properties))
        if "required" in self.schema:
            self.schema["required"] = msgspec.Raw(msgspec.json.encode(required))
        if not required:
            self.schema.pop("required", None)
        self.applied = tuple(edits)


def _is_hidden(edit: ArgumentEdit) -> bool:
    return edit.is_hidden or bool(edit.preset)


def _shown(edit: ArgumentEdit) -> str:
    return edit.name or edit.argument


def _has_type(value: Any, name: str) -> bool:
    # In JSON Schema 1.0 is an integer, and true is not a number.
    if isinstance(value, bool):
        return name == "boolean"
    is_whole = isinstance(value, float) and value.is_integer()
    return isinstance(value, _TYPES[name]) or (name == "integer" and is_whole)


def _described(lines: msgspec.Raw, description: str) -> msgspec.Raw:
    if not description:
        return lines
    try:
        members = _raws.decode(lines)
    except _UNREADABLE:
        # `true` is a valid schema, which accepts every value and has no members.
        members = {}
    return msgspec.Raw(msgspec.json.encode({**members, "description": description}))


def _raw(value: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
