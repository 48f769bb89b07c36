"""Which entries of a server's list are taken for tools, hostile ones included."""

import json

import pytest

from capd.core.tool_intake import MOST_TOOLS, accepted
from capd_protos.types import ToolDefinition, ToolName


def entry(name: str) -> bytes:
    return json.dumps({"name": name, "description": "x", "inputSchema": {}}).encode()


# The list of shared/fixtures/evil_server.py, mode bad_names, and a few more.
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
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_left_out_in_one_short_line_that_a_terminal_survives(name: str) -> None:
    tools, left_out = accepted([entry(name), entry("good")])

    assert tools == [ToolDefinition(ToolName("good"), entry("good"))]
    (line,) = left_out
    assert len(line) < 400
    assert line.isprintable()


@pytest.mark.parametrize("name", ["echo", "__proto__", "a.b-C_9", "a" * 128])
def test_a_good_name_is_taken_with_its_bytes(name: str) -> None:
    got = accepted([entry(name)])

    assert got == ([ToolDefinition(ToolName(name), entry(name))], [])


def test_the_first_of_two_tools_of_one_name_counts() -> None:
    first, second = b'{"name":"echo"}', b'{"name":"echo","description":"mine"}'

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


def test_tools_beyond_the_limit_are_left_out_and_named() -> None:
    tools, left_out = accepted([entry(f"t{n}") for n in range(MOST_TOOLS + 2)])

    assert len(tools) == MOST_TOOLS
    assert left_out == [
        "'t1000' is beyond the first 1000 tools",
        "'t1001' is beyond the first 1000 tools",
    ]
