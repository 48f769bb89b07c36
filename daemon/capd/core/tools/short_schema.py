"""Removes redundant members from a tool's input schema, for texts that a model reads.

Generators write a title for every property, which repeats its name, and one for the whole, which
repeats the tool's. Both are left out, and so is the dialect. Everything else stays, so a model
writes the same arguments as with the whole schema.
"""

from typing import Any

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Members whose own members are names, each with a schema."""
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_DEEPEST = 40
"""A schema below this level stays as it is."""


def short_schema(schema: object) -> object:
    """Return the schema of a tool's input, shortened."""
    if not isinstance(schema, dict):
        return schema
    left = {key: value for key, value in schema.items() if key not in {"title", "$schema"}}
    return _short(left, "", 0)


def _short(schema: object, name: str, depth: int) -> object:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return schema
    short: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str) and _folded(value) == _folded(name):
            continue
        if key in _NAMED and isinstance(value, dict):
            short[key] = {each: _short(value[each], each, depth + 1) for each in value}
        elif key in _SCHEMAS:
            short[key] = _short(value, "", depth + 1)
        elif key in _LISTS and isinstance(value, list):
            short[key] = [_short(each, "", depth + 1) for each in value]
        else:
            short[key] = value
    return short


def _folded(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())
