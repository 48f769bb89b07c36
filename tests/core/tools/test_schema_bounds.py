"""Schemas that are too expensive are recognised, at a bounded cost."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.tools.schema_bounds import (
    MOST_EXPANDED,
    MOST_LEVELS,
    MOST_REFERENCES,
    MOST_SUBSCHEMAS,
    SchemaCheck,
    examined,
)
from support.examples import examples

Schema = dict[str, Any]

# A look's cost is a multiple of the document and of what the bounds let through.
MOST_STEPS = 20 * (MOST_SUBSCHEMAS + 5 * MOST_REFERENCES) + 5 * 33 * MOST_REFERENCES


def nested(levels: int) -> Schema:
    schema: Schema = {}
    for _ in range(levels - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def chain(length: int, keyword: str, width: int = 2) -> Schema:
    """Return definitions of which each brings the next along `width` times."""

    def step(n: int) -> Schema:
        references = {str(k): {"$ref": f"#/$defs/l{n + 1}"} for k in range(width)}
        return {keyword: references if keyword == "properties" else list(references.values())}

    definitions: Schema = {f"l{n}": step(n) for n in range(length)}
    definitions[f"l{length}"] = {"type": "string"}
    return {"properties": {"x": {"$ref": "#/$defs/l0"}}, "$defs": definitions}


COMMENT = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "replies": {"type": "array", "items": {"$ref": "#"}},
    },
}
EXPRESSION = {
    "$ref": "#/$defs/Expression",
    "$defs": {
        "Expression": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/Sum"}]},
        "Sum": {
            "properties": {
                "left": {"$ref": "#/$defs/Expression"},
                "right": {"$ref": "#/$defs/Expression"},
            }
        },
    },
}
BLOCKS = {
    "$defs": {
        "Block": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in ("Text", "List", "Quote")]},
        **{
            kind: {"properties": {"children": {"items": {"$ref": "#/$defs/Block"}}}}
            for kind in ("Text", "List", "Quote")
        },
    },
    "properties": {"page": {"$ref": "#/$defs/Block"}},
}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({}, id="empty"),
        pytest.param({"$schema": "http://json-schema.org/draft-07/schema#"}, id="a dialect"),
        pytest.param({"$id": "https://example.com/x.json", "$ref": "#/$defs/a"}, id="an id"),
        pytest.param(COMMENT, id="a tree of comments"),
        pytest.param(EXPRESSION, id="expressions"),
        pytest.param(BLOCKS, id="blocks in blocks"),
        pytest.param({"$defs": {"a": {"items": {"$recursiveRef": "#"}}}}, id="draft 2019-09"),
        pytest.param({"items": {"$ref": "#node"}, "$anchor": "node"}, id="an anchor"),
        pytest.param({"properties": {"x": {"$ref": "#/$defs/gone"}}}, id="nothing is meant"),
        pytest.param({"properties": {"x": {"$ref": "#nowhere"}}}, id="no such anchor"),
        pytest.param(
            {"properties": {"x": {"$ref": "#/allOf/9"}}, "allOf": [{}]}, id="no such item"
        ),
        pytest.param(
            {"properties": {"x": {"$ref": "#/type/0/x"}}, "type": "object"}, id="no schema"
        ),
        pytest.param({"properties": {"$ref": {"type": "string"}}}, id="a property called $ref"),
        pytest.param({"default": {"$ref": "http://example.com"}}, id="data"),
        pytest.param({"enum": [{"$ref": "file:///etc/passwd"}]}, id="data in a list"),
        pytest.param({"$ref": 7, "items": True, "allOf": {}, "properties": []}, id="wrong types"),
        pytest.param({"dependencies": {"a": ["b"]}}, id="draft 4 dependencies"),
        pytest.param(
            {"properties": {"x": {"pattern": "^(a+)+$"}}}, id="a slow pattern is only text"
        ),
        pytest.param(nested(MOST_LEVELS), id="deep"),
        pytest.param(chain(11, "allOf"), id="wide within the bound"),
        pytest.param(chain(60, "allOf", width=1), id="a long chain"),
        pytest.param(
            {"properties": {str(n): {} for n in range(MOST_SUBSCHEMAS - 1)}}, id="many properties"
        ),
        pytest.param(
            {
                "allOf": [{"$ref": "#/x/100"}],
                "x": {str(n): {"$ref": f"#/x/{n - 1}"} for n in range(101)},
            },
            id="a long chain where no keyword has schemas",
        ),
    ],
)
def test_what_ordinary_servers_write_is_within_the_bounds(schema: Schema) -> None:
    got = examined(schema)

    assert got.reason == ""


OUTSIDE = "refers to {!r}, which is outside of it"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        *(
            ({"properties": {"x": {"$ref": to}}}, OUTSIDE.format(to))
            for to in ("http://127.0.0.1:9/x.json", "file:///etc/passwd", "x.json", "", "//h/x#/a")
        ),
        ({"items": {"$dynamicRef": "https://e.com/#n"}}, OUTSIDE.format("https://e.com/#n")),
        ({"x": {"$ref": "http://e.com"}, "$ref": "#/x"}, OUTSIDE.format("http://e.com")),
        ({"type": "object", "$ref": "#"}, "refers to itself without an end"),
        ({"items": {"anyOf": [{"$ref": "#/items"}, {}]}}, "refers to itself without an end"),
        ({"not": {"$ref": "#a"}, "$anchor": "a"}, "refers to itself without an end"),
        (
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
            "refers to itself without an end",
        ),
        (chain(25, "allOf"), f"expands to more than {MOST_EXPANDED} subschemas"),
        (chain(25, "properties"), f"expands to more than {MOST_EXPANDED} subschemas"),
        (nested(MOST_LEVELS + 1), f"nests schemas more than {MOST_LEVELS} deep"),
        (
            {"properties": {str(n): {} for n in range(MOST_SUBSCHEMAS)}},
            f"has more than {MOST_SUBSCHEMAS} subschemas",
        ),
        (
            {"allOf": [{"$ref": "#/x"} for _ in range(MOST_REFERENCES + 1)]},
            f"has more than {MOST_REFERENCES} references",
        ),
        ({"$ref": "#" + "/a" * 33}, "has a reference of more than 32 parts"),
        ({"$anchor": "a", "items": {"$anchor": "a"}}, "has two anchors called 'a'"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:60],
)
def test_what_blows_up_is_told_in_a_few_words(schema: Schema, reason: str) -> None:
    got = examined(schema)

    assert got.reason == reason


@pytest.mark.parametrize("hiding", ["$id", "id"])
def test_a_bomb_in_a_document_of_its_own_is_found(hiding: str) -> None:
    bomb = {hiding: "https://example.com/bomb", **chain(25, "allOf")}

    got = examined({"properties": {"x": bomb}, "$ref": "#/properties/x"})

    assert got.reason == f"expands to more than {MOST_EXPANDED} subschemas"


@pytest.mark.parametrize("hiding", ["$id", "id"])
def test_a_bomb_behind_a_document_that_a_reference_passes_is_found(hiding: str) -> None:
    around = {
        hiding: "https://example.com/bomb",
        "in": {"$ref": "#/$defs/l0"},
        **chain(25, "allOf"),
    }
    del around["properties"]

    got = examined({"aside": around, "$ref": "#/aside/in"})

    assert got.reason == f"expands to more than {MOST_EXPANDED} subschemas"


def test_documents_in_documents_are_no_way_to_hide() -> None:
    inner: Schema = {"$ref": "#"}
    for n in range(5):
        inner = {"id": str(n), "items": inner}

    got = examined({"items": inner})

    assert got.reason == "refers from within 6 documents"


def test_a_bomb_whose_last_link_leads_back_through_a_part_is_found() -> None:
    schema = chain(25, "allOf")
    schema["$defs"]["l25"] = {"properties": {"again": {"$ref": "#/$defs/l0"}}}

    got = examined(schema)

    assert got.reason == f"expands to more than {MOST_EXPANDED} subschemas"


NAMES = ("a", "b", "c", "d")
REFERENCES = st.sampled_from(
    ["#", *(f"#/$defs/{name}" for name in NAMES), "#a", "#/nowhere", "#/allOf/0", "#/$defs/a/items"]
)
SCHEMAS = st.recursive(
    st.booleans() | st.builds(lambda to: {"$ref": to}, REFERENCES) | st.just({}),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["items", "not", "additionalProperties", "if"]), inner, max_size=3
        )
        | st.builds(
            lambda keyword, many: {keyword: many},
            st.sampled_from(["allOf", "anyOf", "prefixItems", "items"]),
            st.lists(inner, max_size=4),
        )
        | st.builds(
            lambda keyword, named: {keyword: named},
            st.sampled_from(["properties", "$defs", "dependencies"]),
            st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
        )
    ),
    max_leaves=20,
)
DOCUMENTS = st.builds(
    lambda body, definitions: {**body, "$defs": definitions},
    SCHEMAS.filter(lambda schema: isinstance(schema, dict)),
    st.dictionaries(st.sampled_from(NAMES), SCHEMAS, max_size=4),
)


@given(schema=DOCUMENTS)
@settings(max_examples=examples(400), deadline=None)
def test_a_look_ends_within_steps_that_the_document_bounds(schema: Schema) -> None:
    got = examined(json.loads(json.dumps(schema)))

    assert got.steps <= 40 * len(json.dumps(schema))


@pytest.mark.parametrize(
    "schema",
    [
        chain(400, "allOf", width=1),
        chain(250, "allOf"),
        chain(250, "properties"),
        {"allOf": [{"$ref": "#" + "/x" * 32}] * MOST_REFERENCES},
        {"allOf": [{"id": "a", "items": {"$ref": "#" + "/items" * 32}}] * MOST_REFERENCES},
        {"$defs": {str(n): {"$ref": "#"} for n in range(MOST_REFERENCES)}},
        {"x" * n: n for n in range(600)},
    ],
    ids=lambda schema: json.dumps(schema)[:40],
)
def test_the_worst_that_fits_costs_a_bounded_number_of_steps(schema: Schema) -> None:
    got = examined(json.loads(json.dumps(schema)))

    assert got.steps <= MOST_STEPS


@given(schema=DOCUMENTS)
@settings(max_examples=examples(400), deadline=None)
def test_what_is_within_the_bounds_can_be_walked_for_one_value_in_as_many_steps(
    schema: Schema,
) -> None:
    document = json.loads(json.dumps(schema))

    got = examined(document)

    assert (got.reason == "") is (_applied(document, document, MOST_EXPANDED) <= MOST_EXPANDED)


def _applied(schema: Any, document: Schema, left: int) -> int:
    """Return how many schemas a plain validator looks at for one value, up to `left` and one.

    The largest of all that stand in the document, as a part's value brings each of them up.
    """

    def worst(at: Any) -> int:
        counts = [_walked(at, document, left)]
        if isinstance(at, Mapping):
            for keyword, value in at.items():
                if keyword == "$ref":
                    continue
                many = value if isinstance(value, list) else [value]
                if keyword in {"properties", "$defs", "dependencies"}:
                    many = [*value.values()] if isinstance(value, dict) else []
                counts += [worst(each) for each in many]
        return max(counts)

    return worst(schema)


def _walked(schema: Any, document: Schema, left: int) -> int:
    """Count the steps, up to the limit; an endless schema reaches the limit too."""
    todo = [schema]
    count = 0
    while todo and count <= left:
        at = todo.pop()
        if not isinstance(at, dict):
            continue
        count += 1
        for keyword, value in at.items():
            if keyword == "$ref":
                todo.append(_meant(value, document))
            elif keyword in {"not", "if"}:
                todo.append(value)
            elif keyword in {"allOf", "anyOf"}:
                todo += value
            elif keyword == "dependencies":
                todo += value.values()
    return count


def _meant(reference: str, document: Schema) -> Any:
    at: Any = document
    for part in reference.removeprefix("#").split("/")[1:]:
        if isinstance(at, list):
            at = at[int(part)] if part.isdecimal() and int(part) < len(at) else None
        else:
            at = at.get(part) if isinstance(at, dict) else None
    return at if not reference.startswith("#a") else None


def test_the_same_document_costs_the_same() -> None:
    got = examined(COMMENT)

    assert got == SchemaCheck("", got.steps) == examined(COMMENT)
