"""Writes tools as typed Python functions, which scripts call and are type-checked against.

    server "git", tool "git_log"   ->   git.log(*, repo_path: str, max_count: int = 10) -> Any

Each server is a module, and each of its tools is a function of the module. The function's name is
the tool's name without the server's name in front. Arguments have the types of the input schema.
The return type is that of the output schema, or `Any` without one.

Strangers wrote the schemas and descriptions, so no part of them becomes code: names that are not
identifiers are left out or replaced, values are written with `repr`, and everything has a size
limit.
"""

import keyword
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd.core.tools.call_cards import summary
from capd_protos.types import WireName

MOST_ARGUMENTS = 40
MOST_MEMBERS = 60
"""The most members of one type that is made from an output schema."""
MOST_VALUES = 12
DEEPEST = 4
MOST_STEPS = 300
MOST_NAME = 60
MOST_STUB_CHARACTERS = 24_000
"""The most characters of stubs in one answer, about 6,000 tokens."""
MOST_REFERENCES = 4

CALL = "__call__"
"""The one function that the sandbox gets from outside. Every call of a tool goes through it."""

EXCEPTIONS: Mapping[str, str] = {
    "ToolError": "decimal.Clamped",
    "NotSent": "decimal.Rounded",
    "Refused": "decimal.Inexact",
    "OutcomeUnknown": "decimal.Subnormal",
}
"""The built-in exception of the sandbox that stands for each exception of a script.

In this interpreter a script cannot define exception classes, and code outside can raise only
built-in exceptions. These four have no other use in a script, and no common base but
`ArithmeticError`.
"""

_TYPING = "Any, Literal, NotRequired, TypedDict"
COMMON_STUBS = "\n".join(
    [
        "from typing import Any",
        *(f"class {name}(Exception): ..." for name in EXCEPTIONS),
        "inputs: dict[str, Any]",
        f"async def {CALL}(tool: str, arguments: dict[str, Any]) -> Any: ...",
    ]
)
"""Declarations for every script, whatever tools it calls."""

_IS_IDENTIFIER = lazy_pattern(r"[A-Za-z][A-Za-z0-9_]*")
_NO_IDENTIFIER = lazy_pattern(r"[^A-Za-z0-9_]+")
_REFERENCE = lazy_pattern(
    r"\b([A-Za-z][A-Za-z0-9_]{0,59})\s*\.\s*([A-Za-z][A-Za-z0-9_]{0,99})\s*\("
)
_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
# `name = ...` at the start of a line; `for name, other in`; `as name`. Each is bounded in its work.
_BINDING = lazy_pattern(
    r"(?m)^[ \t]*[A-Za-z_]\w{0,99}[ \t]*=(?!=)"
    r"|\bfor[ \t]{1,8}[\w, \t()]{1,200}?[ \t]in\b"
    r"|\bas[ \t]{1,8}\w{1,99}"
)
_TAKEN = frozenset(
    {*EXCEPTIONS, "asyncio", "decimal", "inputs", "json", "math", "re", "datetime", "time", "str"}
    | {"dict", "list", "int", "float", "bool", "print", "sys", "os", "random", "itertools"}
)
"""Names that a script may use for something else, and that no server's module gets."""
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """The function by which a script calls one tool."""

    module: str
    function: str
    wire_name: WireName
    definition: bytes

    @property
    def name(self) -> str:
        """The function's name in a script."""
        return f"{self.module}.{self.function}"


def tool_function(
    server: str, tool: str, wire_name: WireName, definition: bytes, taken: Iterable[str] = ()
) -> ToolFunction:
    """Return the Python function by which scripts call a tool.

    `taken` are the names of other functions in its module.
    """
    module = identifier(server)
    if module in _TAKEN or keyword.iskeyword(module):
        module += "_"
    whole = identifier(tool)
    short = whole.removeprefix(f"{identifier(server)}_")
    function = short if _IS_IDENTIFIER.fullmatch(short) and not keyword.iskeyword(short) else whole
    if keyword.iskeyword(function):
        function += "_"
    if function in taken:
        function = whole if whole not in taken else identifier(wire_name)
    return ToolFunction(module, function, wire_name, definition)


def tool_functions(
    tools: Iterable[tuple[str, str, WireName, bytes]], called: Collection[tuple[str, str]] = ()
) -> list[ToolFunction]:
    """Return the Python functions by which scripts call `tools`.

    Each tool is (server, tool, wire name, definition). A wire name is the name under which clients
    know a tool. `called` are the (module, function) names in a script. A tool `git_log` of the
    server `git` has the function `git.log`, and `git.git_log` as well if the script calls that:
    call cards show the wire name `git__git_log`.
    """
    taken: dict[str, set[str]] = {}
    found: list[ToolFunction] = []
    for server, tool, wire_name, definition in tools:
        module = tool_function(server, tool, wire_name, b"").module
        names = taken.setdefault(module, set())
        function = tool_function(server, tool, wire_name, definition, names)
        if function.function not in names:
            names.add(function.function)
            found.append(function)
        whole = identifier(tool)
        if (module, whole) in called and whole not in names:
            names.add(whole)
            found.append(replace(function, function=whole))
    return found


