"""The tables `[tool."server:tool"]`: which keys are used, and which are reported."""

import pytest

from capd.core.taps.edit_tables import tool_edits
from capd.core.taps.toml_folder import TomlFolder
from capd_protos.types import ArgumentEdit, Finding, ServerName, ToolEdit, ToolName

FILE = "capabilities/github.toml"


def read(text: str) -> tuple[tuple[ToolEdit, ...], list[str]]:
    folder = TomlFolder("mine", {FILE: text})
    body = folder.parsed(FILE)
    assert body is not None
    found = tool_edits(body, FILE, folder)
    return found, [each.reason for each in folder.findings]


def edit(tool: str = "create_issue", **members: object) -> ToolEdit:
    return ToolEdit(ServerName("github"), ToolName(tool), file=f"mine/{FILE}", **members)  # type: ignore[arg-type]


def test_every_key_is_read() -> None:
    text = """
        [tool."github:create_issue"]
        name = "file_bug"
        title = "File a bug"
        description = "Files a bug."
        [tool."github:create_issue".arguments.repo]
        preset = "acme/app"
        [tool."github:create_issue".arguments.labels]
        hidden = true
        [tool."github:create_issue".arguments.title]
        name = "summary"
        description = "One line."
        [tool."github:delete_repo"]
        disabled = true
    """

    assert read(text) == (
        (
            edit(
                name="file_bug",
                title="File a bug",
                description="Files a bug.",
                arguments=(
                    ArgumentEdit("repo", preset=b'"acme/app"'),
                    ArgumentEdit("labels", is_hidden=True),
                    ArgumentEdit("title", name="summary", description="One line."),
                ),
            ),
            edit("delete_repo", is_disabled=True),
        ),
        [],
    )


@pytest.mark.parametrize(
    ("value", "preset"),
    [
        ("false", b"false"),
        ("0", b"0"),
        ('""', b'""'),
        ("[1, 'a']", b'[1,"a"]'),
        ("{ a = 1.5 }", b'{"a":1.5}'),
    ],
)
def test_a_preset_is_any_value_of_json(value: str, preset: bytes) -> None:
    found, reasons = read(f'[tool."github:create_issue".arguments]\nx = {{ preset = {value} }}\n')

    assert found == (edit(arguments=(ArgumentEdit("x", preset=preset),)),)
    assert reasons == []


WHERE = 'tool."github:create_issue"'
NAME = "`name` is 1 to 64 letters, digits, `_`, `.`, `-`"


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("tool = 3\n", ['`tool` is not a table; write [tool."server:tool"]']),
        ("[tool.create]\nname='x'\n", ['tool."create": is no tool; write [tool."server:tool"]']),
        ("[tool]\n'github:create_issue' = 1\n", [f"{WHERE}: is not a table"]),
        ("[tool.'github:create_issue']\n", [f"{WHERE}: changes nothing"]),
        (
            "[tool.'github:create_issue']\nname = ['x']\n",
            [f"{WHERE}: {NAME}", f"{WHERE}: changes nothing"],
        ),
        (
            "[tool.'github:create_issue']\nname = 'a b'\n",
            [f"{WHERE}: {NAME}", f"{WHERE}: changes nothing"],
        ),
        (
            f"[tool.'github:create_issue']\nname = '{'x' * 65}'\n",
            [f"{WHERE}: {NAME}", f"{WHERE}: changes nothing"],
        ),
        (
            "[tool.'github:create_issue']\nname = '__proto__'\n",
            [f"{WHERE}: {NAME}", f"{WHERE}: changes nothing"],
        ),
        (
            "[tool.'github:create_issue']\ndescription = 3\n",
            [f"{WHERE}: `description` is not text", f"{WHERE}: changes nothing"],
        ),
        (
            f"[tool.'github:create_issue']\ntitle = '{'x' * 201}'\n",
            [f"{WHERE}: `title` has more than 200 characters", f"{WHERE}: changes nothing"],
        ),
        (
            "[tool.'github:create_issue']\ndisabled = 'yes'\n",
            [f"{WHERE}: `disabled` is true or false", f"{WHERE}: changes nothing"],
        ),
        (
            "[tool.'github:create_issue']\ncolour = 'red'\n",
            [f"{WHERE}: `colour` is not a key here: left out", f"{WHERE}: changes nothing"],
        ),
        (
            "[tool.'github:create_issue']\narguments = ['x']\n",
            [f"{WHERE}: `arguments` is not a table of arguments", f"{WHERE}: changes nothing"],
        ),
        (
            "[tool.'github:create_issue'.arguments]\nx = 1\n",
            [f"{WHERE}.arguments.x: is not a table", f"{WHERE}: changes nothing"],
        ),
        (
            "[tool.'github:create_issue'.arguments.x]\npreset = 2026-01-01\n",
            [
                f"{WHERE}.arguments.x: `preset` is not a value of JSON",
                f"{WHERE}.arguments.x: changes nothing",
                f"{WHERE}: changes nothing",
            ],
        ),
        (
            f"[tool.'github:create_issue'.arguments.x]\npreset = 0x{'f' * 5000}\n",
            [
                f"{WHERE}.arguments.x: `preset` is not a value of JSON",
                f"{WHERE}.arguments.x: changes nothing",
                f"{WHERE}: changes nothing",
            ],
        ),
        (
            "[tool.'github:create_issue'.arguments.x]\npreset = nan\n",
            [
                f"{WHERE}.arguments.x: `preset` is not a value of JSON",
                f"{WHERE}.arguments.x: changes nothing",
                f"{WHERE}: changes nothing",
            ],
        ),
        (
            f"[tool.'github:create_issue'.arguments.x]\npreset = '{'x' * 5000}'\n",
            [
                f"{WHERE}.arguments.x: `preset` has more than 4096 bytes",
                f"{WHERE}.arguments.x: changes nothing",
                f"{WHERE}: changes nothing",
            ],
        ),
        (
            "[tool.'github:create_issue'.arguments.x]\nhidden = 1\nrequired = true\n",
            [
                f"{WHERE}.arguments.x: `required` is not a key here: left out",
                f"{WHERE}.arguments.x: `hidden` is true or false",
                f"{WHERE}.arguments.x: changes nothing",
                f"{WHERE}: changes nothing",
            ],
        ),
    ],
)
def test_what_is_wrong_is_left_out_with_the_reason(text: str, reasons: list[str]) -> None:
    assert read(text) == ((), reasons)


def test_one_name_for_two_tools_is_left_out_at_the_second() -> None:
    text = """
        [tool."github:create_issue"]
        name = "make"
        [tool."github:create_branch"]
        name = "make"
        title = "Make"
    """

    found, reasons = read(text)

    assert found == (edit(name="make"), edit("create_branch", title="Make"))
    assert reasons == ["github:create_branch: the name 'make' is given twice, and is left out here"]


def test_hidden_characters_are_taken_out_of_a_description() -> None:
    found, _ = read('[tool."github:create_issue"]\ndescription = "Files\\u200b a bug"\n')

    assert found == (edit(description="Files a bug"),)


def test_a_finding_names_its_line() -> None:
    folder = TomlFolder("mine", {FILE: '\n[tool."github:x"]\nname = "a b"\n'})

    tool_edits(folder.parsed(FILE) or {}, FILE, folder)

    assert folder.findings[0] == Finding(
        f"mine/{FILE}", 2, 'tool."github:x": `name` is 1 to 64 letters, digits, `_`, `.`, `-`'
    )
