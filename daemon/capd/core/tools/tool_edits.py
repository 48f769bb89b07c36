"""Applies a person's edits to tools: other names and descriptions, fewer arguments.

    the server's definition ──edited──> the clients' definition
    a client's call ──sent_arguments──> the server's call

An edit changes what clients see, never what a rule is about: policy, approval, memories and the
comparison of definitions go by the server's own name and words (docs/tools.md). An edit of an
argument that does not exist, or that hides one which the server requires, is reported and ignored.
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
"""Why a tool that an edit disables cannot be called."""

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
"""What in a schema may demand an argument beside `properties` and `required`."""
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
    """A definition with an edit in it."""

    definition: ToolDefinition
    problems: tuple[str, ...] = ()
    """The parts of the edit that do not apply, and why."""


def edited(definition: ToolDefinition, edit: ToolEdit) -> Edited:
    """Return a tool with `edit` applied; parts that do not apply are reported and left out."""
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
    """Return a server's list with its edits applied, without the tools that they disable."""
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
    """Return the parts of an edit that do not apply to the tools that its server lists."""
    tool = next((each for each in tools if each.name == edit.tool), None)
    if tool is None:
        return (f"server {edit.server!r} lists no tool {edit.tool!r}: the edit changes nothing",)
    if edit.name and any(each.name == edit.name for each in tools if each.name != edit.tool):
        taken = f"{edit.name!r} is another tool of {edit.server!r}: the later one gets a suffix"
        return (taken, *edited(tool, edit).problems)
    return edited(tool, edit).problems


def sent_arguments(name: str, edit: ToolEdit | None, arguments: bytes) -> bytes:
    """Return the arguments for the server from a client's call of an edited tool.

    `name` is the tool's for the client, `edit` is the one of its definition, with nothing in it
    that does not apply.

    Raises:
        NotSentError: they name an argument that the client does not have, or are not an object.
    """
    if edit is None or not edit.arguments:
        return arguments
    try:
        given = _raws.decode(arguments) if arguments.strip() not in {b"", b"null"} else {}
    except _UNREADABLE:
        raise NotSentError(
            f"The arguments of {name} are no JSON object. The call was not sent."
        ) from None
    own = {_shown(each): each.argument for each in edit.arguments if not _is_hidden(each)}
    gone = {each.argument for each in edit.arguments} - own.keys()
    if foreign := [key for key in given if key in gone]:
        raise NotSentError(f"{name} has no argument {foreign[0]!r}. The call was not sent.")
    sent = {own.get(key, key): value for key, value in given.items()}
    sent.update((each.argument, msgspec.Raw(each.preset)) for each in edit.arguments if each.preset)
    return msgspec.json.encode(sent)


def given_arguments(edit: ToolEdit, arguments: bytes) -> bytes:
    """Return a client's form of a server's own arguments: the reverse of `sent_arguments`.

    Arguments that the client cannot see are left out; a value that is not an object is unchanged.
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
    """Return what an edit changes, each in a few words for a person."""
    said = [
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
            said.append(f"{each.argument} is always {each.preset.decode('utf-8', 'replace')}")
        elif each.is_hidden:
            said.append(f"{each.argument} is hidden")
        if each.name:
            said.append(f"{each.argument} is called {each.name}")
        if each.description:
            said.append(f"{each.argument} is described otherwise")
    return said


class _Arguments:
    """The arguments of one tool, with the edits of them that apply."""

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
        """Return why a preset cannot be a value of its argument; empty where it may be."""
        value = msgspec.json.decode(edit.preset)
        try:
            said = msgspec.json.decode(self._properties[edit.argument], type=dict[str, Any])
        except _UNREADABLE:
            return ""
        types = said.get("type", [])
        names = [types] if isinstance(types, str) else types
        known = [each for each in names if each in _TYPES] if isinstance(names, list) else []
        if known and not any(_is_of(value, each) for each in known):
            return f"its type is {' or '.join(known)}"
        choices = said.get("enum")
        if isinstance(choices, list) and value not in choices:
            return f"its value is one of {msgspec.json.encode(choices).decode()[:200]}"
        return ""

    def _without_clashes(self, edits: Sequence[ArgumentEdit]) -> list[ArgumentEdit]:
        """Return the edits without new names that two arguments would have."""
        kept = {each.argument: each for each in edits}
        while True:
            hidden = {name for name, each in kept.items() if _is_hidden(each)}
            shown = {
                name: _shown(kept[name]) if name in kept else name
                for name in self._properties
                if name not in hidden
            }
            # What is required and not described is the server's all the same.
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
        for name, said in self._properties.items():
            edit = by_name.get(name)
            if edit is None:
                properties[name] = said
            elif not _is_hidden(edit):
                properties[_shown(edit)] = _described(said, edit.description)
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


def _is_of(value: Any, name: str) -> bool:
    # In JSON Schema 1.0 is an integer, and true is no number.
    if isinstance(value, bool):
        return name == "boolean"
    is_whole = isinstance(value, float) and value.is_integer()
    return isinstance(value, _TYPES[name]) or (name == "integer" and is_whole)


def _described(said: msgspec.Raw, description: str) -> msgspec.Raw:
    if not description:
        return said
    try:
        members = _raws.decode(said)
    except _UNREADABLE:
        # `true` is a schema as well, and has no room for words.
        members = {}
    return msgspec.Raw(msgspec.json.encode({**members, "description": description}))


def _raw(value: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
