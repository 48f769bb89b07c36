"""Titles that repeat a name are removed from schemas, and nothing else."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.tools.short_schema import short_schema

NAMES = st.sampled_from(["title", "repo_path", "items", "properties"])
LEAVES = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer"])},
    optional={"title": st.sampled_from(["Repo Path", "Title", "A boat"])},
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
        optional={"title": st.just("Items"), "required": st.lists(NAMES, unique=True)},
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        ({"title": "logArguments", "type": "object"}, {"type": "object"}),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, {}),
        (
            {"properties": {"repo_path": {"title": "Repo Path", "type": "string"}}},
            {"properties": {"repo_path": {"type": "string"}}},
        ),
        (
            {"properties": {"at": {"title": "ISO 8601", "type": "string"}}},
            {"properties": {"at": {"title": "ISO 8601", "type": "string"}}},
        ),
        (
            {"properties": {"title": {"title": "Title", "type": "string"}}},
            {"properties": {"title": {"type": "string"}}},
        ),
        (
            {"properties": {"a": {"default": {"title": "a"}, "enum": [{"title": "a"}]}}},
            {"properties": {"a": {"default": {"title": "a"}, "enum": [{"title": "a"}]}}},
        ),
        (
            {"$defs": {"Key": {"title": "Key", "items": {"properties": {"b": {"title": "B"}}}}}},
            {"$defs": {"Key": {"items": {"properties": {"b": {}}}}}},
        ),
        (
            {"properties": True, "anyOf": 3, "items": [1]},
            {"properties": True, "anyOf": 3, "items": [1]},
        ),
        (True, True),
    ],
)
def test_a_title_that_is_the_name_again_goes(whole: object, short: object) -> None:
    assert short_schema(whole) == short


@given(SCHEMAS, VALUES)
def test_the_same_arguments_fit(schema: dict[str, Any], value: Any) -> None:
    short = short_schema(schema)

    assert isinstance(short, dict)
    assert jsonschema.Draft202012Validator(short).is_valid(value) == (
        jsonschema.Draft202012Validator(schema).is_valid(value)
    )


def test_a_schema_of_any_depth_is_shortened() -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"items": deep}

    short = short_schema(deep)

    assert isinstance(short, dict)
