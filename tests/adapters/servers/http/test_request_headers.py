"""The headers of requests, compared with the SDK's own rules."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import (
    InboundModernRoute,
    classify_inbound_request,
    decode_header_value,
    encode_header_value,
    find_invalid_x_mcp_header,
    validate_mcp_param_headers,
    x_mcp_header_map,
)

from capd.adapters.servers.http.request_headers import (
    RequestHeaders,
    field_value,
    marked_arguments,
)
from capd.adapters.servers.server_lines import INCOMING

from .rig import Json, modern

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {
            "type": "object",
            "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}},
        },
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "plain": {"type": "string"},
    },
}
BROKEN: list[Json] = [
    {"x-mcp-header": "A"},
    {"properties": {"a": {"type": "string", "x-mcp-header": "a b"}}},
    {"properties": {"a": {"type": "string", "x-mcp-header": 7}}},
    {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
    {"properties": {"a": {"type": ["string"], "x-mcp-header": "A"}}},
    {"items": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
    {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
    {"$defs": {"d": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}}},
    {
        "properties": {
            "a": {"type": "string", "x-mcp-header": "A"},
            "b": {"type": "string", "x-mcp-header": "a"},
        }
    },
]
HARMLESS: list[Any] = [
    None,
    {},
    {"properties": {"a": {"default": {"x-mcp-header": "A"}, "type": "string"}}},
    SCHEMA,
]


def headers_of(method: str, params: Json, headers: RequestHeaders | None = None) -> dict[str, str]:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return (headers or RequestHeaders()).of(INCOMING.decode(line))


@given(st.text())
def test_a_header_value_survives_and_is_the_sdks(text: str) -> None:
    value = field_value(text)

    assert (value, decode_header_value(value)) == (encode_header_value(text), text)


@pytest.mark.parametrize("schema", [*BROKEN, *HARMLESS])
def test_the_marked_arguments_of_a_schema_are_those_of_the_sdk(schema: Json) -> None:
    is_valid = find_invalid_x_mcp_header(schema) is None

    marked = marked_arguments(schema)

    assert marked == (x_mcp_header_map(schema) if is_valid else {})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "größe", "arguments": {}}),
        ("prompts/get", {"name": " padded "}),
        ("resources/read", {"uri": "file:///a b"}),
        ("server/discover", {}),
    ],
)
def test_a_stateless_request_passes_the_sdks_own_check(method: str, params: Json) -> None:
    params = modern(**params)

    headers = headers_of(method, params)

    verdict = classify_inbound_request({"method": method, "params": params}, headers=headers)
    assert isinstance(verdict, InboundModernRoute)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"region": "eu", "deep": {"count": 2**70}, "dry": False},
        {"region": "Köln\n", "deep": None, "dry": True},
        {"region": None, "deep": {"count": 7.0}, "plain": "x"},
        {"region": ["no", "scalar"]},
    ],
)
def test_marked_arguments_are_sent_as_the_sdk_wants_them(arguments: Json) -> None:
    headers = RequestHeaders()
    tools = {"tools": [{"name": "t", "inputSchema": SCHEMA}]}
    headers.learn("tools/list", json.dumps(tools).encode())

    sent = headers_of("tools/call", modern(name="t", arguments=arguments), headers)

    assert validate_mcp_param_headers(SCHEMA, arguments, sent) is None


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_request_on_a_task_is_named_by_the_task(method: str) -> None:
    sent = headers_of(method, modern(taskId="größe"))

    assert sent["mcp-name"] == encode_header_value("größe")


def test_a_tool_whose_marks_are_gone_sends_none() -> None:
    headers = RequestHeaders()
    for schema in (SCHEMA, {}):
        tools = {"tools": [{"name": "t", "inputSchema": schema}]}
        headers.learn("tools/list", json.dumps(tools).encode())

    sent = headers_of("tools/call", modern(name="t", arguments={"region": "eu"}), headers)

    assert sorted(sent) == ["mcp-method", "mcp-name", "mcp-protocol-version"]


def learnt(*tools: Mapping[str, object]) -> RequestHeaders:
    headers = RequestHeaders()
    for tool in tools:
        headers.learn("tools/list", json.dumps({"tools": [tool]}).encode())
    return headers


def marks_of(headers: RequestHeaders, name: str) -> list[str]:
    sent = headers_of("tools/call", modern(name=name, arguments={"region": "eu"}), headers)
    return [each for each in sent if each.startswith("mcp-param-")]


def test_the_marks_of_the_latest_thousand_tools_are_kept() -> None:
    headers = learnt(*({"name": f"t{at}", "inputSchema": SCHEMA} for at in range(1001)))

    found = [marks_of(headers, name) for name in ("t0", "t1", "t1000")]

    assert [bool(each) for each in found] == [False, True, True]


@pytest.mark.parametrize(
    "more", [{"description": "x" * (16 << 20)}, {"x": [0] * 1_000_001}], ids=["bytes", "values"]
)
def test_the_marks_of_a_page_that_cannot_be_listed_are_not_read(more: dict[str, object]) -> None:
    headers = learnt({"name": "t", "inputSchema": SCHEMA, **more})

    found = marks_of(headers, "t")

    assert found == []


def test_the_marks_of_a_schema_that_cannot_be_listed_are_not_read() -> None:
    headers = learnt({"name": "t", "inputSchema": {**SCHEMA, "title": "x" * 256 * 1024}})

    found = marks_of(headers, "t")

    assert found == []


def test_a_handshake_generation_request_carries_what_was_negotiated() -> None:
    headers = RequestHeaders()
    headers.learn("initialize", b'{"protocolVersion":"2025-06-18"}')

    sent = headers_of("tools/call", {"name": "t"}, headers)

    assert sent == {"mcp-protocol-version": "2025-06-18"}
