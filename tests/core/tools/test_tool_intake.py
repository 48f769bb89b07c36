"""Which entries of a server's list are accepted as tools, also from hostile servers."""

import json
from typing import Any

import pytest

from capd.core.tools.tool_intake import MOST_BYTES, MOST_TOOL_BYTES, MOST_TOOLS, accepted
from capd_protos.types import ToolDefinition, ToolName


def entry(name: str) -> bytes:
    return json.dumps({"name": name, "description": "x", "inputSchema": {}}).encode()


# The names of tests/support/hostile_server.py, mode bad_names, and a few more.
BAD_NAMES = (
    "",
    "a" * 5000,
    "../../etc",
    "a\nb",
    "a\x1b[2Jb",
    "еcho",
    "a b;rm -rf",
    "echo\n",
    "a" * 129,
    "a:b",
    "a\u202eb",
    "__proto__",
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_left_out_in_one_short_line_that_a_terminal_survives(name: str) -> None:
    tools, left_out = accepted([entry(name), entry("good")])

    assert tools == [ToolDefinition(ToolName("good"), entry("good"))]
    (line,) = left_out
    assert len(line) < 400
    assert line.isprintable()


@pytest.mark.parametrize("name", ["echo", "__init__", "a.b-C_9", "a" * 128])
def test_a_good_name_is_taken_with_its_bytes(name: str) -> None:
    got = accepted([entry(name)])

    assert got == ([ToolDefinition(ToolName(name), entry(name))], [])


def test_the_first_of_two_tools_of_one_name_counts() -> None:
    first, second = entry("echo"), b'{"name":"echo","description":"mine","inputSchema":{}}'

    got = accepted([first, second])

    assert got == (
        [ToolDefinition(ToolName("echo"), first)],
        ["'echo' is listed twice; the first one counts"],
    )


@pytest.mark.parametrize(
    "written",
    [
        b"7",
        b"null",
        b"{}",
        b'{"name":7}',
        b'{"name":"x"',
        b'{"name":"\xff"}',
        b'{"name":"\\ud800"}',
        b'{"x":' + b"[" * 100_000,
    ],
    ids=lambda written: repr(written[:20]),
)
def test_what_is_not_a_tool_is_left_out(written: bytes) -> None:
    tools, left_out = accepted([written, entry("good")])

    assert [tool.name for tool in tools] == ["good"]
    (line,) = left_out
    assert line.startswith("an entry is not a tool: ")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"1e400", "Number out of range"),
        (b"9" * 5000, "out of range"),
        (b'"\xff"', "not valid UTF-8"),
    ],
    ids=["number", "integer", "text"],
)
def test_what_cannot_be_read_anywhere_in_a_tool_costs_that_tool_alone(
    value: bytes, why: str
) -> None:
    odd = b'{"name":"odd","inputSchema":{},"_meta":{"n":%s}}' % value

    tools, left_out = accepted([odd, entry("good")])

    assert [tool.name for tool in tools] == ["good"]
    (line,) = left_out
    assert line.startswith("'odd' is left out: its definition cannot be read: ")
    assert why in line


def test_tools_beyond_the_limit_are_left_out_and_named() -> None:
    tools, left_out = accepted([entry(f"t{n}") for n in range(MOST_TOOLS + 2)])

    assert len(tools) == MOST_TOOLS
    assert left_out == [
        "'t1000' is beyond the first 1000 tools",
        "'t1001' is beyond the first 1000 tools",
    ]


def defined(**members: Any) -> bytes:
    return json.dumps({"name": "echo", **members}).encode()


@pytest.mark.parametrize(
    "members",
    [{}, {"inputSchema": None}, {"inputSchema": True}, {"inputSchema": []}, {"inputSchema": "{}"}],
    ids=str,
)
def test_a_tool_whose_parameters_no_client_can_read_is_left_out(members: dict[str, Any]) -> None:
    got = accepted([defined(**members)])

    assert got == ([], ["'echo' has no inputSchema that is an object"])


@pytest.mark.parametrize("member", ["inputSchema", "outputSchema"])
def test_a_schema_over_the_bounds_costs_its_own_tool_and_is_told(member: str) -> None:
    bad = {"type": "object", "properties": {"x": {"$ref": "https://example.com/x.json"}}}

    tools, left_out = accepted([defined(**{"inputSchema": {}, member: bad}), entry("good")])

    assert [tool.name for tool in tools] == ["good"]
    reason = "refers to 'https://example.com/x.json', which is outside of it"
    assert left_out == [f"'echo' is left out: its {member} {reason}"]


@pytest.mark.parametrize("output", [None, {"type": "object"}], ids=str)
def test_a_tool_may_say_what_it_answers_or_not(output: dict[str, Any] | None) -> None:
    written = defined(inputSchema={"type": "object"}, outputSchema=output)

    got = accepted([written])

    assert got == ([ToolDefinition(ToolName("echo"), written)], [])


def test_a_definition_without_a_measure_is_left_out() -> None:
    largest = entry("a")
    largest = largest[:-1] + b" " * (MOST_TOOL_BYTES - len(largest)) + b"}"

    tools, left_out = accepted([largest, largest + b" "])

    assert [tool.json for tool in tools] == [largest]
    size = f"an entry of {MOST_TOOL_BYTES + 1} bytes"
    assert left_out == [f"{size} is over the {MOST_TOOL_BYTES} that a tool may have"]


def test_tools_beyond_the_bytes_of_a_server_are_left_out_and_small_ones_still_fit() -> None:
    pad = " " * (MOST_TOOL_BYTES - 100)
    fitting = MOST_BYTES // len(defined(inputSchema={}, pad=pad))
    large = [
        json.dumps({"name": f"t{n}", "inputSchema": {}, "pad": pad}).encode() for n in range(40)
    ]

    tools, left_out = accepted([*large, entry("small")])

    assert [tool.name for tool in tools] == [*(f"t{n}" for n in range(fitting)), "small"]
    assert (
        left_out[0]
        == f"'t{fitting}' is beyond the {MOST_BYTES} bytes that a server's tools may have"
    )
    assert len(left_out) == 40 - fitting
