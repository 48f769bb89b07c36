"""YAML: an added entry can be removed, and nothing else changes."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from capd_client.install.plain_data import with_value
from capd_client.install.yaml_edits import append, put, take
from capd_client.install.yaml_tree import YamlError, compose, value_of
from support.examples import examples

OURS = {"type": "stdio", "cmd": "/capd", "args": [], "enabled": True}


def read(text: str) -> Any:
    return value_of(compose(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a:\n  b: 1\n"),
        ("# none\n", "# none\na:\n  b: 1\n"),
        ("x: 1", "x: 1\na:\n  b: 1"),
        ("a:\n", "a:\n  b: 1\n"),
        ("a:\n# none\nx: 1\n", "a:\n  b: 1\n# none\nx: 1\n"),
        ("a: {}\n", "a: {b: 1}\n"),
        ("a: {c: 2} # two\n", "a: {c: 2, b: 1} # two\n"),
        ("a: ~\n", 'a: {"b": 1}\n'),
        ("a:\n    c: 2\n\n# x\nx: 1\n", "a:\n    c: 2\n    b: 1\n\n# x\nx: 1\n"),
        ("a:\n  c: |\n    t\n\nx: 1\n", "a:\n  c: |\n    t\n\n  b: 1\nx: 1\n"),
        ("x: &x 1\na:\n  c: *x\ny: 2\n", "x: &x 1\na:\n  c: *x\n  b: 1\ny: 2\n"),
        ("\ufeffa:\r\n  c: 2\r\n", "\ufeffa:\r\n  c: 2\r\n  b: 1\r\n"),
        ("---\na:\n  c: 2\n...\n", "---\na:\n  c: 2\n  b: 1\n...\n"),
        ("a:\n  b: 2 # two\n", "a:\n  b: 1 # two\n"),
        ("a:\n  b: [2,\n    3]\n  c: 1\n", "a:\n  b: 1\n  c: 1\n"),
        ("a:\n  b:\n  - 2\n  c: 1\n", "a:\n  c: 1\n  b: 1\n"),
        ("a:\n  b:\n  c: 1\n", "a:\n  b: 1\n  c: 1\n"),
        ("a: {b: 2, b: 3}\n", "a: {b: 2, b: 1}\n"),
    ],
)
def test_a_member_is_put_into_any_layout(text: str, expected: str) -> None:
    assert put(text, ("a", "b"), 1) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\n", ""),
        ("b: 2\na: 1", "b: 2"),
        ("b: 2 # two\na:\n  c: 1\n  # within\n  d: 1\n# behind\n", "b: 2 # two\n# behind\n"),
        ("{a: 1, b: 2}", "{b: 2}"),
        ("{b: 2, a: 1}", "{b: 2}"),
        ("{b: 2, a: {c: [1]}, }", "{b: 2, }"),
        ("{a: 1}", "{}"),
        ("b: 2\n", "b: 2\n"),
    ],
)
def test_a_member_is_taken_out_and_comments_stay(text: str, expected: str) -> None:
    assert take(text, ("a",)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "l:\n- a: 1\n  b: 2\n"),
        ("l:\n- x\n", "l:\n- x\n- a: 1\n  b: 2\n"),
        (
            "l:\n  -   x: 1\n      y: 2 # y\nz: 1\n",
            "l:\n  -   x: 1\n      y: 2 # y\n  -   a: 1\n      b: 2\nz: 1\n",
        ),
        ("l: []\n", 'l: [{"a": 1, "b": 2}]\n'),
        ("l: [x, # one\n  y]\n", 'l: [x, # one\n  y, {"a": 1, "b": 2}]\n'),
    ],
)
def test_an_item_is_appended_and_taken_out_again(text: str, expected: str) -> None:
    after = append(text, ("l",), {"a": 1, "b": 2})

    assert after == expected
    assert not text or take(after, ("l", len(read(text)["l"]))) == text


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: [\n", 2, "expected the node content, but found '<stream end>'"),
        ("a: 1\n---\nb: 1\n", 2, "but found another document"),
        ("a: 1\n\tb: 1\n", 2, "found character '\\t' that cannot start any token"),
        ("a: x\n", 1, "a is not a map"),
        ("b: 1\na: [1]\n", 2, "a is not a map"),
        ("- 1\n", 1, "the whole is not a map"),
        ("a: &a {b: {c: *a}}\n", 1, "it is nested too deeply"),
        ("x: \x00", 1, "unacceptable character #x0000: special characters are not allowed"),
        ("[" * 3000, 1, "it is nested too deeply"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(YamlError) as refusal:
        put(text, ("a", "b"), 1)

    assert (refusal.value.line, str(refusal.value)) == (line, reason)


def test_a_few_lines_that_stand_for_more_than_memory_holds_are_refused() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 12)]

    with pytest.raises(YamlError, match="it is too large"):
        put("\n".join(lines), ("a", "b"), 1)


def test_what_would_change_the_meaning_is_refused() -> None:
    # Without a line end the text is "x"; with one behind it, "x" and a line end.
    with pytest.raises(YamlError, match="cannot be changed safely"):
        put("a:\n  c: |\n    x", ("a", "b"), 1)


names = st.sampled_from(["a", "b", "extensions", "with space", "x: y", "é"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["x", "", "yes", "# no", "a: b", "- x", "two\nlines\n", "${{ s.X }}", "1.0"])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


def dumped(data: Any, flow: bool | None, indent: int) -> str:
    text: str = yaml.safe_dump(
        data, default_flow_style=flow, indent=indent, allow_unicode=True, width=1000
    )
    return text


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a map, and its text in some layout with comments between its members."""
    data = draw(st.dictionaries(names, values, max_size=4))
    flow = draw(st.sampled_from([False, None, True]))
    indent = draw(st.sampled_from([2, 4]))
    parts = [dumped({key: value}, flow, indent) for key, value in data.items()]
    # A map of leaves alone is one line in curly braces, of which there can be but one.
    if flow or any(part.startswith("{") for part in parts):
        parts = [dumped(data, flow, indent)]
    gaps = st.sampled_from(["", "# x\n", "\n", "   # x\n\n"])
    return draw(gaps) + "".join(part + draw(gaps) for part in parts), data


