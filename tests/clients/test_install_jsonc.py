"""JSON with comments: an added entry can be removed, and nothing else changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd_client.install.jsonc import JsoncError, parse
from capd_client.install.jsonc_edits import append, put, take

OURS = {"type": "stdio", "command": "/capd", "args": [], "alwaysLoad": True}

COMMENTED = """\
{
  // mine
  "theme": "dark", // keep
  "mcpServers": {
    /* the old one */
    "old": {"command": "x"} // still used
  }
}
"""


def test_a_member_is_put_behind_the_last_in_the_layout_of_its_neighbours() -> None:
    after = put(COMMENTED, ("mcpServers", "capd"), {"command": "y"})

    assert after == COMMENTED.replace(
        '"old": {"command": "x"} // still used\n',
        '"old": {"command": "x"}, // still used\n    "capd": {\n      "command": "y"\n    }\n',
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{\n  "a": 1\n}\n'),
        ("{}", '{\n  "a": 1\n}'),
        ("{\n}\n", '{\n  "a": 1\n}\n'),
        ("{\n\t// none\n}", '{\n\t// none\n  "a": 1\n}'),
        ('{"b":2}', '{"b":2,"a":1}'),
        ('{"b": 2}', '{"b": 2, "a": 1}'),
        ('{"b": 2,}', '{"b": 2, "a": 1,}'),
        ('{\r\n\t"b": 2\r\n}', '{\r\n\t"b": 2,\r\n\t"a": 1\r\n}'),
        ('{\n    "b": 2, // two\n}', '{\n    "b": 2, // two\n    "a": 1,\n}'),
        ('\ufeff{\n  "b": 2\n}\n', '\ufeff{\n  "b": 2,\n  "a": 1\n}\n'),
        ('{"a": 2, "a": 3}', '{"a": 2, "a": 1}'),
        ('{"a": true}', '{"a": 1}'),
    ],
)
def test_a_member_is_put_into_any_layout(text: str, expected: str) -> None:
    assert put(text, ("a",), 1) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', "{}"),
        ('{\n  "a": 1\n}', "{}"),
        ('{"a": 1, "b": 2}', '{"b": 2}'),
        ('{"b": 2, "a": 1}', '{"b": 2}'),
        ('{\n  "b": 2, // two\n  "a": 1\n}', '{\n  "b": 2 // two\n}'),
        ('{\n  "a": 1, // one\n  "b": 2\n}', '{\n  // one\n  "b": 2\n}'),
        ('{\n  "b": 2, // two\n  "a": 1 }', '{\n  "b": 2 // two\n }'),
        ('{\n  "a": 1 /* one */,\n  "b": 2\n}', '{\n  /* one */\n  "b": 2\n}'),
        ('{\n  // one\n  "a": 1,\n}', "{\n  // one\n}"),
        ('{"a": 1 // one\n, // two\n}', "{// one\n // two\n}"),
        ('{"b": 2}', '{"b": 2}'),
    ],
)
def test_a_member_is_taken_out_and_comments_stay(text: str, expected: str) -> None:
    assert take(text, ("a",)) == expected


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', 3, "',' or '}' was expected, not '\"'"),
        ('{\n  "a": \n}', 3, "a value was expected, not '}'"),
        ('{"a": 1', 1, "',' or '}' was expected, not the end of the file"),
        ("{a: 1}", 1, "a name in quotes or '}' was expected, not 'a'"),
        ('{"a" 1}', 1, "':' was expected behind 'a'"),
        ("{}\n\n{}", 3, "there is more after the end: '{'"),
        ("{\n/* ", 2, "a comment has no end"),
        ('{"a": 1.2.3}', 1, "1.2.3 is not a value"),
        ('{"a": "\n"}', 1, "a value was expected, not '\"'"),
        ("[" * 300, 1, "it is nested too deeply"),
    ],
)
def test_what_is_not_json_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(JsoncError) as refusal:
        parse(text)

    assert (refusal.value.line, str(refusal.value)) == (line, reason)


def test_a_list_where_an_object_must_be_is_refused() -> None:
    with pytest.raises(JsoncError, match="hooks is not an object"):
        put('{\n"hooks": []}', ("hooks", "Stop"), 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('a"\\/*,é\n', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), inner, max_size=3)
    ),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from(["a", "b", "mcpServers", "hooks"]), values, max_size=4)
gaps: st.SearchStrategy[str] = st.sampled_from(
    ["", " ", "\n", "\n  ", "\n\t", " // x, }\n", '/* " */', " /* { */ "]
)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw an object, and its text with spaces and comments anywhere."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            pairs = [
                f"{json.dumps(name)}{draw(gaps)}:{draw(gaps)}{written(each)}"
                for name, each in value.items()
            ]
            return "{" + joined(pairs) + "}"
        if isinstance(value, list):
            return "[" + joined([written(each) for each in value]) + "]"
        return json.dumps(value)

    def joined(parts: list[str]) -> str:
        text = ",".join(f"{draw(gaps)}{part}{draw(gaps)}" for part in parts)
        has_comma: bool = draw(st.booleans())
        return text + (f",{draw(gaps)}" if parts and has_comma else draw(gaps))

    value = draw(objects)
    return draw(gaps) + written(value) + draw(gaps), value


def comments(text: str) -> int:
    return text.count("// x") + text.count('/* " */') + text.count("/* { */")


@given(texts())
def test_a_text_is_read_as_what_was_written(drawn: tuple[str, dict[str, Any]]) -> None:
    text, value = drawn

    assert parse(text).value == value


@given(texts(), st.sampled_from([("capd",), ("capd", "x"), ("capd", "x", "y")]))
def test_what_is_put_in_is_there_and_the_rest_is_as_it_was(
    drawn: tuple[str, dict[str, Any]], path: tuple[str, ...]
) -> None:
    text, value = drawn
    added: Any = OURS
    for name in reversed(path):
        added = {name: added}

    after = put(text, path, OURS)

    assert parse(after).value == {**value, **added}
    assert comments(after) == comments(text)
    assert put(after, path, OURS) == after
    assert parse(take(after, path[:1])).value == value
    assert comments(take(after, path[:1])) == comments(text)


@given(texts(), st.data())
def test_any_member_can_be_taken_out_of_any_text(
    drawn: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    text, value = drawn
    name = data.draw(st.sampled_from([*value, "none"]))

    after = take(text, (name,))

    assert parse(after).value == {key: each for key, each in value.items() if key != name}


@given(texts(), values)
def test_an_item_is_appended_to_any_list(drawn: tuple[str, dict[str, Any]], item: Any) -> None:
    text, value = drawn
    lists = [name for name, each in value.items() if isinstance(each, list)]

    for name in lists:
        after = append(text, (name,), item)

        assert parse(after).value == {**value, name: [*value[name], item]}
        assert parse(take(after, (name, len(value[name])))).value == value
