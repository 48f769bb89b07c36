"""What the ends of a line reveal agrees with the whole line."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capd.core.results.json_container import ContainerCheck
from capd.core.results.line_ends import LineEnds, line_ends
from capd_protos.codec import MalformedError

# Texts that look like what is around them.
TEXTS = st.text(st.sampled_from('ab"\\{}[],: \n/é😀'), max_size=40) | st.sampled_from(
    ['"},"id":9}', '","result":{}', "\\", '\\"', "]}", ',"id":1}', '{"id":9,"result":{}}']
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)
CONTAINERS = st.lists(VALUES, max_size=4) | st.dictionaries(TEXTS, VALUES, max_size=4)
IDS = st.integers() | TEXTS
LAYOUTS = st.sampled_from([(",", ":"), (", ", " : "), (" ,\t", ":\r")])


def written(members: list[tuple[str, Any]], layout: tuple[str, str], *, is_ascii: bool) -> bytes:
    """Return an object of these members, of which two may have one name."""
    comma, colon = layout
    parts = [
        json.dumps(name) + colon + json.dumps(value, ensure_ascii=is_ascii, separators=layout)
        for name, value in members
    ]
    return ("{" + comma.join(parts) + "}").encode()


def told(line: bytes, window: int) -> LineEnds | None:
    return line_ends(line[:window], line[-window:])


def value_in(line: bytes, ends: LineEnds) -> bytes:
    return line[ends.start : len(line) - ends.after]


def is_one_container(data: bytes, piece_bytes: int = 3) -> bool:
    check = ContainerCheck()
    try:
        for at in range(0, len(data), piece_bytes):
            check.feed(data[at : at + piece_bytes])
        check.end()
    except MalformedError:
        return False
    return True


@st.composite
def responses(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """A response: its result or error, an id, and other members that a server may add."""
    members: list[tuple[str, Any]] = [
        ("jsonrpc", "2.0"),
        ("id", draw(IDS)),
        (draw(st.sampled_from(["result", "error"])), draw(CONTAINERS)),
        *draw(st.lists(st.tuples(st.sampled_from(["id", "x", "_meta"]), SCALARS), max_size=3)),
    ]
    return list(draw(st.permutations(members)))


@given(responses(), LAYOUTS, st.booleans(), st.integers(0, 3))
@example([("result", {"a": "\\"}), ("id", "\\"), ("x", '"')], (",", ":"), True, 0)
@example([("id", 0), ("result", []), ("id", 0.0)], (",", ":"), True, 0)
@example([("id", 1), ("result", {"b": '"},"id":2}'}), ("x", "],")], (",", ":"), True, 0)
def test_the_ends_of_a_response_tell_what_the_whole_of_it_tells(
    members: list[tuple[str, Any]], layout: tuple[str, str], is_ascii: bool, blanks: int
) -> None:
    line = b" " * blanks + written(members, layout, is_ascii=is_ascii) + b"\r" * blanks
    parsed = json.loads(line)
    (large,) = [name for name, value in members if isinstance(value, dict | list)]

    ends = told(line, len(line))

    assert ends is not None
    value = parsed.pop(large)
    assert (ends.scalars, ends.large) == (parsed, large)
    assert json.loads(value_in(line, ends)) == value
    wanted = parsed["id"]
    assert ends.id == (wanted if type(wanted) in {int, float, str} else None)
    assert ends.is_result == (large == "result" and "id" in parsed)
    assert is_one_container(value_in(line, ends))


@given(responses(), LAYOUTS, st.integers(1, 120))
def test_a_narrow_look_tells_the_same_or_nothing(
    members: list[tuple[str, Any]], layout: tuple[str, str], window: int
) -> None:
    line = written(members, layout, is_ascii=True)

    ends = told(line, window)

    assert ends is None or not is_one_container(value_in(line, ends)) or ends == told(line, 10_000)


@st.composite
def objects(draw: st.DrawFn) -> list[tuple[str, Any]]:
    names = st.sampled_from(["jsonrpc", "id", "method", "result", "error", "params", "x"])
    return draw(st.lists(st.tuples(names, VALUES), max_size=6))


@given(objects(), LAYOUTS)
@example([("result", {}), ("id", 99), ("x", {})], (",", ":"))
@example([("id", 1), ("result", []), ("result", [])], (",", ":"))
def test_of_any_object_one_value_is_told_or_none(
    members: list[tuple[str, Any]], layout: tuple[str, str]
) -> None:
    line = written(members, layout, is_ascii=True)
    containers = [name for name, value in members if isinstance(value, dict | list)]

    ends = told(line, len(line))
    is_told = ends is not None and is_one_container(value_in(line, ends))

    assert is_told == (len(containers) == 1)
    if ends is not None and is_told:
        parsed = json.loads(line)
        large = containers[0]
        assert ends.large == large
        value = json.loads(value_in(line, ends))
        assert {**parsed, large: value} == {**ends.scalars, large: value}


@pytest.mark.parametrize(
    ("line", "is_result"),
    [
        (b'{"id":1,"result":{}}', True),
        (b'{"id":1,"error":null,"result":{}}', True),
        (b'{"result":{},"jsonrpc":"2.0","id":1}', True),
        (b'{"id":1,"error":{}}', False),
        (b'{"id":1,"error":"x","result":{}}', False),
        (b'{"id":1,"method":"x","params":{}}', False),
        (b'{"id":1,"method":"x","result":{}}', False),
        (b'{"method":"x","params":{}}', False),
        (b'{"result":{}}', False),
        (b'{"id":1,"result":{},"result":1}', False),
    ],
)
def test_a_response_with_a_result_is_told_from_everything_else(
    line: bytes, is_result: bool
) -> None:
    ends = told(line, len(line))

    assert ends is not None
    assert ends.is_result is is_result


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b"}",
        b'"{}"',
        b'{"id":1}',
        b'{"id":1,"result":"x"}',
        b'{"id":1,"result":{}',
        b'{"id":1 "result":{}}',
        b'{"id":1,,"result":{}}',
        b'{"id":1,"result":{}"x":1}',
        b'{"id":1,"result":{},"x"}',
        b'{"id":1,"result":{},:1}',
        b'{"id":1,"result":{},"x":}',
        b'{"id":1,"result":{},"x":1,}',
        b'{"id":nan,"result":{}}',
        b'{"\xff":1,"result":{}}',
        b'{"\xff":{}}',
        b'{"id":1,"result":{},"x":"\xff"}',
    ],
)
def test_what_is_no_such_object_is_told_as_nothing(line: bytes) -> None:
    assert told(line, len(line)) is None
