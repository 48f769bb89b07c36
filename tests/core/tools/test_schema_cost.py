"""The cost of checking a schema is estimated by counting."""

from typing import Any

import pytest

from capd.core.tools.schema_cost import MOST_PATTERN_WORK, SchemaCost, depth_of, pattern_work

PART = {"properties": {"n": {"$ref": "#/$defs/a"}}}
TWICE = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [PART, {**PART, "required": ["y"]}]}}}
ONCE = {"$ref": "#/$defs/a", "$defs": {"a": PART}}
TREE = {"properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"n": value}
    return value


@pytest.mark.parametrize(
    ("schema", "levels", "is_bounded"),
    [
        (TWICE, 4, True),
        (TWICE, 14, False),
        (TREE, 5000, True),
        ({"$ref": "http://elsewhere"}, 5000, True),
        ({"anyOf": [{"$ref": "#"}, {"items": {"$ref": "#"}}]}, 20, False),
    ],
)
def test_a_schema_that_branches_at_each_level_is_for_shallow_values(
    schema: dict[str, Any], levels: int, is_bounded: bool
) -> None:
    value = nested(levels)

    assert depth_of(value) == levels
    assert SchemaCost(schema).is_bounded(value) is is_bounded


@pytest.mark.parametrize(
    ("pattern", "work"),
    [
        ("abc", 3),
        ("a{3}", 3),
        ("(ab){10}c", 21),
        (r"((\w{100}){100}){5}", 500_000),
        ("[a]{2,4}", 40),
        ("a{", 2),
        (")(", 1),
    ],
)
def test_a_pattern_is_as_long_as_written_out(pattern: str, work: int) -> None:
    assert pattern_work(pattern) == work


def test_dear_patterns_are_not_compiled_and_ordinary_ones_are() -> None:
    uuid = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

    assert SchemaCost({"properties": {"id": {"pattern": uuid}}}).is_compiled
    assert not SchemaCost({"pattern": r"(\pL{50}){100}"}).is_compiled
    assert not SchemaCost({"patternProperties": {"x" * (MOST_PATTERN_WORK + 1): {}}}).is_compiled
