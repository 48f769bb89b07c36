"""Which output schemas certainly permit shortened results."""

import json
from typing import Any

import pytest

from capd.core.results.cut_schemas import allows_cuts, promises_too_much


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


ROWS = {"type": "array", "items": of(id={"type": "integer"}, text={"type": "string"})}
TREE = {"$defs": {"n": of(next={"$ref": "#/$defs/n"})}, "$ref": "#/$defs/n"}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        of(rows=ROWS),
        of(rows=ROWS | {"minItems": 3}),
        of(**{f"member_{n}": {"type": "string", "title": "T"} for n in range(40)}),
        of(kind={"enum": ["open", "closed"]}, at={"type": "string", "format": "date-time"}),
        of(result={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}),
        of(name={"type": "string", "minLength": 1, "maxLength": 9}),
        {"$defs": {"r": ROWS}, "properties": {"rows": {"$ref": "#/$defs/r"}}},
        {"type": "object", "additionalProperties": {"type": "string"}, "x-order": 1},
    ],
)
def test_an_ordinary_schema_allows_cuts(schema: Any) -> None:
    assert allows_cuts(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"rows": ROWS | {"minItems": 500}}},
        {"properties": {"rows": {"type": "array", "minItems": 500}}},
        of(rows={"type": "array", "items": of(text={"minLength": 300}), "minItems": 4}),
        of(text={"type": "string", "minLength": 5000}),
        of(text={"pattern": "^https://"}),
        of(text={"const": "x" * 2000}),
        {"minProperties": 1000},
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"allOf": [{}, {"contains": {}}]},
        {"patternProperties": {"^x": {}}},
        {"$ref": "https://example.org/other.json"},
        {"$ref": "#/$defs/missing"},
        TREE,
        {"required": 5},
        {"properties": []},
        {"anyOf": []},
        {"minItems": "many"},
        {"heard-of-by-nobody": 1},
    ],
)
def test_a_schema_that_may_keep_too_much_allows_none(schema: Any) -> None:
    assert not allows_cuts(schema)


def test_a_schema_that_multiplies_itself_is_given_up() -> None:
    defs: dict[str, Any] = {"d0": {}}
    for n in range(1, 8):
        defs[f"d{n}"] = {"anyOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 40}

    assert not allows_cuts({"$defs": defs, "$ref": "#/$defs/d7"})


@pytest.mark.parametrize(
    ("definition", "is_too_much"),
    [
        ({"name": "t"}, False),
        ({"name": "t", "outputSchema": of(rows=ROWS)}, False),
        ({"name": "t", "outputSchema": {"minLength": 9999}}, True),
        ({"name": "t", "outputSchema": {"minLength": 10**400}}, True),
        ({"name": "t", "outputSchema": {"minItems": 10**400}}, True),
        ({"name": "t", "outputSchema": of(a={"minItems": 10**400, "items": {}})}, True),
        ({"name": "t", "outputSchema": {"minLength": -(10**400)}}, False),
        ({"name": "t", "outputSchema": of(a={"minLength": -9999}, b={"const": "x" * 2000})}, True),
        ({"name": "t", "outputSchema": 5}, True),
        ({"name": "outputSchema"}, False),
    ],
)
def test_a_definition_is_looked_at_where_it_has_a_schema(
    definition: dict[str, Any], *, is_too_much: bool
) -> None:
    assert promises_too_much(json.dumps(definition).encode()) is is_too_much
