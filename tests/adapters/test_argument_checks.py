"""Arguments that cannot be valid are answered with the schema; all others are sent."""

import json
from typing import Any

import pytest

from capd.adapters.argument_checks import MOST_BYTES, ArgumentChecks
from capd.core.protocol.outcomes import NotSentError

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
        "kind": {"enum": ["file", "folder"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "when": {"type": "string", "format": "date", "pattern": "^\\d+$"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "level": {"type": "integer", "default": 3},
    },
    "required": ["path", "level"],
    "additionalProperties": False,
}


def definition(schema: Any) -> bytes:
    return json.dumps({"name": "s__t", "inputSchema": schema}).encode()


def wrong(arguments: Any, schema: Any = SCHEMA) -> str:
    """Return the first line of the error; empty if the call is sent."""
    written = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    try:
        ArgumentChecks().check("s__t", definition(schema), written)
    except NotSentError as error:
        return str(error).partition("\n")[0]
    return ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, '"path" is a required property'),
        ({"path": "a", "count": 0}, "count: 0 is less than the minimum of 1"),
        ({"path": "a", "kind": "link"}, 'kind: "link" is not one of "file" or "folder"'),
        ({"path": {"a": 1}}, 'path: {"a":1} is not of type "string"'),
        ({"path": "a", "tags": 5}, 'tags: 5 is not of type "array"'),
        ({"path": "a", "tags": ["x", "y", "z"]}, 'tags: ["x","y","z"] has more than 2 items'),
        ([], '[] is not of type "object"'),
    ],
)
def test_what_no_server_could_take_is_answered(arguments: Any, why: str) -> None:
    said = wrong(arguments)

    assert said == f"The arguments do not fit s__t, so the call was not sent: {why}."


@pytest.mark.parametrize(
    "more",
    [
        {"count": "5"},
        {"count": 5.0},
        {"path": 7},
        {"tags": '["x"]'},
        {"tags": None},
        {"kind": "FILE"},
        {"when": "tomorrow"},
        {"maybe": "5"},
        {"unknown": True},
        {"level": None},
    ],
)
def test_what_a_server_may_read_in_its_own_way_is_passed_on(more: dict[str, Any]) -> None:
    assert wrong({"path": "a", **more}) == ""


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://example.invalid/dialect", "required": ["a"]},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"type": "nothing"},
        {"properties": {"a": {"pattern": "(?<=x)y"}}, "required": ["a"]},
        "no schema",
        None,
    ],
)
def test_a_schema_that_cannot_be_used_here_is_no_obstacle(schema: Any) -> None:
    assert wrong({}, schema) == ""


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ({"type": "integer", "default": 3}, ""),
        ({"$ref": "#/$defs/more", "title": "level"}, ""),
        ({"type": "integer"}, '"level" is a required property'),
        ({"$ref": "#/$defs/level"}, '"level" is a required property'),
    ],
)
def test_a_default_counts_also_where_a_required_argument_only_refers_to_it(
    definition: Any, why: str
) -> None:
    schema = {
        "properties": {"level": {"$ref": "#/$defs/level"}},
        "required": ["level"],
        "$defs": {"level": definition, "more": {"default": 3}},
    }

    said = wrong({}, schema)

    assert (
        said.removeprefix("The arguments do not fit s__t, so the call was not sent: ").removesuffix(
            "."
        )
        == why
    )


def test_a_pattern_that_would_backtrack_for_ages_costs_nothing() -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}

    assert wrong({"a": "a" * 40_000 + "!"}, schema) == ""


@pytest.mark.parametrize("arguments", [b"[" * 3000, b"\xff", b'{"path":' + b"9" * 5000 + b"}"])
def test_arguments_that_cannot_be_read_are_left_to_the_server(arguments: bytes) -> None:
    assert wrong(arguments) == ""


def test_a_document_that_is_handed_over_is_not_looked_at() -> None:
    assert wrong({"text": "x" * MOST_BYTES}) == ""


def test_the_answer_has_the_schema_so_that_the_next_try_works() -> None:
    with pytest.raises(NotSentError) as raised:
        ArgumentChecks().check("s__t", definition(SCHEMA), b"{}")

    assert json.loads(str(raised.value).partition("Its schema: ")[2]) == SCHEMA


def test_another_definition_of_the_same_tool_is_checked_by_its_own_schema() -> None:
    checks = ArgumentChecks()
    checks.check("s__t", definition({"type": "object"}), b"{}")

    with pytest.raises(NotSentError):
        checks.check("s__t", definition({"required": ["a"]}), b"{}")