@settings(max_examples=examples(40))
@given(texts(), st.sampled_from([("capd",), ("capd", "x"), ("extensions", "capd")]))
def test_what_is_put_in_is_there_and_the_rest_is_as_it_was(
    drawn: tuple[str, dict[str, Any]], path: tuple[str, ...]
) -> None:
    text, data = drawn
    if data.get(path[0]) is not None and not isinstance(data[path[0]], dict):
        return

    after = put(text, path, OURS)

    assert read(after) == with_value(read(text), path, OURS)
    assert yaml.safe_load(after) == with_value(data, path, OURS)
    assert after.count("# x") == text.count("# x")
    assert put(after, path, OURS) == after
    if len(path) == 1 and text.strip():
        assert take(after, path) == text


@settings(max_examples=examples(40))
@given(texts(), st.data())
def test_any_member_can_be_taken_out_of_any_text(
    drawn: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    text, value = drawn
    name = data.draw(st.sampled_from([*value, "none"]))

    after = take(text, (name,))

    assert (yaml.safe_load(after) or {}) == {
        key: each for key, each in value.items() if key != name
    }
    assert after.count("# x") == text.count("# x")


@settings(max_examples=examples(40))
@given(texts(), values)
def test_any_value_can_be_put_over_any_other(drawn: tuple[str, dict[str, Any]], value: Any) -> None:
    text, data = drawn

    for name in data:
        after = put(text, (name,), value)

        assert yaml.safe_load(after) == {**data, name: value}
