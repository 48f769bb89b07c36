"""Tools as Python functions: names and types; no text of a server becomes code."""

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.scripts.stubs import (
    ToolFunction,
    bound_names,
    checking_stubs,
    described_stubs,
    identifier,
    prelude,
    references,
    tool_function,
    tool_functions,
)
from capd_protos.types import WireName


def function(
    arguments: dict[str, Any] | None = None, *, name: str = "git_log", **members: Any
) -> ToolFunction:
    schema = arguments if arguments is not None else {"type": "object", "properties": {}}
    definition = json.dumps({"name": name, "inputSchema": schema, **members}).encode()
    return tool_function("git", name, WireName(f"git__{name}"), definition)


def declared(each: ToolFunction) -> str:
    """Return the line of a function in the stubs that types are checked by."""
    lines = checking_stubs([each]).splitlines()
    return next(line.strip() for line in lines if line.startswith("    async def"))


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("git", "git_log", "git.log"),
        ("git", "log", "git.log"),
        ("GitHub-MCP", "list-issues", "GitHub_MCP.list_issues"),
        ("time", "now", "time_.now"),
        ("git", "git_import", "git.git_import"),
        ("7zip", "pack", "t_7zip.pack"),
        ("a", "日本", "a.tool"),
        ("class", "for", "class_.for_"),
    ],
)
def test_a_server_is_a_module_and_a_tool_is_a_function(server: str, tool: str, name: str) -> None:
    assert tool_function(server, tool, WireName("x"), b"{}").name == name


def test_two_tools_of_one_name_are_two_functions() -> None:
    found = tool_functions(
        [
            ("git", "log", WireName("git__log"), b"{}"),
            ("git", "git_log", WireName("git__git_log"), b"{}"),
        ]
    )

    assert [each.name for each in found] == ["git.log", "git.git_log"]


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"enum": ["a", "b'c"]}, "Literal['a', \"b'c\"]"),
        ({"const": 3}, "Literal[3]"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "str | int"),
        ({"type": "object", "properties": {"a": {}}}, "dict[str, Any]"),
        ({"$ref": "#/$defs/n"}, "int"),
        ({"$ref": "#/$defs/loop"}, "Any"),
        ({"$ref": "https://example.com/x"}, "Any"),
        (True, "Any"),
        ({"type": []}, "Any"),
        ({"enum": []}, "Any"),
        ({"enum": list(range(100))}, "Any"),
    ],
)
def test_a_schema_is_written_as_a_type(schema: Any, type_: str) -> None:
    arguments = {
        "properties": {"a": schema},
        "required": ["a"],
        "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    }

    assert declared(function(arguments)) == f"async def log(self, *, a: {type_}) -> Any: ..."


def test_optional_arguments_come_behind_with_their_defaults() -> None:
    arguments = {
        "properties": {
            "count": {"type": "integer", "default": 10},
            "path": {"type": "string"},
            "since": {"type": "string"},
        },
        "required": ["path"],
    }

    assert declared(function(arguments)) == (
        "async def log(self, *, path: str, count: int = 10, since: str = ...) -> Any: ..."
    )


def test_an_argument_that_python_cannot_name_is_passed_among_others() -> None:
    arguments = {"properties": {"from": {"type": "string"}, "max-count": {}}}

    assert declared(function(arguments)) == "async def log(self, **more: Any) -> Any: ..."


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"type": "object"}, "self, **more: Any"),
        ({"type": "object", "properties": {}}, "self"),
        ({"type": "object", "additionalProperties": False}, "self"),
        ({"properties": {}, "additionalProperties": True}, "self, **more: Any"),
    ],
)
def test_a_schema_without_arguments_takes_none_or_says_nothing(
    schema: dict[str, Any], arguments: str
) -> None:
    assert declared(function(schema)) == f"async def log({arguments}) -> Any: ..."


def test_an_output_schema_is_the_type_of_the_result() -> None:
    output = {
        "type": "object",
        "properties": {
            "commits": {
                "type": "array",
                "items": {"type": "object", "properties": {"sha": {"type": "string"}}},
            }
        },
        "required": ["commits"],
    }

    written = checking_stubs([function(outputSchema=output)])

    assert "    sha: NotRequired[str]\n" in written
    assert "    commits: list[GitLogResultCommitsItem]\n" in written
    assert "async def log(self) -> GitLogResult: ..." in written


def test_a_description_cannot_leave_its_quotes() -> None:
    hostile = 'Reads """\nimport os\n\\'
    text, _ = described_stubs([function(description=hostile)])

    assert [line for line in text.splitlines() if "import os" in line] == [
        '    """Reads \'\'\' import os /"""'
    ]


def test_stubs_that_do_not_fit_are_counted() -> None:
    tools = [function(name=f"tool{n}") for n in range(10)]

    text, left_out = described_stubs(tools, most=200)

    assert len(text) <= 220
    assert left_out == 10 - text.count("async def")
    assert left_out


def test_references_are_the_functions_that_a_script_calls() -> None:
    code = "x = await git.log(a=1)\nfor y in x: await  jira . get (y)\nx.append(1)\ngit.log()"

    assert references(code, 10) == [("git", "log"), ("jira", "get"), ("x", "append")]
    assert references(code, 1) == [("git", "log")]


def test_names_that_a_script_binds_are_no_servers() -> None:
    code = "x = 1\nfor line, n in y: pass\nwith a as b: pass\nz.f(git=1)\n[c for c in d]\ne == 1"

    own = bound_names(code)

    assert {"x", "line", "n", "b", "c", "asyncio"} <= own
    assert not {"y", "a", "z", "git", "d", "e"} & own


_TEXTS = st.text(max_size=40)
_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)
_KEYWORDS = st.sampled_from(["type", "enum", "anyOf", "properties", "required", "$ref", "default"])
_SCHEMAS = st.dictionaries(_KEYWORDS, _VALUES, max_size=5)


@given(name=_TEXTS, server=_TEXTS, description=_VALUES, schemas=st.dictionaries(_TEXTS, _SCHEMAS))
def test_whatever_a_server_lists_the_stubs_are_python_with_one_function(
    name: str, server: str, description: Any, schemas: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": schemas, "required": list(schemas)[:2]}
    definition = json.dumps(
        {"inputSchema": schema, "outputSchema": schema, "description": description}
    ).encode()
    tool = tool_function(server, name, WireName("a__b"), definition)

    stubs, code = ast.parse(checking_stubs([tool])), ast.parse(prelude([tool]))

    kinds = [ast.ImportFrom, *[ast.ClassDef] * (len(stubs.body) - 3), ast.Assign, ast.Delete]
    assert [type(each) for each in stubs.body] == kinds
    assert len(code.body) == 7
    assert identifier(server).isidentifier()
