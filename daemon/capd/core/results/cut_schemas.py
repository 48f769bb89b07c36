"""Tells from an output schema alone whether every result of the tool can be shortened.

A shortened result must still satisfy its tool's output schema. If no short value does, the
structured content is left out, and a client that has seen the schema then treats the result as a
failure. So capd decides before it lists a tool whether to show its schema. For this it estimates
how many characters a value must keep to satisfy the schema. If a schema has a keyword that capd
does not know, capd assumes that the schema allows no cut.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from capd_protos.codec import JsonCodec, MalformedError

ROOM = 1_000
"""The characters that are always available for structured content, even with the smallest limit."""
_VALUE = 4
"""The fewest characters of any value: its quotes or brackets, and the punctuation around it."""
_DEEPEST = 8
_MOST_LOOKED_AT = 5_000
"""How many subschemas are examined, because strangers write schemas. One counts as often as it is
referred to."""
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


def output_schema(definition: bytes) -> dict[str, Any] | None:
    """Return the output schema in a tool's definition; None if it has none.

    Raises:
        MalformedError: the definition or its output schema is not an object.
    """
    return _DEFINITION.decode(definition).outputSchema if _MARK in definition else None


def promises_too_much(definition: bytes) -> bool:
    """Tell whether a tool's output schema may forbid shortening a result; False without one."""
    try:
        schema = output_schema(definition)
    except MalformedError:
        return True
    return schema is not None and not allows_cuts(schema)


def allows_cuts(schema: Schema) -> bool:
    """Tell whether every value that satisfies `schema` can be cut to `ROOM` characters."""
    return _Least(schema).of(schema, 0) <= ROOM


class _Least:
    """Estimates, never too low, how many characters a value must keep to satisfy a schema."""

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
        # Optional properties count as well: if a value has one, it is cut and never left out.
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
    """Return a number in a schema as a float; infinity if it is too large, or no number."""
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
