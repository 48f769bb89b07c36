"""Call cards: one line for each tool, from which a model can call it without its schema.

    git__git_log(repo_path, max_count=10, start_timestamp?)  Shows the commit logs

The signature is compact:

    name            a required string           name?           optional
    name: int       a required value of a type  name=10         optional, with its default
    name: "a"|"b"   one of these values         name: [str]     a list
    name: {a, b?}   an object with members      name: any       anything

A long signature has only the names of optional arguments and fewer values of required ones. It ends
in `...` if arguments are still left out. A call with wrong arguments is answered with the whole
schema, so the model can correct it without a search.

Strangers write schemas, so every part of one is cut to a limit before it is used, and no part can
begin a new line. A schema may refer to one large part hundreds of times, so the total number of
steps is limited as well.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from capd.core.index.token_costs import one_line
from capd.core.lazy_patterns import lazy_pattern
from capd.core.tools.read_only import is_read_only
from capd_protos.types import WireName

MOST_SIGNATURE = 110
"""If the arguments have more characters than this (about 35 tokens), optional ones are written
without types."""
MOST_BRIEF = 60
"""The same limit for a card without its description."""
MOST_REQUIRED = 260
"""The most characters of required arguments. Those that do not fit are left out."""
MOST_DESCRIPTION = 72
"""The most characters of a description, of which a card has the first sentence."""
MOST_ARGUMENTS = 24
DEEPEST = 3
"""How many levels of nested objects are written; below them, every object is `object`."""
MOST_VALUES = 8
FEWER_VALUES = 3
"""The most values of an enumeration in a signature that would otherwise be too long."""
MOST_STEPS = 400
"""How many types of one schema are examined: a hostile schema may nest thousands."""
MOST_NAME = 48
MOST_VALUE = 24
_MOST_MEMBERS = 4 * MOST_ARGUMENTS
"""How many properties of one object are examined."""
_MOST_KINDS = 8
"""How many entries of one list of types are examined."""
_LONGEST_REFERENCE = 400

MORE = "..."
"""Stands for arguments, members or values that are left out."""

_IS_NAME = lazy_pattern(r"[\w.$-]+")
_SENTENCE_END = lazy_pattern(r"(?<=[a-z0-9][a-z0-9)\]])[.;:!?](?:\s|$)")
_SHORT = {"string": "str", "integer": "int", "number": "number", "boolean": "bool", "null": "null"}
_KINDS = {**_SHORT, "array": "array", "object": "object"}


@dataclass(frozen=True, slots=True)
class CallCard:
    """How to call one tool, on one line for a model."""

    name: WireName
    arguments: str
    """The arguments in the compact form, without the brackets around them."""
    description: str
    is_whole: bool
    """Whether every argument that the tool takes is in `arguments`, with its shape."""
    is_callable: bool = True
    """Whether every argument that the tool requires is in `arguments`."""
    brief: str = ""
    """A shorter form of `arguments`, in which optional ones have no types or are left out."""
    is_read_only: bool = False
    """Whether the tool's definition says that it changes nothing (`readOnlyHint`)."""

    @property
    def line(self) -> str:
        """The card as the model reads it: `NAME(ARGUMENTS)  DESCRIPTION`."""
        call = self.signature
        return f"{call}  {self.description}" if self.description else call

    @property
    def signature(self) -> str:
        """The card without its description."""
        return f"{self.name}({self.arguments})"

    @property
    def short_line(self) -> str:
        """The card without its description, with the shorter form of the arguments."""
        return f"{self.name}({self.brief or self.arguments})"


@dataclass(frozen=True, slots=True)
class Signature:
    """A tool's arguments in the compact form of call cards.

    The flags mean the same as in `CallCard`.
    """

    text: str
    is_whole: bool = True
    is_callable: bool = True


def call_card(
    name: WireName, definition: bytes, most_description: int = MOST_DESCRIPTION
) -> CallCard:
    """Return the call card of a tool.

    `definition` is the tool's entry in `tools/list`, whose size the caller has limited; if it is
    not readable, the card has only the name. `most_description` is the most characters of the
    description.
    """
    try:
        read = msgspec.json.decode(definition)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        read = {}
    members = read if isinstance(read, dict) else {}
    schema = members.get("inputSchema")
    schema = schema if isinstance(schema, dict) else {}
    found = signature(schema)
    brief = signature(schema, MOST_BRIEF, is_brief=True).text
    described = summary(members.get("description"), most_description)
    return CallCard(
        *(name, found.text, described, found.is_whole, found.is_callable, brief),
        is_read_only=is_read_only(definition),
    )


