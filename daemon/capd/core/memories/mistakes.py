"""The JSON Schema that describes a mistake: a memory corrects calls whose arguments match it.

The schema is in a subset of JSON Schema 2020-12, without references and formats, so that checks are
fast. In JSON Schema most keywords also accept values that they do not describe: `properties`
accepts an object without any of them, and `pattern` accepts every number. A memory would then
refuse correct calls. So each part of the schema must require its properties, and name the type to
which its keywords apply.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from capd.core.errors import CapdError

LARGEST_BYTES = 8 * 1024
DEEPEST = 16
_ANY = r"[\s\S]"
"""The pattern for any character, line breaks included."""

_OF_TYPES: Mapping[str, tuple[str, ...]] = {
    "object": (
        *("properties", "required", "patternProperties", "additionalProperties"),
        *("propertyNames", "minProperties", "maxProperties", "dependentRequired"),
    ),
    "array": (
        *("items", "prefixItems", "contains", "minContains", "maxContains"),
        *("minItems", "maxItems", "uniqueItems"),
    ),
    "string": ("pattern", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = ("not", "if", "then", "else", "items", "contains", "additionalProperties")
_NAMED = ("properties", "patternProperties")
_KNOWN = frozenset(
    {
        *(each for group in _OF_TYPES.values() for each in group),
        *_LISTS,
        *_SINGLE,
        *("type", "enum", "const", "title", "description", "$comment"),
    }
)


class MistakeError(CapdError):
    """A JSON Schema by which a memory recognises wrong calls is invalid.

    The text says where and why.
    """


def checked_mistake(schema: object) -> bytes:
    """Return the schema of a mistake as JSON.

    Raises:
        MistakeError: the schema is not valid, or would match calls that it does not describe.
    """
    if not isinstance(schema, dict) or not schema:
        raise MistakeError("`arguments` is not a JSON Schema: write a table with `required`")
    try:
        encoded = msgspec.json.encode(schema, order="sorted")
    # TOML has types that JSON lacks, and the value may be nested too deeply to be encoded.
    except (TypeError, ValueError, RecursionError):
        raise MistakeError("`arguments` contains a value that JSON cannot express") from None
    if len(encoded) > LARGEST_BYTES:
        raise MistakeError(f"`arguments` is larger than {LARGEST_BYTES // 1024} KiB")
    if not _names(schema.get("required")):
        raise MistakeError(
            "`arguments` requires no argument, so that every call would match: add `required`"
        )
    _check(schema, "arguments", DEEPEST, is_call=True)
    return encoded


def mistake_of(patterns: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON Schema of calls whose arguments match all `patterns`.

    `patterns` are globs by argument name. A list matches if one of its texts does. A number, a
    boolean or null matches if the glob is its JSON.
    """
    return {
        "required": list(patterns),
        "properties": {name: _value_of(glob) for name, glob in patterns.items()},
    }


def _value_of(glob: str) -> dict[str, Any]:
    text = {"type": "string", "pattern": _expression(glob)}
    forms: list[dict[str, Any]] = [text, {"type": "array", "contains": text}]
    # A glob that is valid JSON, such as `0` or `true`, may mean that value.
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        forms.append({"const": msgspec.json.decode(glob)})
    return {"anyOf": forms}


def _expression(glob: str) -> str:
    # Python's own translation has `\Z` and atomic groups, which other engines do not read. It also
    # has the flag `(?s:...)`, but patterns of JSON Schema have no flags: jsonschema-rs 0.61 ignores
    # it, so the glob would not match a text with a line break.
    wildcards = {"*": rf"{_ANY}*", "?": _ANY}
    return f"^{''.join(wildcards.get(part) or re.escape(part) for part in _parts(glob))}$"


def _parts(glob: str) -> list[str]:
    return re.findall(r"[*?]|[^*?]+", glob)


def _check(schema: object, path: str, depth: int, *, is_call: bool = False) -> None:
    """Raise MistakeError if `schema`, or a schema in it, may not be used to recognise a mistake.

    `path` says where the schema is, for the error. `depth` is the number of levels that it may
    have. `is_call` says that the schema describes the object of all arguments of a call.
    """
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise MistakeError(f"`{path}` is not a schema: write a table, `true` or `false`")
    if depth == 0:
        raise MistakeError(f"`{path}` is nested more than {DEEPEST} levels deep")
    unknown = sorted(key for key in schema if key not in _KNOWN)
    if unknown:
        raise MistakeError(f"`{path}` has `{unknown[0]}`, which a memory's schema cannot have")
    _check_types(schema, path, is_call=is_call)
    required = _names(schema.get("required"))
    for name in _table(schema.get("properties"), path):
        if name not in required:
            raise MistakeError(
                f"`{path}` names `{name}` and would match without it: add it to `required`"
            )
    for inner, inner_path, is_same in _inner(schema, path):
        _check(inner, inner_path, depth - 1, is_call=is_call and is_same)


def _check_types(schema: Mapping[str, Any], path: str, *, is_call: bool) -> None:
    types = schema.get("type")
    named = set(_names([types] if isinstance(types, str) else types))
    if "integer" in named:
        named.add("number")
    # The arguments of a call are always an object, so `type` is not required here.
    if is_call:
        named.add("object")
    for type_, keywords in _OF_TYPES.items():
        used = next((each for each in keywords if each in schema), None)
        if used is not None and type_ not in named:
            raise MistakeError(
                f"`{path}` has `{used}`, which is true of all that is no {type_}: "
                f'add `type = "{type_}"`'
            )


def _inner(schema: Mapping[str, Any], path: str) -> Iterator[tuple[object, str, bool]]:
    """Yield each schema inside `schema`, with its path.

    The last value of each tuple tells whether the inner schema applies to the same value as
    `schema`.
    """
    for key in _NAMED:
        for name, inner in _table(schema.get(key), path).items():
            yield inner, f"{path}.{name}", False
    for key in _LISTS:
        listed = schema.get(key, [])
        if not isinstance(listed, list):
            raise MistakeError(f"`{path}.{key}` is not a list")
        for each in listed:
            yield each, f"{path}.{key}", key != "prefixItems"
    for key in _SINGLE:
        if key in schema:
            yield schema[key], f"{path}.{key}", key in {"not", "if", "then", "else"}


def _table(value: object, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MistakeError(f"`{path}` has properties that are not a table")
    return value


def _names(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
