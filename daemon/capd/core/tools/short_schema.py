"""Removes redundant members from a tool's input schema, for texts that a model reads.

Schema generators write a title for every property, which repeats its name, and one for the whole
schema, which repeats the tool's name. Both are removed, and so is `$schema`. All other members
stay, so a model writes the same arguments as with the whole schema.
"""

from typing import Any

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Members whose value has a schema for each name."""
_SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_DEEPEST = 40
"""Schemas below this level of nesting stay as they are."""


def short_schema(schema: object) -> object:
    """Return a tool's decoded input schema without redundant members, such as titles."""
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
