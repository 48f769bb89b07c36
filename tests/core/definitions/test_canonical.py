"""The canonical form of definitions, and the difference between two of them."""

import json
from typing import Any

import pytest

from capd.core.definitions.canonical import MOST_LINES, canonical, difference, digest
from capd_protos.codec import MalformedError

TOOL: dict[str, Any] = {
    "name": "echo",
    "title": "Echo",
    "description": "Say it again.\nSlowly.",
    "inputSchema": {"type": "object", "properties": {"x": {"enum": ["a", "b"]}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "icons": [{"src": "data:,"}],
    "_meta": {"a.b/c": 1},
}


def digest_of(**others: Any) -> str:
    return digest(canonical(json.dumps({**TOOL, **others}).encode()))


def test_how_it_is_written_makes_no_difference() -> None:
    turned = json.dumps(dict(reversed(TOOL.items())), indent=3, ensure_ascii=False).encode()

    got = digest(canonical(turned))

    assert got == digest_of()


@pytest.mark.parametrize(
    "change",
    [
        {"title": "echo"},
        {"description": "Say it again.\nSlowly. "},
        {"inputSchema": {"type": "object", "properties": {"x": {"enum": ["a", "c"]}}}},
        {"inputSchema": {"type": "object", "properties": {"x": {"enum": ["b", "a"]}}}},
        {"outputSchema": {"type": "object", "required": ["x"]}},
        {"annotations": {"readOnlyHint": False}},
        {"icons": [{"src": "data:,x"}]},
        {"_meta": {"a.b/c": 2}},
        {"execution": {"taskSupport": "optional"}},
        {"description": "Say it again.\nSlowly.\u200b"},
    ],
)
def test_every_member_counts(change: dict[str, Any]) -> None:
    got = digest_of(**change)

    assert got != digest_of()


def test_a_difference_is_shown_line_by_line_with_nothing_hidden() -> None:
    before = canonical(b'{"name":"echo","description":"One.\\nTwo.","inputSchema":{}}')
    after = canonical(
        '{"name":"echo","description":"One.\\nTwo\u202e.\\u001b[0m","inputSchema":{}}'.encode()
    )

    got = difference(before, after, named="evil:echo")

    assert got.split("\n") == [
        "--- evil:echo (trusted)",
        "+++ evil:echo (listed)",
        "@@ -1,6 +1,6 @@",
        " {",
        '   "description": "One.\\n"',
        '-      "Two.",',
        '+      "Two\\u{202e}.\\u001b[0m",',
        '   "inputSchema": {},',
        '   "name": "echo"',
        " }",
    ]


def test_a_tool_that_came_is_all_lines_that_came() -> None:
    got = difference(b"", canonical(b'{"name":"echo"}'), named="evil:echo")

    assert got.split("\n")[3:] == ["+{", '+  "name": "echo"', "+}"]


def test_a_long_difference_says_how_much_is_not_shown() -> None:
    after = canonical(json.dumps({"name": "a", "x": list(range(3000))}).encode())

    got = difference(b"", after, named="a:a").split("\n")

    assert len(got) == MOST_LINES + 1
    assert got[-1] == "... 1008 more lines"


def test_what_is_nested_too_deeply_to_be_laid_out_is_shown_on_one_line() -> None:
    after = b'{"name":"a","x":' + b"[" * 600 + b"]" * 600 + b"}"

    got = difference(b"", canonical(after), named="a:a")

    assert got.split("\n")[3:] == [f"+{after.decode()}"]


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(MalformedError):
        canonical(b'{"name":')
