"""Which arguments repeat a mistake, compared with a thousand that do not."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.adapters.mistake_checks import LARGEST_BYTES, MistakeChecks
from capd.core.memories.mistakes import checked_mistake, mistake_of
from capd_protos.types import MemorySpec, TapName


def memory(schema: Any, name: str = "m") -> MemorySpec:
    return MemorySpec(
        TapName("t"),
        name,
        "corrective",
        "no",
        tool="git:log",
        arguments=checked_mistake(schema),
        refuses=True,
    )


LABEL = memory(
    {
        "required": ["labels"],
        "properties": {"labels": {"type": "array", "contains": {"const": "area:goal"}}},
    }
)
GLOB = memory(mistake_of({"path": "/etc/*", "n": "3"}))


def repeated(arguments: Any, *memories: MemorySpec) -> MemorySpec | None:
    return MistakeChecks().repeated(memories, msgspec.json.encode(arguments))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["area:goal", "a", ""]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["labels", "label", "n"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(JSON)
def test_arguments_are_the_mistake_exactly_where_the_list_of_labels_has_it(arguments: Any) -> None:
    labels = arguments.get("labels") if isinstance(arguments, dict) else None
    is_wrong = isinstance(labels, list) and "area:goal" in labels

    found = repeated(arguments, LABEL)

    assert found == (LABEL if is_wrong else None)


@pytest.mark.parametrize(
    ("arguments", "is_wrong"),
    [
        ({"path": "/etc/passwd", "n": 3}, True),
        ({"path": "/etc/", "n": "3"}, True),
        ({"path": ["a", "/etc/x\ny"], "n": 3, "more": 1}, True),
        ({"path": "/etc/passwd"}, False),
        ({"path": "/etc", "n": 3}, False),
        ({"path": "x/etc/passwd", "n": 3}, False),
        ({"path": {"0": "/etc/passwd"}, "n": 3}, False),
        ({"path": "/etc/passwd", "n": 33}, False),
        ([], False),
        ("path", False),
    ],
)
def test_globs_match_texts_lists_of_texts_and_what_json_writes_so(
    arguments: Any, is_wrong: bool
) -> None:
    assert (repeated(arguments, GLOB) is GLOB) is is_wrong


def test_the_first_that_matches_is_the_one() -> None:
    other = memory({"required": ["labels"]}, "other")

    assert repeated({"labels": ["area:goal"]}, GLOB, other, LABEL) is other


@pytest.mark.parametrize("arguments", [b"", b"{", b'"\xff"', b"[" * 100_000, b"null"])
def test_what_is_no_object_is_nobodys_mistake(arguments: bytes) -> None:
    assert MistakeChecks().repeated([LABEL], arguments) is None


def test_a_document_is_handed_over_unread() -> None:
    arguments = msgspec.json.encode({"labels": ["area:goal"], "text": "x" * LARGEST_BYTES})

    assert MistakeChecks().repeated([LABEL], arguments) is None


def test_a_pattern_that_makes_other_engines_slow_is_answered_at_once() -> None:
    slow = memory(
        {"required": ["a"], "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    )

    assert repeated({"a": "a" * 50_000 + "b"}, slow) is None
