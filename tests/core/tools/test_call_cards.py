"""A call card is one line from which a model can call a tool."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.tools.call_cards import (
    MORE,
    MOST_BRIEF,
    MOST_DESCRIPTION,
    MOST_REQUIRED,
    MOST_SIGNATURE,
    call_card,
    signature,
    summary,
)
from capd_protos.types import WireName

TEXT = {"type": "string"}


def schema(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required)}


def written(of: dict[str, Any]) -> str:
    return signature(of).text


def definition(**members: Any) -> bytes:
    return json.dumps({"name": "t", **members}).encode()


def test_a_card_has_the_name_the_arguments_and_the_first_sentence() -> None:
    log = definition(
        description="Shows the commit logs. Newest first.",
        inputSchema=schema(
            {"repo_path": TEXT},
            {
                "max_count": {"type": "integer", "default": 10},
                "start_timestamp": {"anyOf": [TEXT, {"type": "null"}], "default": None},
            },
        ),
    )

    card = call_card(WireName("git__git_log"), log)

    assert card.line == (
        "git__git_log(repo_path, max_count=10, start_timestamp?)  Shows the commit logs"
    )
    assert card.is_whole


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (TEXT, "a"),
        ({"type": "integer"}, "a: int"),
        ({"type": "boolean"}, "a: bool"),
        ({"enum": ["open", "closed"]}, 'a: "open"|"closed"'),
        ({"const": 3}, "a: 3"),
        ({"type": "array", "items": TEXT}, "a: [str]"),
        ({"type": "array"}, "a: [any]"),
        ({"type": ["string", "null"]}, "a"),
        ({"anyOf": [TEXT, {"type": "integer"}]}, "a: str|int"),
        ({"type": "object"}, "a: object"),
        (schema({"b": TEXT}, {"c": {"type": "integer"}}), "a: {b, c?: int}"),
        ({"type": "array", "items": schema({"b": TEXT})}, "a: [{b}]"),
        ({}, "a: any"),
        ({"$ref": "#/$defs/missing"}, "a: any"),
        ({"type": 7}, "a: any"),
        (True, "a: any"),
    ],
)
def test_a_required_argument_is_written_with_its_type(argument: Any, text: str) -> None:
    assert written(schema({"a": argument})) == text


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (TEXT, "a?"),
        ({"type": "integer"}, "a?: int"),
        ({"type": "integer", "default": 5}, "a=5"),
        ({"type": "boolean", "default": False}, "a=false"),
        ({"type": "string", "default": "main"}, 'a="main"'),
        ({"type": "string", "default": ""}, "a?"),
        ({"enum": ["x", "y"], "default": "x"}, 'a?: "x"|"y"'),
    ],
)
def test_an_optional_argument_is_written_with_its_default(argument: Any, text: str) -> None:
    assert written(schema({}, {"a": argument})) == text


@pytest.mark.parametrize(
    ("optional", "text"),
    [
        ({}, "path"),
        ({"tail": {"type": "number"}, "lines": {"type": "integer", "default": 3}}, None),
        ({f"some_long_option_{n}": TEXT for n in range(9)}, None),
    ],
)
def test_a_brief_card_has_its_options_by_their_names(
    optional: dict[str, Any], text: str | None
) -> None:
    card = call_card(WireName("s__t"), definition(inputSchema=schema({"path": TEXT}, optional)))

    named = f"path, {', '.join(f'{name}?' for name in optional)}"
    expected = text or named
    assert card.short_line == f"s__t({expected})" or card.short_line.endswith(f", {MORE})")
    assert len(card.brief) <= MOST_BRIEF + len(MORE) + 2


def test_a_reference_inside_the_schema_is_followed() -> None:
    tree = {**schema({"a": {"$ref": "#/$defs/Point"}}), "$defs": {"Point": schema({"x": TEXT})}}

    assert written(tree) == "a: {x}"


def test_a_long_signature_keeps_what_is_required_and_says_that_there_is_more() -> None:
    optional = {f"some_rather_long_option_{n}": TEXT for n in range(12)}

    got = signature(schema({"path": TEXT}, optional))

    assert got.text.startswith("path, some_rather_long_option_0?")
    assert got.text.endswith(MORE)
    assert len(got.text) <= MOST_SIGNATURE + len(MORE) + 2
    assert not got.is_whole
    assert got.is_callable


def test_a_list_of_values_that_is_too_long_says_so() -> None:
    got = signature(schema({"a": {"enum": [f"value {n}" for n in range(20)]}}))

    assert got.text.endswith((f"|{MORE}", f", {MORE}"))
    assert not got.is_whole


def test_nothing_to_pass_is_an_empty_pair_of_brackets() -> None:
    card = call_card(WireName("time__now"), definition(inputSchema={"type": "object"}))

    assert card.line == "time__now()"
    assert card.is_whole


@pytest.mark.parametrize(
    "bad", [b"", b"\xff", b"[]", b'{"inputSchema": 3}', b'{"inputSchema": {"properties": []}}']
)
def test_a_definition_that_cannot_be_read_has_its_name(bad: bytes) -> None:
    assert call_card(WireName("x__y"), bad).line == "x__y()"


@pytest.mark.parametrize(
    ("description", "text"),
    [
        ("Reads a file.", "Reads a file"),
        ("Reads a file (e.g. a.txt). Not more", "Reads a file (e.g. a.txt)"),
        ("Two\nlines\u2028here", "Two lines here"),
        (None, ""),
        ("x" * 500, "x" * MOST_DESCRIPTION + "…"),
    ],
)
def test_a_description_is_its_first_sentence_on_one_line(description: Any, text: str) -> None:
    assert summary(description) == text


def test_a_name_that_is_not_one_word_is_quoted() -> None:
    assert written(schema({'odd "name"': TEXT})) == "\"odd 'name'\""


def test_a_schema_that_refers_to_itself_ends() -> None:
    loop = {"$ref": "#/$defs/L"}
    lists = {"type": "array", "items": loop}
    tree = {**schema({"a": loop}), "$defs": {"L": lists}}

    got = signature(tree)

    assert got.text.startswith("a: [[")
    assert not got.is_whole


def test_a_schema_of_thousands_of_members_costs_a_bounded_number_of_steps() -> None:
    level: dict[str, Any] = TEXT
    for _ in range(6):
        level = schema({f"m{n}": level for n in range(30)})

    got = signature(level)

    assert len(got.text) <= MOST_REQUIRED + MOST_SIGNATURE
    assert not got.is_whole


class _Counting:
    """Counts how much of a large schema is read."""

    def __init__(self) -> None:
        self.read = 0

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.read += 1
            yield value

    def object(self, members: dict[str, Any]) -> dict[str, Any]:
        counter = self

        class Members(dict[str, Any]):
            def __iter__(self) -> Iterator[str]:
                return counter.each(super().__iter__())

        return Members(members)

    def list(self, values: list[Any]) -> list[Any]:
        counter = self

        class Values(list[Any]):
            def __iter__(self) -> Iterator[Any]:
                return counter.each(super().__iter__())

        return Values(values)


@pytest.mark.parametrize("part", ["types", "required", "properties"])
def test_a_large_part_that_is_named_hundreds_of_times_is_not_read_hundreds_of_times(
    part: str,
) -> None:
    counting = _Counting()
    large = {
        "types": {"type": counting.list(["string"] * 50_000)},
        "required": {"properties": {"a": TEXT}, "required": counting.list(["a"] * 50_000)},
        "properties": {"properties": counting.object({f"{n}": {} for n in range(50_000)})},
    }[part]
    fan = {"type": "object", "properties": {f"{n}": {"$ref": "#/$defs/large"} for n in range(24)}}
    arguments = {f"a{n}": {"$ref": "#/$defs/fan"} for n in range(24)}

    signature({"properties": arguments, "$defs": {"large": large, "fan": fan}})

    # 400 looks, at no more of the part than an object may show of itself.
    assert counting.read < 100_000


def test_a_type_that_is_none_of_json_schemas_is_not_written() -> None:
    of = schema({"a": {"type": ["x\n- bank__send(to)", "string", "array", "null"]}})

    assert written(of) == "a: any|str|array"


def test_what_is_required_is_written_wherever_it_stands() -> None:
    of = {"properties": {f"o{n}": {} for n in range(500)} | {"a": TEXT}, "required": ["a"]}

    assert written(of).startswith("a, ")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "required", "enum", "anyOf", "items", "default", "$ref", "a"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@given(_JSON)
def test_any_schema_gives_one_bounded_line(of: Any) -> None:
    card = call_card(WireName("s__t"), json.dumps({"inputSchema": of}).encode())

    assert len(card.line.splitlines()) == 1
    assert len(card.line) < 2 * MOST_REQUIRED + 2 * MOST_SIGNATURE
