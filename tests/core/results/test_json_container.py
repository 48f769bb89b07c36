"""Recognising exactly one JSON container, however its bytes are split."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.results.json_container import ContainerCheck
from capd_protos.codec import MalformedError

TEXTS = st.text(st.sampled_from('ab"\\{}[],: \n/é😀'), max_size=30)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)
CONTAINERS = st.lists(VALUES, max_size=4) | st.dictionaries(TEXTS, VALUES, max_size=4)


def checked(data: bytes, piece_bytes: int) -> ContainerCheck:
    """Return what the check found in `data`, which it got in pieces."""
    check = ContainerCheck()
    for at in range(0, len(data), piece_bytes):
        check.feed(data[at : at + piece_bytes])
    check.end()
    return check


def look(data: bytes, piece_bytes: int) -> str:
    """Return the error in `data`."""
    try:
        checked(data, piece_bytes)
    except MalformedError as error:
        return str(error)
    return ""


@given(CONTAINERS, st.booleans(), st.integers(1, 20))
def test_a_container_passes_however_it_is_cut(value: Any, is_ascii: bool, piece_bytes: int) -> None:
    data = json.dumps(value, ensure_ascii=is_ascii).encode()

    assert look(data, piece_bytes) == ""


@given(CONTAINERS, st.data(), st.integers(1, 20))
def test_a_part_of_a_container_does_not(value: Any, data: st.DataObject, piece_bytes: int) -> None:
    whole = json.dumps(value, ensure_ascii=False).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))

    assert look(whole[:cut], piece_bytes) in {"cut off", "not valid UTF-8"}


@given(CONTAINERS, TEXTS, CONTAINERS, st.integers(1, 20))
def test_two_containers_do_not_whatever_is_between_them(
    first: Any, name: str, second: Any, piece_bytes: int
) -> None:
    between = "," + json.dumps(name) + ":"
    data = (json.dumps(first) + between + json.dumps(second)).encode()

    assert look(data, piece_bytes) == "more than one value"


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "cut off"),
        (b"1", "cut off"),
        (b"]", "more than one value"),
        (b"{}}", "more than one value"),
        (b'["\xff"]', "not valid UTF-8"),
        (b'["\xed\xa0\x80"]', "not valid UTF-8"),
        (b'["\xc3', "cut off"),
        (b'["a\\"]', "cut off"),
        (b'["a\\\\"]', ""),
        (b'["a\\\\\\"]', "cut off"),
        (b'["a\\\\\\""]', ""),
        ('["é"]'.encode(), ""),
    ],
)
def test_what_is_wrong_is_told(data: bytes, problem: str, piece_bytes: int) -> None:
    assert look(data, piece_bytes) == problem


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 30, 1000])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"x":[1,{}],"inputRequests":{}}', True),
        (b'{"inputRequests":{}}', True),
        (b'{"i\\u006eputReque\\u0073ts" : {}}', True),
        (b'{"x":"%s","inputRequests":{}}' % (b"y" * 500), True),
        (b'{"x":{"inputRequests":{}},"y":[["inputRequests"]]}', False),
        (b'{"x":"a \\"inputRequests\\": b","inputRequest":1,"\\u0061":"%s"}' % (b"z" * 100), False),
    ],
)
def test_questions_to_the_client_are_found_however_they_are_written(
    data: bytes, piece_bytes: int, *, expected: bool
) -> None:
    assert checked(data, piece_bytes).has_questions is expected


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"x":[],"_meta":{"a":1,"capd/outcome":"not_sent"}}', True),
        (b'{"_meta":{"c\\u0061pd\\/retriable":true}}', True),
        (b'{"capd/x":1,"content":[{"type":"text","text":"capd/x"}]}', False),
        (b'{"_meta":{"server.capd/x":1,"y":{"capd/x":1}}}', False),
    ],
)
def test_keys_that_only_capd_writes_are_found(
    data: bytes, piece_bytes: int, *, expected: bool
) -> None:
    assert checked(data, piece_bytes).has_own_keys is expected
