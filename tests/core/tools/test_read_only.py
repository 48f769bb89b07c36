"""Which tools are marked read-only."""

import json

import pytest

from capd.core.tools.read_only import is_read_only


@pytest.mark.parametrize(
    ("annotations", "is_marked"),
    [
        ({"readOnlyHint": True}, True),
        ({"readOnlyHint": True, "openWorldHint": True, "title": "t"}, True),
        ({"readOnlyHint": False}, False),
        ({"destructiveHint": False, "idempotentHint": True}, False),
        ({}, False),
        (None, False),
        ({"readOnlyHint": "true"}, False),
        ({"readOnlyHint": 1}, False),
        ({"readOnlyHint": None}, False),
        ("readOnlyHint", False),
    ],
)
def test_only_the_hint_itself_marks_a_tool(annotations: object, *, is_marked: bool) -> None:
    definition = {"name": "t", "annotations": annotations, "inputSchema": {}}

    assert is_read_only(json.dumps(definition).encode()) is is_marked


@pytest.mark.parametrize(
    "definition", [b"", b"[]", b"\xff", b'{"readOnlyHint":true}', b"{" * 2_000]
)
def test_what_is_no_definition_is_not_marked(definition: bytes) -> None:
    assert not is_read_only(definition)
