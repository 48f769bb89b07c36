"""Which parts of a definition are searched."""

import msgspec
import pytest

from capd.core.tools.tool_text import MOST_ARGUMENTS, MOST_CHARACTERS, Tool, folded, spelled, tool
from capd_protos.types import ServerName, ToolDefinition, ToolName, WireName


def read(definition: object, name: str = "getHTTPStatus") -> Tool:
    content = definition if isinstance(definition, bytes) else msgspec.json.encode(definition)
    return tool(ToolDefinition(ToolName(name), content), ServerName("web"), WireName("w"), ["net"])


def test_a_definition_is_read_with_its_title_and_its_arguments() -> None:
    got = read(
        {
            "name": "getHTTPStatus",
            "annotations": {"title": "Status of a page"},
            "description": "Fetch  a page,\n and tell its status.",
            "inputSchema": {"type": "object", "properties": {"url": {}, "timeout": {}}},
        }
    )

    assert got == Tool(
        WireName("w"),
        ToolName("getHTTPStatus"),
        "web",
        "Status of a page",
        "Fetch a page, and tell its status.",
        ("url", "timeout"),
        ("net",),
    )
    assert got.text == (
        "web get http status (Status of a page): Fetch a page, and tell its status."
    )


@pytest.mark.parametrize(
    "definition",
    [
        b"not json",
        b"[1]",
        b'{"title":"\\ud800"}',
        b"[" * 100_000,
        {"title": 5, "description": ["x"], "inputSchema": [], "annotations": "y"},
        {"inputSchema": {"properties": "all"}},
    ],
)
def test_a_definition_that_is_not_one_leaves_the_name(definition: object) -> None:
    got = read(definition)

    assert got == Tool(WireName("w"), ToolName("getHTTPStatus"), "web", capabilities=("net",))


def test_every_part_has_a_bound() -> None:
    properties: dict[str, object] = {f"argument{number}": {} for number in range(1000)}

    got = read({"description": "x" * 9000, "inputSchema": {"properties": properties}})

    assert (len(got.description), len(got.arguments)) == (MOST_CHARACTERS, MOST_ARGUMENTS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("getHTTPStatus", "get http status"),
        ("create_issue", "create issue"),
        ("api.weather-now", "api weather now"),
        ("ChaFod", "cha fod"),
        ("Übung2Heute", "übung2 heute"),
        ("", ""),
    ],
)
def test_a_name_is_spelled_as_words(name: str, expected: str) -> None:
    got = spelled(name)

    assert got == expected


def test_names_that_differ_in_case_hyphens_and_underscores_fold_to_one() -> None:
    got = {folded(name) for name in ("readFile", "read_file", "READ-FILE", "Readfile")}

    assert got == {"readfile"}
