"""Tells whether an output schema always allows a result to be cut, from the schema alone.

A cut result must satisfy its tool's output schema. If no short enough value does, the structured
content is left out; clients treat such a result as a failure unless they never saw the schema. So
this must be known before the schema is shown. The estimate is how much of any value the schema
forbids to cut. A keyword that cannot be estimated forbids all cuts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from capd_protos.codec import JsonCodec, MalformedError

ROOM = 1_000
"""Characters that a cut always has, even with the smallest limit of a result."""
_VALUE = 4
"""The least size of any value: quotes or brackets, and what is around it."""
_DEEPEST = 8
_MOST_LOOKED_AT = 5_000
"""Parts of a schema, counted for each reference to them: a server wrote the schema."""
_MARK = b"outputSchema"
_SAYS_NOTHING = frozenset(
    (
        *("title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs"),
        *("definitions", "deprecated", "readOnly", "writeOnly", "format", "nullable", "type"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("maxLength", "maxItems", "maxProperties", "uniqueItems", "additionalProperties"),
        *("contentMediaType", "contentEncoding"),
    )
)

Schema = Mapping[str, Any] | bool


class _Definition(msgspec.Struct):
    outputSchema: dict[str, Any] | None = None  # noqa: N815 - the protocol's name


_DEFINITION: JsonCodec[_Definition] = JsonCodec(_Definition)


def promises_too_much(definition: bytes) -> bool:
    """Tell whether a tool has an output schema that may forbid cutting its results."""
    if _MARK not in definition:
        return False
    try:
        schema = _DEFINITION.decode(definition).outputSchema
    except MalformedError:
        return True
    return schema is not None and not allows_cuts(schema)


def allows_cuts(schema: Schema) -> bool:
    """Tell whether every value of `schema` can certainly be cut to `ROOM`."""
    return _Least(schema).of(schema, 0) <= ROOM


class _Least:
    """An upper bound of the part of its values that one schema forbids to cut."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_LOOKED_AT

    def of(self, schema: Any, depth: int) -> float:
        self._left -= 1
        if isinstance(schema, bool):
            return _VALUE
        if not isinstance(schema, Mapping) or depth > _DEEPEST or self._left < 0:
            return math.inf
        return _VALUE + sum(self._asked(key, schema, depth) for key in schema)

    def _asked(self, keyword: str, schema: Mapping[str, Any], depth: int) -> float:
        if keyword in _SAYS_NOTHING or keyword.startswith("x-"):
            return 0.0
        asked = _KEYWORDS.get(keyword)
        return math.inf if asked is None else asked(self, schema[keyword], schema, depth)

    def required(self, names: Any, _schema: Mapping[str, Any], _: int) -> float:
        if not isinstance(names, Sequence):
            return math.inf
        return float(sum(len(str(name)) + _VALUE for name in names))

    def properties(self, properties: Any, _schema: Mapping[str, Any], depth: int) -> float:
        if not isinstance(properties, Mapping):
            return math.inf
        # Optional members count too: if the value has one, it is cut and not left out.
        return sum(self.of(each, depth + 1) - _VALUE for each in properties.values())

    def items(self, items: Any, schema: Mapping[str, Any], depth: int) -> float:
        least = schema.get("minItems", 0)
        if not isinstance(least, int):
            return math.inf
        return max(_number(least), 1.0) * self.of(items, depth + 1)

    def least_items(self, least: Any, schema: Mapping[str, Any], _: int) -> float:
        return 0.0 if "items" in schema else _number(least) * _VALUE

    def least_length(self, least: Any, _schema: Mapping[str, Any], _: int) -> float:
        return _number(least)

    def least_members(self, least: Any, _schema: Mapping[str, Any], _: int) -> float:
        return _number(least) * _VALUE

    def value(self, value: Any, _schema: Mapping[str, Any], _: int) -> float:
        return len(msgspec.json.encode(value))

    def values(self, values: Any, _schema: Mapping[str, Any], _: int) -> float:
        is_list = isinstance(values, Sequence) and len(values)
        return max(len(msgspec.json.encode(each)) for each in values) if is_list else math.inf

    def one_of_many(self, schemas: Any, _schema: Mapping[str, Any], depth: int) -> float:
        is_list = isinstance(schemas, Sequence) and len(schemas)
        return max(self.of(each, depth + 1) for each in schemas) if is_list else math.inf

    def all_of_many(self, schemas: Any, _schema: Mapping[str, Any], depth: int) -> float:
        is_list = isinstance(schemas, Sequence)
        return sum(self.of(each, depth + 1) for each in schemas) if is_list else math.inf

    def reference(self, pointer: Any, _schema: Mapping[str, Any], depth: int) -> float:
        found: Any = self._root
        parts = str(pointer).split("/")
        if parts[0] != "#":
            return math.inf
        for part in parts[1:]:
            if not isinstance(found, Mapping) or part not in found:
                return math.inf
            found = found[part]
        return self.of(found, depth + 1)


def _number(value: Any) -> float:
    """Return a bound of a schema, which may be a number that no float holds."""
    if not isinstance(value, int | float) or value > ROOM:
        return math.inf
    return float(max(value, 0.0))


_KEYWORDS: Mapping[str, Callable[[_Least, Any, Mapping[str, Any], int], float]] = {
    "properties": _Least.properties,
    "required": _Least.required,
    "items": _Least.items,
    "minItems": _Least.least_items,
    "minLength": _Least.least_length,
    "minProperties": _Least.least_members,
    "const": _Least.value,
    "enum": _Least.values,
    "anyOf": _Least.one_of_many,
    "allOf": _Least.all_of_many,
    "$ref": _Least.reference,
}
