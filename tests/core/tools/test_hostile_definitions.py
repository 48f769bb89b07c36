"""Odd definitions that pass the intake break no code that reads them."""

from collections.abc import Callable

import pytest

from capd.adapters.argument_checks import ArgumentChecks
from capd.adapters.output_schemas import objections_of
from capd.core.definitions.canonical import canonical, difference, laid_out
from capd.core.definitions.flags import flags
from capd.core.protocol.apps import page_of
from capd.core.protocol.outcomes import NotSentError
from capd.core.scripts.stubs import checking_stubs, described_stubs, prelude, tool_functions
from capd.core.sessions import search_reply
from capd.core.sessions.approval import hint_of
from capd.core.tools.call_cards import call_card
from capd.core.tools.read_only import is_read_only
from capd.core.tools.short_schema import short_schema
from capd.core.tools.tool_edits import edited, given_arguments, sent_arguments
from capd.core.tools.tool_intake import accepted
from capd.core.tools.tool_text import tool
from capd_protos.types import ArgumentEdit, ServerName, ToolDefinition, ToolEdit, ToolName, WireName

NAME = WireName("s__t")


def nested(depth: int, before: str, after: str, inmost: str = "{}") -> str:
    return before * depth + inmost + after * depth


ARGUMENTS = {
    "a long number": '{"a":{"default":' + "9" * 70 + ',"enum":[' + "9" * 70 + "]}}",
    "schemas that are none": '{"a":7,"b":true,"c":null,"d":[1],"e":"x"}',
    "no name, and a NUL": '{"":{},"\\u0000":{"description":"\\u2028\\u0000"}}',
    "types that are none": '{"a":{"type":{"x":1}},"b":{"type":["string",null,[1]]}}',
    "choices that are none": '{"a":{"enum":"xyz","const":[1]},"b":{"anyOf":"x","oneOf":{}}}',
    "items that are none": '{"a":{"type":"array","items":[1]},"b":{"type":"array","items":7}}',
    "a name that comes twice": '{"a":{"type":"string"},"a":{"const":1e5}}',
    "a slow pattern": '{"a":{"type":"string","pattern":"(a+)+$"}}',
    "a broken pattern": '{"a":{"type":"string","pattern":"((((("}}',
    "deep schemas": '{"a":' + nested(25, '{"properties":{"x":', "}}") + "}",
    "deep choices": '{"a":' + nested(25, '{"anyOf":[', "]}") + "}",
    "a deep default": '{"a":{"default":' + nested(250, "[", "]", "1") + "}}",
}
EDITS = (
    ArgumentEdit("a", name="q", description="w"),
    ArgumentEdit("a", is_hidden=True, preset=b"1"),
    ArgumentEdit("a", preset=b'"x"'),
)
CALLS = (b"{}", b'{"a":1}', b'{"a":[[[]]]}', b'{"a":%s}' % (b"9" * 70), b'{"a":1e999}', b"null")


def cards(definition: ToolDefinition) -> None:
    written = definition.json
    call_card(NAME, written)
    tool(definition, ServerName("s"), NAME)
    short_schema(written)
    hint_of(written)
    is_read_only(written)
    page_of(written)


def replies(definition: ToolDefinition) -> None:
    hit = search_reply.ShownHit(NAME, definition.json, "s", "t")
    for detail in ("", "full", "short", "stubs", "summary"):
        search_reply.lay_out([hit, hit], detail)


def scripts(definition: ToolDefinition) -> None:
    functions = tool_functions([("s", "t", NAME, definition.json)])
    described_stubs(functions)
    prelude(functions)
    checking_stubs(functions)


def comparisons(definition: ToolDefinition) -> None:
    flags(definition.name, definition.json)
    laid_out(canonical(definition.json))
    difference(canonical(definition.json), canonical(b'{"name":"t"}'), named="t")


def edits(definition: ToolDefinition) -> None:
    for each in EDITS:
        edit = ToolEdit(ServerName("s"), definition.name, name="z", arguments=(each,))
        applied = edited(definition, edit).definition.edit
        for call in CALLS:
            try:
                sent_arguments("z", applied, call)
            except NotSentError:
                continue
            given_arguments(edit, call)


def checks(definition: ToolDefinition) -> None:
    objections = objections_of(definition.json)
    for call in CALLS:
        if objections is not None:
            objections(call)
        try:
            ArgumentChecks().check("t", definition.json, call)
        except NotSentError:
            continue


@pytest.mark.parametrize("read", [cards, replies, scripts, comparisons, edits, checks])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_whatever_a_server_defines_is_read_by_all_without_an_error(
    name: str, read: Callable[[ToolDefinition], None]
) -> None:
    schema = f'{{"type":"object","properties":{ARGUMENTS[name]},"required":["a"]}}'
    written = f'{{"name":"t","inputSchema":{schema},"outputSchema":{schema},"_meta":{schema}}}'

    [definition], left_out = accepted([written.encode()])

    assert (definition.name, left_out) == (ToolName("t"), [])
    read(definition)
