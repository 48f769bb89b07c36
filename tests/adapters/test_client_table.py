"""The table of clients has the measured values, and other lists of clients agree with it."""

import runpy
from pathlib import Path

import pytest

from capd.adapters.client_table import client_table
from capd.core.sessions.client_traits import traits_of
from capd_client.hooks import CLIENTS as HOOK_FORMS
from capd_client.install.known_clients import known_clients

TABLE, PROBLEMS = client_table()
CLIENTS = Path(__file__).parents[2] / "clients"

# What clients were measured to do, or their sources say: re-lists, prefix, most characters of
# a name, most tools, id.
MEASURED = {
    "claude-code": ("mid_turn", "mcp__capd__", 92, 128, "CLAUDE_CODE_SESSION_ID"),
    "claude-desktop": ("before_turn", None, 64, 128, ""),
    "codex": ("never", "mcp__capd__", 80, 128, ""),
    "gemini": ("before_turn", "mcp_capd_", 63, 128, ""),
    "qwen": ("never", "mcp__capd__", 63, 128, "QWEN_CODE_SESSION_ID"),
    "opencode": ("mid_turn", "capd_", 64, 128, ""),
    "kilo": ("mid_turn", "capd_", 64, 128, ""),
    "copilot": ("lag", "capd-", 64, 128, "COPILOT_AGENT_SESSION_ID"),
    "vscode": ("before_turn", "mcp_capd_", 64, 128, ""),
    "cursor": ("never", None, 60, 40, ""),
    "windsurf": ("never", None, 64, 100, ""),
    "zed": ("before_turn", None, 64, 128, ""),
    "jetbrains": ("never", None, 64, 128, ""),
    "goose": ("never", "capd__", 64, 128, ""),
    "cline": ("never", "capd__", 64, 128, ""),
    "roo": ("never", None, 64, 128, ""),
    "continue": ("never", "", 64, 128, ""),
    "codecompanion": ("before_turn", "capd_", 64, 128, ""),
    "mcphub": ("mid_turn", None, 64, 128, ""),
    "gptel": ("never", None, 64, 128, ""),
}


def test_the_table_says_what_was_measured() -> None:
    said = {
        name: (
            line.relists,
            line.prefix,
            line.name_limit,
            line.tool_limit,
            "".join(line.identity),
        )
        for name, line in TABLE.items()
    }

    assert (said, PROBLEMS) == (MEASURED, [])


def test_what_capd_can_be_put_into_is_in_the_table_under_the_same_title() -> None:
    titles: dict[str, set[str]] = {}
    for client in known_clients().values():
        titles.setdefault(client.behaviour, set()).add(client.title)

    # Some programs behave alike: two of one maker, or an extension of two editors.
    shared = {"cline": "Cline", "jetbrains": "JetBrains"}
    wrong = {
        name: TABLE[name].title
        for name in titles
        if TABLE[name].title not in titles[name] | {shared.get(name)}
    }
    assert wrong == {}
    assert titles.keys() == TABLE.keys()


def test_the_shims_constants_are_generated_from_the_table() -> None:
    generator = runpy.run_path(str(CLIENTS / "regenerate_clients.py"))

    assert generator["TARGET"].read_text(encoding="utf-8") == generator["generated"](), (
        "run python clients/regenerate_clients.py"
    )


def test_every_client_with_a_prompt_hook_is_in_the_table() -> None:
    unknown = {name for name in HOOK_FORMS if not traits_of(TABLE, [name])[0]}

    assert unknown == set()


def test_a_users_file_of_an_older_version_still_counts(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text('[mine]\nnames = ["mine"]\nshrinks = false\nprompt_source = "hook"\n')

    table, problems = client_table(file)

    assert (table["mine"].names, problems) == (("mine",), [])


def test_a_users_own_line_counts_before_the_one_that_knows_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text('[mine]\nnames = ["codex-mcp-client"]\nrelists = "lag"\n')

    table, _ = client_table(file)

    found = [traits_of(table, [name]) for name in ("codex-mcp-client", "codex")]
    assert [(key, traits.relists) for key, traits in found] == [("mine", "lag"), ("codex", "never")]


@pytest.mark.parametrize(
    "line",
    ['relists = "often"', "name_limit = 3", 'identity = "X"', "moon = 1"],
)
def test_a_line_that_says_what_cannot_be_is_left_out_and_told(tmp_path: Path, line: str) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(f"[zed]\n{line}\n[mine]\nrelists = 'lag'\n")

    table, problems = client_table(file)

    assert [problem.partition(" is not used")[0] for problem in problems] == [f"{file}: [zed]"]
    assert (table["zed"], table["mine"].relists) == (TABLE["zed"], "lag")


def test_what_a_users_file_changes_is_the_packages_own_again_without_it(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text("[zed]\nrelists = 'lag'\n[mine]\nrelists = 'lag'\n")
    with_file, _ = client_table(file)

    without_file, _ = client_table()

    assert with_file["zed"].relists == "lag"
    assert without_file == TABLE
