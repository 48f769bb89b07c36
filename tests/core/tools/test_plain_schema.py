"""A schema check that reports a fit only if it is certain."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.tools.plain_schema import surely_fits

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "title": "search",
    "properties": {
        "path": {"type": "string", "description": "where"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"enum": ["file", "folder"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "either": {"type": ["boolean", "string"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"count": 1},
        {"count": 9},
        {"kind": "file"},
        {"tags": []},
        {"tags": ["a", "b"]},
        {"maybe": None},
        {"maybe": 1.5},
        {"either": True},
        {"either": "yes"},
    ],
)
def test_what_most_tools_take_surely_fits(more: dict[str, Any]) -> None:
    assert surely_fits(SCHEMA, {"path": "a", **more})


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        {"path": 5},
        {"path": "a", "count": 0},
        {"path": "a", "count": 10},
        {"path": "a", "count": True},
        {"path": "a", "count": 5.0},
        {"path": "a", "kind": "link"},
        {"path": "a", "tags": ["a", 1]},
        {"path": "a", "maybe": "1"},
        {"path": "a", "either": 1},
        {"path": "a", "unknown": 1},
    ],
)
def test_what_does_not_fit_or_is_not_certain_is_left_to_the_library(value: Any) -> None:
    assert not surely_fits(SCHEMA, value)


@pytest.mark.parametrize(
    "schema",
    [
        False,
        None,
        "no schema",
        {"$ref": "#/$defs/a"},
        {"pattern": "a+"},
        {"type": "nothing"},
        {"type": 5},
        {"required": True},
        {"required": [5]},
        {"properties": []},
        {"properties": {"a": {"const": 5}}},
        {"additionalProperties": {"type": "string"}},
        {"minimum": "1"},
        {"maximum": True},
        {"allOf": [{"type": "string"}]},
    ],
)
def test_a_keyword_that_is_not_known_makes_nothing_certain(schema: Any) -> None:
    assert not surely_fits(schema, {"a": 1})


def test_many_choices_for_many_items_are_not_tried_to_the_end() -> None:
    choices = [{"type": "null"}] * 1000
    schema = {"type": "array", "items": {"anyOf": [*choices, {"type": "integer"}]}}

    assert surely_fits(schema, [1])
    assert not surely_fits(schema, [1] * 1000)


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from("ab")
NAMES = st.sampled_from("ab")
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner),
)
TYPES = st.sampled_from(["object", "array", "string", "boolean", "integer", "number", "null"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "enum": st.lists(SCALARS, min_size=1, max_size=3),
            "minimum": st.integers(-3, 3),
            "maximum": st.floats(-3, 3),
            "required": st.lists(NAMES, unique=True),
            "properties": st.dictionaries(NAMES, inner),
            "additionalProperties": st.booleans(),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "const": SCALARS,
        },
    )


@settings(deadline=None)
@given(st.recursive(schemas(st.booleans()), schemas, max_leaves=6), VALUES)
def test_the_library_never_refuses_what_surely_fits(schema: Any, value: Any) -> None:
    if surely_fits(schema, value):
        assert jsonschema_rs.validator_for(schema).is_valid(value)
