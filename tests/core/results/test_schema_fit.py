"""Shortened structured content still satisfies its output schema."""

import json
from typing import Any

import jsonschema
import pytest

from capd.adapters.output_schemas import objections_of
from capd.core.results.schema_fit import NOTE, fitted

ROWS = [{"id": f"id-{n:04}-" + "x" * 60, "kind": "b" * 50, "text": "word " * 60} for n in range(60)]
WHOLE: dict[str, Any] = {"rows": ROWS, "title": "t" * 400, "next": "https://x.example/" + "p" * 80}


def fit(schema: dict[str, Any], room: int = 6000) -> Any:
    definition = json.dumps({"name": "t", "outputSchema": schema}).encode()
    objections = objections_of(definition)
    assert objections is not None
    cut = fitted(json.dumps(WHOLE).encode(), room, objections, b'{"handle":"r"}')
    if cut is None:
        return None
    assert len(cut.data) <= room
    value = json.loads(cut.data)
    jsonschema.validate(value, schema)
    return value


def of_rows(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"rows": {"type": "array", **keywords}}}


def of_items(**properties: Any) -> dict[str, Any]:
    return of_rows(items={"properties": properties, "required": list(properties)})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "required": ["rows", "title", "next"]},
        of_rows(minItems=10),
        of_items(id={"type": "string", "pattern": "^id-[0-9]{4}-x{60}$"}),
        of_items(kind={"enum": ["b" * 50]}),
        of_items(text={"type": "string", "minLength": 250}),
        of_items(text={"type": "string", "maxLength": 300}, id={"const": None})
        | {"properties": {"rows": {"type": "array"}}},
        {"type": "object", "properties": {"next": {"format": "uri", "pattern": "p{80}$"}}},
        {"oneOf": [{"required": ["rows", "next"]}, {"required": ["nothing"]}]},
        {"type": "object", "additionalProperties": False, "properties": {k: {} for k in WHOLE}},
        {
            "$defs": {"r": {"type": "array", "minItems": 3}},
            "properties": {"rows": {"$ref": "#/$defs/r"}},
        },
        of_rows(contains={"properties": {"id": {"pattern": "^id-0003"}}}),
    ],
)
def test_a_cut_honours_the_schema(schema: dict[str, Any]) -> None:
    value = fit(schema)

    assert value is not None
    is_closed = schema.get("additionalProperties") is False
    assert (NOTE in value) == (not is_closed)


def test_where_every_cut_is_forbidden_there_is_none() -> None:
    strict = {
        "minItems": 60,
        "items": {"required": ["text"], "properties": {"text": {"minLength": 300}}},
    }

    assert fit({"required": ["rows"], "properties": {"rows": strict}}) is None


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "http://127.0.0.1:1/schema"}, {"pattern": "(?<a>x)\\k<a>"}, {"type": 7}],
)
def test_a_schema_that_cannot_be_checked_forbids_every_cut(schema: dict[str, Any]) -> None:
    assert fit({"properties": {"title": schema}}) is None


def test_a_pattern_that_backtracks_takes_no_time() -> None:
    objections = objections_of(b'{"outputSchema":{"properties":{"a":{"pattern":"^(a+)+$"}}}}')
    assert objections is not None

    assert objections(b'{"a":"%s!"}' % (b"a" * 5000)) == [("a",)]


def test_a_tool_without_a_schema_objects_to_nothing() -> None:
    assert objections_of(b'{"name":"t"}') is None
    assert objections_of(b'{"outputSchema":7}') is None


@pytest.mark.parametrize("number", ["1e999", "9" * 5000, "-" + "9" * 300])
def test_a_number_that_nobody_can_read_keeps_no_content_from_being_cut(number: str) -> None:
    definition = json.dumps({"name": "t", "outputSchema": of_rows(minItems=1)}).encode()
    objections = objections_of(definition)
    assert objections is not None
    written = json.dumps({"rows": ROWS, "count": "NUMBER"}).replace('"NUMBER"', number).encode()

    cut = fitted(written, 6000, objections, b'{"handle":"r"}')

    assert cut is None or len(cut.data) <= 6000