def signature(
    schema: dict[str, Any], most: int = MOST_SIGNATURE, *, is_brief: bool = False
) -> Signature:
    """Return the arguments of an input schema on one line, as in `repo_path, max_count=10`.

    If they have more than `most` characters, or with `is_brief`, optional arguments are written
    without types, and as many of them are left out as necessary.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        # Arguments that are required but not described have no type to write.
        return Signature("", not schema.get("required"), not schema.get("required"))
    required, optional = _parted(schema, properties)
    writer = _Writer(schema)
    wanted = [writer.argument(name, properties[name], is_required=True) for name in required]
    is_blind = writer.is_blind
    rest = [writer.argument(name, properties[name], is_required=False) for name in optional]
    is_all = len(required) + len(optional) == len(properties)
    whole = ", ".join([*wanted, *rest])
    if len(whole) <= most and is_all and not (is_brief and rest):
        return Signature(whole, not writer.is_cut, not is_blind)
    if rest:
        # The name alone shows that the argument exists. A wrong value is answered with the schema.
        short = _Writer(schema, is_short=True)
        wanted = [short.argument(name, properties[name], is_required=True) for name in required]
        is_blind = short.is_blind
        rest = [f"{argument_name(name)}?" for name in optional]
    kept = list(_first(wanted, MOST_REQUIRED))
    is_callable = len(kept) == len(wanted) and not is_blind
    if len(kept) == len(wanted):
        # Optional arguments get the room that is left.
        kept += _first(rest, most - sum(len(each) + 2 for each in kept))
    if len(kept) == len(properties):
        is_whole = not rest and not writer.is_cut
        return Signature(", ".join(kept), is_whole, is_callable)
    return Signature(", ".join([*kept, MORE]), is_whole=False, is_callable=is_callable)


def summary(description: object, most: int = MOST_DESCRIPTION) -> str:
    """Return the first sentence of a tool's description, on one line.

    A sentence of more than `most` characters is cut.
    """
    if not isinstance(description, str):
        return ""
    text = one_line(description[: 8 * most])
    end = _SENTENCE_END.search(text)
    if end is not None and end.start() <= most:
        return text[: end.start()]
    if len(text) <= most:
        return text
    return text[:most].rsplit(" ", 1)[0].rstrip(",;:-") + "…"


def _parted(schema: dict[str, Any], properties: dict[str, Any]) -> tuple[list[str], list[str]]:
    listed = schema.get("required")
    first = listed[:MOST_ARGUMENTS] if isinstance(listed, list) else []
    wanted = dict.fromkeys(name for name in first if isinstance(name, str))
    names = list(islice(properties, _MOST_MEMBERS))
    required = [name for name in names if name in wanted]
    # A required property may come after those that are examined.
    required += [name for name in wanted if name in properties and name not in names]
    optional = [name for name in names if name not in wanted]
    return required, optional[: MOST_ARGUMENTS - len(required)]


def _first(parts: Iterable[str], room: int) -> Iterator[str]:
    """Yield the first of `parts` that together fit into `room` characters."""
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            return
        yield part


class _Writer:
    """Writes the types of one JSON Schema in the compact form of call cards.

    `is_cut` tells whether any type was shortened, `is_blind` whether any was not examined.
    """

    def __init__(self, root: dict[str, Any], *, is_short: bool = False) -> None:
        """Prepare to write the types of the JSON Schema `root`.

        With `is_short`, objects have only their required members, and enumerations only a few
        values.
        """
        self._root = root
        self._is_short = is_short
        self._most_values = FEWER_VALUES if is_short else MOST_VALUES
        self._steps = 0
        self.is_cut = False
        self.is_blind = False

    def argument(self, name: str, schema: object, *, is_required: bool, depth: int = 0) -> str:
        """Return one argument: `name`, `name: TYPE`, `name=DEFAULT`, `name?` or `name?: TYPE`."""
        label = argument_name(name)
        written = self.type(schema, depth)
        if is_required:
            return label if written == "str" else f"{label}: {written}"
        default = self._default(schema)
        if default:
            return f"{label}={default}"
        return f"{label}?" if written == "str" else f"{label}?: {written}"

    def type(self, schema: object, depth: int) -> str:
        """Return the type that a schema describes, such as `int` or `[str]`."""
        self._steps += 1
        if self._steps > MOST_STEPS or depth > DEEPEST + 1:
            self.is_cut = self.is_blind = True
            return "any"
        resolved = self._resolved(schema)
        if not isinstance(resolved, dict):
            return "any"
        values = resolved.get("enum")
        if isinstance(values, list) and values:
            return self._values(values)
        if "const" in resolved:
            return self._values([resolved["const"]])
        options = resolved.get("anyOf") or resolved.get("oneOf")
        if isinstance(options, list) and options:
            return self._options(options, depth)
        kind = resolved.get("type")
        if isinstance(kind, list):
            few = [each for each in kind[:_MOST_KINDS] if isinstance(each, str) and each != "null"]
            kinds = dict.fromkeys(_KINDS.get(each, "any") for each in few)
            return "|".join(kinds) or "any"
        if kind == "array":
            return f"[{self.type(resolved.get('items', {}), depth + 1)}]"
        if kind == "object" or "properties" in resolved:
            return self._object(resolved, depth)
        return _SHORT.get(kind, "any") if isinstance(kind, str) else "any"

    def _object(self, schema: dict[str, Any], depth: int) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or not properties:
            return "object"
        if depth >= DEEPEST:
            self.is_cut = self.is_blind = True
            return "object"
        required, optional = _parted(schema, properties)
        members = [
            self.argument(name, properties[name], is_required=True, depth=depth + 1)
            for name in required
        ]
        if self._is_short and members:
            optional = []
        others = [
            self.argument(name, properties[name], is_required=False, depth=depth + 1)
            for name in optional
        ]
        kept = list(_first(others, MOST_SIGNATURE - sum(len(each) + 2 for each in members)))
        if len(kept) < len(properties) - len(required):
            self.is_cut = True
            kept.append(MORE)
        return "{" + ", ".join([*members, *kept]) + "}"

    def _options(self, options: list[Any], depth: int) -> str:
        written = [
            self.type(option, depth + 1)
            for option in options[:MOST_VALUES]
            if not (isinstance(option, dict) and option.get("type") == "null")
        ]
        kept = list(dict.fromkeys(written))
        if len(kept) > MOST_VALUES // 2:
            self.is_cut = self.is_blind = True
            return "any"
        return "|".join(kept) or "null"

    def _values(self, values: list[Any]) -> str:
        shown = [_value(value) for value in values[: self._most_values]]
        if len(values) > self._most_values or not all(shown):
            self.is_cut = True
            shown = [each for each in shown if each] + [MORE]
        return "|".join(shown)

    def _default(self, schema: object) -> str:
        resolved = self._resolved(schema)
        if not isinstance(resolved, dict) or resolved.get("default") is None:
            return ""
        default = resolved["default"]
        if default == "" or not isinstance(default, str | int | float):
            return ""
        values = resolved.get("enum")
        if isinstance(values, list) and len(values) > 1:
            # The default alone would hide the other values.
            return ""
        return _value(default)

    def _resolved(self, schema: object) -> object:
        """Return the target of a schema's `$ref` within the document, or the schema itself."""
        for _ in range(DEEPEST):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            schema = self._target(schema["$ref"])
        return {}

    def _target(self, reference: str) -> object:
        if not reference.startswith("#/") or len(reference) > _LONGEST_REFERENCE:
            return {}
        found: object = self._root
        for part in reference[2:].split("/")[:8]:
            if not isinstance(found, dict):
                return {}
            found = found.get(part.replace("~1", "/").replace("~0", "~"), {})
        return found


def argument_name(name: str) -> str:
    """Return an argument's name on one line, in quotes if it is not a single word."""
    if len(name) <= MOST_NAME and _IS_NAME.fullmatch(name):
        return name
    return '"' + one_line(name[:MOST_NAME]).replace('"', "'") + '"'


def _value(value: object) -> str:
    """Return a value as JSON; empty if it is too long, or an object or a list."""
    if isinstance(value, str):
        if len(value) > MOST_VALUE or '"' in value:
            return ""
        return f'"{value}"' if one_line(value) == value else ""
    if value is None or isinstance(value, bool | int | float):
        written = msgspec.json.encode(value).decode()
        return written if len(written) <= MOST_VALUE else ""
    return ""
