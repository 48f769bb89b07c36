"""Which output schemas are not of an object, and how their values are put into one."""

import json

import pytest

from capd.core.results.any_value import promises_any_value, with_object


@pytest.mark.parametrize(
    ("definition", "is_any"),
    [
        ({}, False),
        ({"outputSchema": None}, False),
        ({"outputSchema": {"type": "object", "properties": {}}}, False),
        ({"outputSchema": {"type": "array"}}, True),
        ({"outputSchema": {"type": ["object", "null"]}}, True),
        ({"outputSchema": {"anyOf": [{"type": "object"}]}}, True),
        ({"outputSchema": True}, True),
        ({"description": "has no outputSchema"}, False),
    ],
)
def test_only_a_schema_of_an_object_promises_an_object(
    definition: dict[str, object], is_any: bool
) -> None:
    assert promises_any_value(json.dumps(definition).encode()) is is_any


@pytest.mark.parametrize("value", [b"[1,2]", b"7", b"null", b'"a"', b" [ 1.50 ]"])
def test_a_value_that_is_no_object_is_put_into_one(value: bytes) -> None:
    result = b'{"content":[],"structuredContent":%s,"_meta":{"a":1}}' % value

    wrapped = with_object(result)

    assert wrapped == b'{"content":[],"structuredContent":{"result":%s},"_meta":{"a":1}}' % (
        value.strip()
    )


@pytest.mark.parametrize(
    "result", [b'{"content": []}', b'{"structuredContent": {"result":[1]}}', b"[]"]
)
def test_any_other_result_has_the_same_bytes(result: bytes) -> None:
    assert with_object(result) == result
