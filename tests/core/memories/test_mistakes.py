"""The schema of a mistake: what it may contain, and that correct calls never match it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.memories.mistakes import DEEPEST, MistakeError, checked_mistake, mistake_of

LABELS = {"type": "array", "contains": {"const": "area:goal"}}


def test_a_schema_that_says_all_it_means_is_taken_as_it_is() -> None:
    schema = {"required": ["labels"], "properties": {"labels": LABELS}}

    taken = checked_mistake(schema)

    assert msgspec.json.decode(taken) == schema


def of(value: Any) -> dict[str, Any]:
    return {"required": ["a"], "properties": {"a": value}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ([], "`arguments` is not a JSON Schema"),
        ({}, "`arguments` is not a JSON Schema"),
        ({"properties": {"a": {"const": 1}}}, "`arguments` requires no argument"),
        ({"required": ["b"], "properties": {"a": {}}}, "`arguments` names `a` and would match"),
        (of({"contains": {"const": 1}}), "`arguments.a` has `contains`, which is true of all"),
        (of({"pattern": "x"}), "`arguments.a` has `pattern`, which is true of all that is no str"),
        (
            of({"minimum": 3}),
            "`arguments.a` has `minimum`, which is true of all that is no number",
        ),
        (of({"required": ["b"]}), "`arguments.a` has `required`, which is true of all that is no"),
        (of({"anyOf": [{"pattern": "x"}]}), "`arguments.a.anyOf` has `pattern`"),
        (of({"not": {"minLength": 3}}), "`arguments.a.not` has `minLength`"),
        (of({"$ref": "#"}), "`arguments.a` has `$ref`, which a memory's schema cannot have"),
        (of({"format": "uri"}), "`arguments.a` has `format`, which a memory's schema cannot have"),
        (of(3), "`arguments.a` is not a schema"),
        (of({"allOf": 3}), "`arguments.a.allOf` is not a list"),
        ({"required": ["a"], "properties": 3}, "`arguments` has properties that are not a table"),
        (of({"const": "x" * 9000}), "`arguments` is larger than 8 KiB"),
    ],
)
def test_a_schema_that_would_match_more_than_it_says_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(MistakeError) as refused:
        checked_mistake(schema)

    assert str(refused.value).startswith(reason)


def test_a_schema_has_a_depth_that_it_may_not_exceed() -> None:
    schema: dict[str, Any] = {"const": 1}
    for _ in range(DEEPEST):
        schema = {"not": schema}

    with pytest.raises(MistakeError, match="nested more than 16 levels"):
        checked_mistake(of(schema))


@settings(deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=40), min_size=1, max_size=8)
)
def test_patterns_of_any_kind_make_a_schema_that_is_taken(patterns: dict[str, str]) -> None:
    schema = mistake_of(patterns)

    assert msgspec.json.decode(checked_mistake(schema)) == schema
