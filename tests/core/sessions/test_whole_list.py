"""When a session lists every tool."""

import json

import pytest

from capd.core.sessions.whole_list import WHOLE_BYTES, ToolTotals, is_listed_whole, model_bytes

FEW = ToolTotals(tools=9, model_bytes=3_000, is_all=True)


@pytest.mark.parametrize(
    ("catalog", "limit", "is_whole"),
    [
        (FEW, 128, True),
        (FEW, 9, True),
        (FEW, 8, False),
        (ToolTotals(9, WHOLE_BYTES, is_all=True), 128, True),
        (ToolTotals(9, WHOLE_BYTES + 1, is_all=True), 128, False),
        (ToolTotals(9, 3_000, is_all=False), 128, False),
        (ToolTotals(9, 3_000, is_all=True, skills=1), 128, False),
        (ToolTotals(0, 0, is_all=True), 128, False),
    ],
)
def test_everything_is_listed_where_it_is_known_small_and_all_there_is(
    catalog: ToolTotals, limit: int, *, is_whole: bool
) -> None:
    assert is_listed_whole(catalog, limit) is is_whole


def test_what_a_model_does_not_read_does_not_count() -> None:
    read = {"name": "a", "description": "b", "inputSchema": {"type": "object"}}
    besides = {"title": "t" * 99, "outputSchema": {"x": "y" * 99}, "_meta": {}}

    sizes = [model_bytes(json.dumps(each).encode()) for each in (read, read | besides)]

    assert sizes == [24, 24]


@pytest.mark.parametrize("definition", [b"", b"[1]", b"\xff", b"{" * 99])
def test_a_definition_that_cannot_be_read_counts_whole(definition: bytes) -> None:
    assert model_bytes(definition) == len(definition)
