"""Truncated JSON values are completed to valid ones."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capd.core.results.compaction import close_json

TEXTS = st.text(max_size=20) | st.sampled_from(["\\u00", '"}]', "😀", "\\", '\\\\u00e9"', "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=15,
)


@settings(deadline=None)
@given(VALUES, st.booleans(), st.data())
@example({"a": "😀"}, True, None)
@example(["\\ud83d"], True, None)
def test_every_beginning_of_a_value_becomes_a_value(value: Any, is_ascii: bool, data: Any) -> None:
    try:
        whole = json.dumps([value], ensure_ascii=is_ascii).encode()
    except UnicodeEncodeError:
        return
    ends = range(1, len(whole) + 1) if data is None else [data.draw(st.integers(1, len(whole)))]

    for end in ends:
        got = json.loads(close_json(whole[:end]))

        assert isinstance(got, list)
        assert end < len(whole) or got == [value]


@pytest.mark.parametrize(
    ("beginning", "value"),
    [
        (
            b'{"content":[{"type":"text","text":"abc\\u00',
            b'{"content":[{"type":"text","text":"abc"}]}',
        ),
        (b'{"a":1,"b', b'{"a":1}'),
        (b'{"a":1,"b":', b'{"a":1}'),
        (b'{"a":12', b"{}"),
        (b'{"a":"x","b":[1,{"c":null,', b'{"a":"x","b":[1,{"c":null}]}'),
        ('["é'.encode()[:-1], b'[""]'),
        (b"", b""),
    ],
)
def test_what_is_whole_stays_and_a_text_keeps_its_beginning(beginning: bytes, value: bytes) -> None:
    assert close_json(beginning) == value