def identifier(name: str) -> str:
    """Return a name as a valid Python identifier."""
    written = _NO_IDENTIFIER.sub("_", name[:MOST_NAME]).strip("_") or "tool"
    return written if _IS_IDENTIFIER.fullmatch(written) else f"t_{written}"


def references(code: str, most: int) -> list[tuple[str, str]]:
    """Return every `module.function(` that a script contains, each once, at most `most`."""
    found: dict[tuple[str, str], None] = {}
    for match in _REFERENCE.finditer(code):
        found.setdefault((match[1], match[2]))
        if len(found) >= most:
            break
    return list(found)


def bound_names(code: str) -> frozenset[str]:
    """Return the names in a script that do not stand for a server's module.

    They are the names that the script assigns, and those in `_TAKEN`, such as `json`. A call like
    `name.method()` on such a name is no call of a tool.
    """
    found = {name for match in _BINDING.finditer(code) for name in _NAME.findall(match[0])}
    return frozenset(found | _TAKEN)


def checking_stubs(functions: Sequence[ToolFunction]) -> str:
    """Return the declarations of `functions` against which a script is type-checked.

    The checker reads `COMMON_STUBS`, these declarations and the script. They are never run.
    """
    lines = [f"from typing import {_TYPING}"]
    for module, group in _by_module(functions).items():
        written = [_Function(each) for each in group]
        lines += [line for each in written for line in each.types]
        lines.append(f"class _{module}:")
        lines += [f"    {each.declared}" for each in written]
        # Without a declared type, because a script may assign the name to something else.
        lines.append(f"{module} = _{module}()")
    # A script must not use these names without importing them.
    lines.append(f"del {_TYPING}")
    return "\n".join(lines) + "\n"


def prelude(functions: Sequence[ToolFunction]) -> str:
    """Return the code that runs before a script: it defines its modules and exceptions."""
    lines = ["import decimal"]
    lines += [f"{name} = {inside}" for name, inside in EXCEPTIONS.items()]
    for module, group in _by_module(functions).items():
        lines.append(f"class _{module}:")
        for each in group:
            lines.append(f"    async def {each.function}(self, **arguments):")
            lines.append(f"        return await {CALL}({str(each.wire_name)!r}, arguments)")
        lines.append(f"{module} = _{module}()")
    return "\n".join(lines) + "\n"


def described_stubs(
    functions: Sequence[ToolFunction], most: int = MOST_STUB_CHARACTERS
) -> tuple[str, int]:
    """Return the declarations of `functions` for a model, and how many did not fit.

    They have at most `most` characters.
    """
    parts: list[str] = []
    room, left_out = most, 0
    for module, group in _by_module(functions).items():
        lines: list[str] = []
        for each in group:
            written = _Function(each)
            block = "\n".join([*written.types, *written.described])
            if room - len(block) < 0:
                left_out += 1
                continue
            room -= len(block)
            lines.append(block)
        if lines:
            parts.append(f"# {module}\n" + "\n".join(lines))
    return "\n".join(parts), left_out


def _by_module(functions: Sequence[ToolFunction]) -> dict[str, list[ToolFunction]]:
    groups: dict[str, list[ToolFunction]] = {}
    for each in functions:
        groups.setdefault(each.module, []).append(each)
    return groups


class _Function:
    """Builds the Python declaration of one tool's function."""

    def __init__(self, function: ToolFunction) -> None:
        members = _members(function.definition)
        base = f"{function.module}_{function.function}".title().replace("_", "")
        writer = _TypeWriter(f"{base}Result")
        output = members.get("outputSchema")
        returned = writer.written(output) if isinstance(output, dict) else "Any"
        self.types = writer.classes
        arguments = _arguments(members.get("inputSchema"))
        signature = f"({', '.join(['self', *arguments])}) -> {returned}"
        self.declared = f"async def {function.function}{signature}: ..."
        shown = ", ".join(arguments[1:] if arguments[:1] == ["*"] else arguments)
        self.described = [f"async def {function.name}({shown}) -> {returned}"]
        if text := summary(members.get("description"), 100):
            self.described.append(f"    {_quoted(text)}")


