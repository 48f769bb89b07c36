"""How an edit changes a tool's definition and calls, and what it cannot change."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.protocol.outcomes import NotSentError
from capd.core.sessions.approval import hint_of
from capd.core.tools.tool_edits import (
    changes,
    edited,
    edited_tools,
    given_arguments,
    problems,
    sent_arguments,
)
from capd_protos.types import ArgumentEdit, ServerName, ToolDefinition, ToolEdit, ToolName

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "repo": {"type": "string", "description": "owner/name"},
        "title": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "draft": {"type": "boolean"},
        "level": {"enum": ["low", "high"]},
    },
    "required": ["repo", "title"],
    "additionalProperties": False,
}


def definition(schema: dict[str, Any] = SCHEMA, name: str = "create_issue") -> ToolDefinition:
    members = {
        "name": name,
        "description": "Creates an issue.",
        "inputSchema": schema,
        "annotations": {"destructiveHint": True},
    }
    return ToolDefinition(ToolName(name), json.dumps(members).encode())


def edit(*arguments: ArgumentEdit, **members: Any) -> ToolEdit:
    server, tool = ServerName("github"), ToolName("create_issue")
    return ToolEdit(server, tool, arguments=arguments, **members)


def schema_of(shown: ToolDefinition) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown.json)["inputSchema"]
    return found


def test_a_tool_gets_another_name_title_and_description_and_keeps_everything_else() -> None:
    wanted = edit(name="file_bug", title="File a bug", description="Files a bug in our tracker.")

    got = edited(definition(), wanted)

    assert json.loads(got.definition.json) == {
        "name": "file_bug",
        "description": "Files a bug in our tracker.",
        "inputSchema": SCHEMA,
        "annotations": {"destructiveHint": True},
        "title": "File a bug",
    }
    assert (got.definition.name, got.definition.shown_name) == ("create_issue", "file_bug")
    assert got.problems == ()


def test_what_a_tool_says_of_its_effects_is_its_servers_own() -> None:
    got = edited(definition(), edit(description="Changes nothing, read-only."))

    assert hint_of(got.definition.json) == "destructive"


def test_arguments_are_preset_hidden_renamed_and_described() -> None:
    wanted = edit(
        ArgumentEdit("repo", preset=b'"acme/app"'),
        ArgumentEdit("labels", is_hidden=True),
        ArgumentEdit("title", name="summary", description="One line."),
    )

    got = edited(definition(), wanted)

    properties = SCHEMA["properties"]
    assert schema_of(got.definition) == {
        "type": "object",
        "properties": {
            "summary": {"type": "string", "description": "One line."},
            "draft": properties["draft"],
            "level": properties["level"],
        },
        "required": ["summary"],
        "additionalProperties": False,
    }
    assert got.problems == ()


def test_a_call_reaches_the_server_with_its_own_names_and_the_preset() -> None:
    wanted = edit(ArgumentEdit("repo", preset=b'"acme/app"'), ArgumentEdit("title", name="summary"))
    shown = edited(definition(), wanted).definition

    got = sent_arguments("file_bug", shown.edit, b'{"summary":"It fails","draft":true}')

    assert json.loads(got) == {"title": "It fails", "draft": True, "repo": "acme/app"}


@pytest.mark.parametrize("arguments", [b"", b"null", b"{}", b" "])
def test_a_call_without_arguments_has_the_presets(arguments: bytes) -> None:
    shown = edited(definition(), edit(ArgumentEdit("repo", preset=b'"acme/app"'))).definition

    got = sent_arguments("create_issue", shown.edit, arguments)

    assert json.loads(got) == {"repo": "acme/app"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (b'{"repo":"evil/app","summary":"x"}', "github__file_bug has no argument 'repo'."),
        (b'{"labels":[]}', "github__file_bug has no argument 'labels'."),
        (b'{"title":"x"}', "github__file_bug has no argument 'title'."),
        (b"[1]", "The arguments of github__file_bug are not a JSON object."),
        (b'"x"', "The arguments of github__file_bug are not a JSON object."),
        (b"{", "The arguments of github__file_bug are not a JSON object."),
    ],
)
def test_an_argument_that_the_client_does_not_have_is_refused(
    arguments: bytes, reason: str
) -> None:
    wanted = edit(
        ArgumentEdit("repo", preset=b'"acme/app"'),
        ArgumentEdit("labels", is_hidden=True),
        ArgumentEdit("title", name="summary"),
    )
    shown = edited(definition(), wanted).definition

    with pytest.raises(NotSentError) as refused:
        sent_arguments("github__file_bug", shown.edit, arguments)

    assert str(refused.value) == f"{reason} The call was not sent."


def test_two_arguments_may_change_names_with_each_other() -> None:
    wanted = edit(ArgumentEdit("repo", name="title"), ArgumentEdit("title", name="repo"))
    shown = edited(definition(), wanted)

    got = sent_arguments("x", shown.definition.edit, b'{"repo":"a","title":"b"}')

    assert json.loads(got) == {"title": "a", "repo": "b"}
    assert shown.problems == ()


def test_the_name_of_a_preset_argument_may_be_anothers() -> None:
    wanted = edit(ArgumentEdit("repo", preset=b'"acme/app"'), ArgumentEdit("title", name="repo"))
    shown = edited(definition(), wanted)

    got = sent_arguments("x", shown.definition.edit, b'{"repo":"a"}')

    assert json.loads(got) == {"title": "a", "repo": "acme/app"}


@pytest.mark.parametrize("types", [[{}], [["string"]], [None, 1], {"string": 1}, 10**400, ["x"]])
def test_a_type_that_is_none_is_no_reason_against_a_preset(types: Any) -> None:
    schema = {"type": "object", "properties": {"draft": {"type": types}}}

    got = edited(definition(schema), edit(ArgumentEdit("draft", preset=b"true")))

    assert got.problems == ()


def conditional(**more: Any) -> dict[str, Any]:
    return {**SCHEMA, "required": [], **more}


CONDITION = "is part of a condition in the tool's schema: it stays as it is"
REQUIRED = "is required: it stays, until the edit presets a value for it"


@pytest.mark.parametrize(
    ("schema", "wanted", "reason"),
    [
        (SCHEMA, ArgumentEdit("colour", is_hidden=True), "argument 'colour' is not there"),
        (SCHEMA, ArgumentEdit("title", is_hidden=True), f"argument 'title' {REQUIRED}"),
        (
            SCHEMA,
            ArgumentEdit("title", name="draft"),
            "argument 'title' keeps its name: 'draft' is another one's",
        ),
        (
            SCHEMA,
            ArgumentEdit("draft", preset=b'"yes"'),
            "argument 'draft' cannot be preset: its type is boolean",
        ),
        (
            SCHEMA,
            ArgumentEdit("level", preset=b'"none"'),
            'argument \'level\' cannot be preset: its value is one of ["low","high"]',
        ),
        (
            conditional(anyOf=[{"required": ["draft"]}, {"required": ["labels"]}]),
            ArgumentEdit("draft", preset=b"true"),
            f"argument 'draft' {CONDITION}",
        ),
        (
            conditional(dependentRequired={"labels": ["draft"]}),
            ArgumentEdit("labels", name="tags"),
            f"argument 'labels' {CONDITION}",
        ),
        (
            conditional(minProperties=2),
            ArgumentEdit("labels", is_hidden=True),
            f"argument 'labels' {CONDITION}",
        ),
        (
            {**SCHEMA, "required": ["tenant"]},
            ArgumentEdit("draft", name="tenant"),
            "argument 'draft' keeps its name: 'tenant' is another one's",
        ),
    ],
)
def test_what_does_not_apply_is_one_problem_and_changes_nothing(
    schema: dict[str, Any], wanted: ArgumentEdit, reason: str
) -> None:
    got = edited(definition(schema), edit(wanted, ArgumentEdit("repo", description="Whose.")))

    shown = schema_of(got.definition)
    assert got.problems == (reason,)
    assert shown["properties"].keys() == schema["properties"].keys()
    assert shown["properties"]["repo"]["description"] == "Whose."
    assert shown.get("required", []) == schema["required"]


def test_a_condition_about_other_arguments_is_no_obstacle() -> None:
    schema = conditional(anyOf=[{"required": ["repo"]}, {"required": ["title"]}])

    got = edited(definition(schema), edit(ArgumentEdit("draft", name="is_draft")))

    assert got.problems == ()
    assert "is_draft" in schema_of(got.definition)["properties"]


def test_a_tool_that_is_not_there_is_a_problem() -> None:
    got = problems([definition(name="list_issues")], edit(name="x"))

    assert got == ("server 'github' lists no tool 'create_issue': the edit changes nothing",)


def test_a_disabled_tool_is_taken_from_its_servers_list() -> None:
    others = [definition(name="list_issues"), definition(name="get_issue")]

    got = edited_tools([*others, definition()], [edit(is_disabled=True)])

    assert got == tuple(others)


def test_a_list_without_edits_keeps_its_bytes() -> None:
    listed = [definition(), definition(name="other")]

    assert edited_tools(listed, ()) == tuple(listed)
    assert edited_tools(listed, [edit(name="x")])[1] is listed[1]


def test_a_person_is_told_what_an_edit_changes() -> None:
    wanted = edit(
        ArgumentEdit("repo", preset=b'"acme/app"'),
        ArgumentEdit("labels", is_hidden=True),
        ArgumentEdit("title", name="summary", description="One line."),
        name="file_bug",
        description="Files a bug.",
    )

    assert changes(wanted) == [
        "called file_bug",
        "described otherwise",
        'repo is always "acme/app"',
        "labels is hidden",
        "title is called summary",
        "title is described otherwise",
    ]


NAMES = ("a", "b", "c", "d", "e")
NEW_NAMES = (*NAMES, "f", "g")


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    required = draw(st.lists(st.sampled_from([*names, "z"]), unique=True))
    return {
        "type": "object",
        "properties": {n: {"type": "integer"} for n in names},
        "required": required,
    }


argument_edits = st.builds(
    ArgumentEdit,
    st.sampled_from((*NAMES, "gone")),
    name=st.sampled_from(("", *NEW_NAMES)),
    description=st.sampled_from(("", "Words.")),
    is_hidden=st.booleans(),
    preset=st.sampled_from((b"", b"1", b'"no number"')),
)
edits = st.lists(argument_edits, max_size=5, unique_by=lambda each: each.argument).map(
    lambda found: edit(*found)
)


@given(schemas(), edits, st.data())
def test_what_a_client_says_reaches_the_server_and_can_be_read_back(
    schema: dict[str, Any], wanted: ToolEdit, data: st.DataObject
) -> None:
    shown = edited(definition(schema), wanted).definition
    assert shown.edit is not None
    names = list(schema_of(shown)["properties"])
    said = data.draw(st.dictionaries(st.sampled_from(names), st.integers())) if names else {}

    sent = sent_arguments("x", shown.edit, json.dumps(said).encode())

    by_argument = {each.argument: each for each in shown.edit.arguments}
    assert json.loads(given_arguments(shown.edit, sent)) == said
    presets = {n: v for n, v in json.loads(sent).items() if n in by_argument}
    assert {n: v for n, v in presets.items() if by_argument[n].preset} == {
        name: json.loads(each.preset) for name, each in by_argument.items() if each.preset
    }


@given(schemas(), edits)
def test_an_edit_never_loses_a_required_argument(schema: dict[str, Any], wanted: ToolEdit) -> None:
    shown = edited(definition(schema), wanted).definition
    seen = schema_of(shown)
    said = dict.fromkeys(seen.get("required", ()), 1)

    sent = json.loads(sent_arguments("x", shown.edit, json.dumps(said).encode()))

    assert sent.keys() >= set(schema["required"])
    assert set(seen.get("required", ())) <= {*seen["properties"], "z"}


@given(schemas(), edits)
def test_no_two_arguments_get_one_name(schema: dict[str, Any], wanted: ToolEdit) -> None:
    got = edited(definition(schema), wanted)

    assert got.definition.edit is not None
    hidden = [e for e in got.definition.edit.arguments if e.is_hidden or e.preset]
    assert len(schema_of(got.definition)["properties"]) == len(schema["properties"]) - len(hidden)
    assert msgspec.json.decode(got.definition.json)
