"""A tap's `tools.json`: the tools of servers that have not run yet."""

import json

import pytest

from capd.core.taps.tool_snapshot import FORMAT, MOST_BYTES, read_snapshot, written_snapshot
from capd_protos.types import ServerIdentity, ServerName, ToolDefinition, ToolName

GIT = ServerIdentity("9c31aaaaaaaaaaaa")
LOG = ToolDefinition(
    ToolName("log"), b'{"name":"log","inputSchema":{"type":"object","properties":{"b":{},"a":{}}}}'
)


def snapshot(*tools: object, **members: object) -> bytes:
    server = {"name": "git", "version": "1", "tools": list(tools)}
    return json.dumps({"format": FORMAT, "servers": {GIT: server}, **members}).encode()


def test_what_was_written_is_read_back_with_arguments_in_their_order() -> None:
    data = written_snapshot([(GIT, ServerName("git"), "1", [LOG])])

    (read,) = read_snapshot(data).lists[GIT]

    assert read.name == "log"
    assert list(json.loads(read.json)["inputSchema"]["properties"]) == ["b", "a"]


def test_a_definition_is_read_on_one_line_however_it_was_written() -> None:
    tool = {"name": "log", "inputSchema": {"type": "object", "properties": {}}}
    server = {"name": "git", "version": "", "tools": [tool]}
    data = json.dumps({"format": FORMAT, "servers": {GIT: server}}, indent=4).encode()

    (read,) = read_snapshot(data).lists[GIT]

    assert b"\n" not in read.json
    assert json.loads(read.json) == tool


def test_the_same_servers_give_the_same_bytes_in_any_order() -> None:
    other = ServerIdentity("1111aaaaaaaaaaaa")
    servers = [(GIT, ServerName("git"), "1", [LOG]), (other, ServerName("fs"), "", [])]

    assert written_snapshot(servers) == written_snapshot(servers[::-1])


def test_a_tool_that_no_client_could_read_is_left_out_with_a_finding() -> None:
    read = read_snapshot(snapshot({"name": "bad name"}, json.loads(LOG.json)))

    assert [tool.name for tool in read.lists[GIT]] == ["log"]
    assert "git: not all of its tools are listed" in read.findings[0].reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "left out"),
        (b"[" * 50_000, "left out"),
        (b'{"format": 1, "servers": []}', "left out"),
        (snapshot(format=2), "its format is 2"),
        (b" " * (MOST_BYTES + 1), "MiB"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_finding_and_no_tools(data: bytes, reason: str) -> None:
    read = read_snapshot(data)

    assert read.lists == {}
    assert len(read.findings) == 1
    assert reason in read.findings[0].reason
