"""Lessons from failed calls have only plain differences of arguments, and never a secret."""

from typing import Any

import msgspec
import pytest

from capd.core.memories.lessons import LONGEST_VALUE, MOST_FAILED, Failures, Lesson, Lessons
from capd.core.memories.mistakes import checked_mistake
from capd_protos.types import ServerName, ToolName

GIT, LOG = ServerName("git"), ToolName("log")


def encoded(arguments: Any) -> bytes:
    return msgspec.json.encode(arguments)


def lessons(wrong: Any, right: Any) -> list[Lesson]:
    failures = Failures()
    failures.failed(GIT, LOG, encoded(wrong))
    return failures.worked(GIT, LOG, encoded(right))


@pytest.mark.parametrize(
    ("wrong", "right", "content", "schema"),
    [
        (
            {"n": 1, "label": "a"},
            {"n": 1, "label": "b"},
            '`label` = "a" failed; "b" worked.',
            {"required": ["label"], "properties": {"label": {"const": "a"}}},
        ),
        (
            {"n": True},
            {"n": 1},
            "`n` = true failed; 1 worked.",
            {"required": ["n"], "properties": {"n": {"const": True}}},
        ),
        (
            {"labels": ["a", "b"]},
            {"labels": ["b"]},
            '`labels` = ["a","b"] failed; ["b"] worked.',
            {
                "required": ["labels"],
                "properties": {
                    "labels": {
                        "type": "array",
                        "allOf": [{"type": "array", "contains": {"const": "a"}}],
                    }
                },
            },
        ),
        (
            {"page": 0},
            {},
            "`page` = 0 failed; without `page` it worked.",
            {"required": ["page"], "properties": {"page": {"const": 0}}},
        ),
        ({}, {"page": 1}, "It failed without `page` and worked with 1.", None),
    ],
)
def test_a_lesson_is_what_differs(
    wrong: Any, right: Any, content: str, schema: dict[str, Any] | None
) -> None:
    (lesson,) = lessons(wrong, right)

    assert lesson.content == content
    assert (msgspec.json.decode(lesson.schema) if lesson.schema else None) == schema
    if lesson.schema:
        assert checked_mistake(msgspec.json.decode(lesson.schema)) == lesson.schema


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, {"a": 2, "b": 2, "c": 2, "d": 2}),
        ({"text": "x" * (LONGEST_VALUE + 1)}, {"text": "short"}),
        ({"text": "short"}, {"text": "x" * (LONGEST_VALUE + 1)}),
        ({"nested": {"a": 1}}, {"nested": {"a": 2}}),
        ({"key": "ghp_0123456789abcdefghijABCDEFGHIJ012345"}, {"key": "b"}),
        ({"text": "two\nlines"}, {"text": "one"}),
        ([1], [2]),
    ],
)
def test_what_is_not_plain_or_too_much_teaches_nothing(wrong: Any, right: Any) -> None:
    assert lessons(wrong, right) == []


def test_only_calls_of_the_same_tool_that_failed_before_are_compared_and_each_once() -> None:
    failures = Failures()
    failures.failed(GIT, LOG, encoded({"a": 1}))
    failures.failed(ServerName("other"), LOG, encoded({"a": 1}))

    found = [failures.worked(GIT, LOG, encoded({"a": 2})) for _ in range(2)]

    assert [len(each) for each in found] == [1, 0]


def test_of_many_failed_calls_the_last_ones_are_kept() -> None:
    failures = Failures()
    for number in range(MOST_FAILED + 1):
        failures.failed(GIT, LOG, encoded({"a": number}))

    found = failures.worked(GIT, LOG, encoded({"a": -1}))

    assert len(found) == MOST_FAILED
    assert found[0].content == "`a` = 1 failed; -1 worked."


def test_the_most_frequent_lesson_is_proposed_first() -> None:
    once, twice = Lesson(GIT, LOG, "once"), Lesson(GIT, LOG, "twice")
    learned = Lessons()
    for lesson in (twice, once, twice):
        learned.learned(lesson)

    assert learned.proposals() == [(twice, 2), (once, 1)]
