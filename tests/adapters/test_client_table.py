"""The table of clients says what was measured of each, and whoever else names clients agrees."""

from pathlib import Path

import pytest

from capd.adapters.client_table import client_table
from capd.core.sessions.client_traits import traits_of
from capd_client.install.known_clients import known_clients
from capd_client.shim.client_facts import SESSION_VARIABLES

TABLE, PROBLEMS = client_table()

# What clients were measured to do, or their sources say: re-lists, shrinks, prefix, most
# characters of a name, most tools, words seen by, id.
MEASURED = {
    "claude-code": ("mid_turn", False, "mcp__capd__", 92, 128, "hook", "CLAUDE_CODE_SESSION_ID"),
    "claude-desktop": ("before_turn", True, None, 64, 128, "none", ""),
    "codex": ("never", True, "mcp__capd__", 80, 128, "hook", ""),
    "gemini": ("before_turn", True, "mcp_capd_", 63, 128, "hook", ""),
    "qwen": ("never", True, "mcp__capd__", 63, 128, "hook", "QWEN_CODE_SESSION_ID"),
    "opencode": ("mid_turn", True, "capd_", 64, 128, "plugin", ""),
    "kilo": ("mid_turn", True, "capd_", 64, 128, "plugin", ""),
    "copilot": ("lag", True, "capd-", 64, 128, "hook", "COPILOT_AGENT_SESSION_ID"),
    "vscode": ("before_turn", True, "mcp_capd_", 64, 128, "hook", ""),
    "cursor": ("never", True, None, 60, 40, "hook", ""),
    "windsurf": ("never", True, None, 64, 100, "hook", ""),
    "zed": ("before_turn", True, None, 64, 128, "acp", ""),
    "jetbrains": ("never", True, None, 64, 128, "acp", ""),
    "goose": ("never", True, "capd__", 64, 128, "hook", ""),
    "cline": ("never", True, "capd__", 64, 128, "hook", ""),
    "roo": ("never", True, None, 64, 128, "none", ""),
    "continue": ("never", True, "", 64, 128, "none", ""),
    "codecompanion": ("before_turn", True, "capd_", 64, 128, "plugin", ""),
    "mcphub": ("mid_turn", True, None, 64, 128, "plugin", ""),
    "gptel": ("never", True, None, 64, 128, "plugin", ""),
}


def test_the_table_says_what_was_measured() -> None:
    said = {
        name: (
            line.relists,
            line.shrinks,
            line.prefix,
            line.name_limit,
            line.tool_limit,
            line.prompt_source,
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


def test_the_shim_sends_the_id_of_every_client_that_gives_one() -> None:
    given = {variable for line in TABLE.values() for variable in line.identity}

    assert given == set(SESSION_VARIABLES)


def test_a_users_own_line_counts_before_the_one_that_knows_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text('[mine]\nnames = ["codex-mcp-client"]\nrelists = "lag"\n')

    table, _ = client_table(file)

    found = [traits_of(table, [name]) for name in ("codex-mcp-client", "codex")]
    assert [(key, traits.relists) for key, traits in found] == [("mine", "lag"), ("codex", "never")]


@pytest.mark.parametrize(
    "line",
    ['relists = "often"', 'prompt_source = "ears"', "name_limit = 3", 'identity = "X"', "moon = 1"],
)
def test_a_line_that_says_what_cannot_be_is_left_out_and_told(tmp_path: Path, line: str) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(f"[zed]\n{line}\n[mine]\nrelists = 'lag'\n")

    table, problems = client_table(file)

    assert [problem.partition(" is not used")[0] for problem in problems] == [f"{file}: [zed]"]
    assert (table["zed"], table["mine"].relists) == (TABLE["zed"], "lag")