def _arguments(schema: object) -> list[str]:
    """Return a function's parameters for a JSON Schema of arguments; `*` precedes named ones."""
    if not isinstance(schema, dict):
        return []
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        # Without `properties` the schema says nothing about arguments, so all are accepted.
        is_free = schema.get("additionalProperties", "properties" not in schema)
        return ["**more: Any"] if is_free else []
    listed = schema.get("required")
    wanted = {each for each in listed if isinstance(each, str)} if isinstance(listed, list) else ()
    writer = _TypeWriter("", schema)
    required: list[str] = []
    optional: list[str] = []
    is_open = bool(schema.get("additionalProperties"))
    for name, each in list(properties.items())[:MOST_ARGUMENTS]:
        if not _can_be_named(name):
            # A script passes such an argument as **{"max-count": 1}.
            is_open = True
            continue
        type_ = writer.written(each)
        if name in wanted:
            required.append(f"{name}: {type_}")
        else:
            optional.append(f"{name}: {type_} = {_default(each)}")
    is_open = is_open or len(properties) > MOST_ARGUMENTS
    more = ["**more: Any"] if is_open else []
    return ["*", *required, *optional, *more] if required or optional else more


def _can_be_named(name: str) -> bool:
    is_name = bool(_IS_IDENTIFIER.fullmatch(name)) and len(name) <= MOST_NAME
    return is_name and not keyword.iskeyword(name) and name != "self"


def _default(schema: object) -> str:
    default = schema.get("default") if isinstance(schema, dict) else None
    if isinstance(default, bool | int) or (isinstance(default, float) and isfinite(default)):
        return repr(default)
    return repr(default) if isinstance(default, str) and len(default) <= MOST_NAME else "..."


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "/").replace('"', "'")
    return f'"""{escaped}"""'


def _members(definition: bytes) -> dict[str, Any]:
    try:
        read = msgspec.json.decode(definition)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


class _TypeWriter:
    """Writes a JSON Schema as Python types.

    With a `base`, objects become classes of their own, whose names begin with it.
    """

    def __init__(self, base: str, root: dict[str, Any] | None = None) -> None:
        self._base = base
        self._root = root
        self._steps = 0
        self.classes: list[str] = []

    def written(self, schema: object, name: str = "", depth: int = 0) -> str:
        """Return a JSON Schema as a Python type.

        `name` is put into the names of its classes, and `depth` is how deeply the schema is nested.
        """
        if self._root is None:
            self._root = schema if isinstance(schema, dict) else {}
        self._steps += 1
        found = self._resolved(schema)
        if not isinstance(found, dict) or self._steps > MOST_STEPS or depth > DEEPEST:
            return "Any"
        if literal := _literal(found):
            return literal
        for key in ("anyOf", "oneOf"):
            options = found.get(key)
            if isinstance(options, list) and options:
                return self._union(options, name, depth)
        kind = found.get("type")
        if isinstance(kind, list):
            return self._union([{**found, "type": each} for each in kind], name, depth)
        if kind == "array":
            return f"list[{self.written(found.get('items', {}), name + 'Item', depth + 1)}]"
        if kind == "object" or "properties" in found:
            return self._object(found, name, depth)
        return _SIMPLE.get(kind, "Any") if isinstance(kind, str) else "Any"

    def _union(self, options: list[Any], name: str, depth: int) -> str:
        if len(options) > MOST_VALUES:
            return "Any"
        written = [self.written(each, name, depth + 1) for each in options]
        return "Any" if "Any" in written else " | ".join(dict.fromkeys(written)) or "Any"

    def _object(self, schema: dict[str, Any], name: str, depth: int) -> str:
        properties = schema.get("properties")
        if not self._base or not isinstance(properties, dict) or not properties:
            return "dict[str, Any]"
        if len(properties) > MOST_MEMBERS or not all(_can_be_named(each) for each in properties):
            return "dict[str, Any]"
        listed = schema.get("required")
        wanted = listed if isinstance(listed, list) else []
        members = []
        for key, each in properties.items():
            type_ = self.written(each, name + key.title().replace("_", ""), depth + 1)
            members.append(f"{key}: {type_ if key in wanted else f'NotRequired[{type_}]'}")
        class_name = self._base + name
        self.classes.append(f"class {class_name}(TypedDict):")
        self.classes += [f"    {each}" for each in members]
        return class_name

    def _resolved(self, schema: object) -> object:
        for _ in range(MOST_REFERENCES):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            schema = self._target(schema["$ref"])
        return {}

    def _target(self, reference: str) -> object:
        found: object = self._root
        if not reference.startswith("#/"):
            return {}
        for part in reference[2:].split("/")[:8]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key, {}) if isinstance(found, dict) else {}
        return found


def _literal(schema: dict[str, Any]) -> str:
    values = schema.get("enum")
    if "const" in schema:
        values = [schema["const"]]
    if not isinstance(values, list) or not 0 < len(values) <= MOST_VALUES:
        return ""
    is_plain = all(
        isinstance(each, bool | int | str | None) and len(str(each)) <= MOST_NAME for each in values
    )
    return f"Literal[{', '.join(repr(each) for each in values)}]" if is_plain else ""
