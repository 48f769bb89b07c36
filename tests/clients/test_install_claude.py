"""`capd install claude` adds capd; `uninstall` removes every trace."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from .installing import User, add_claude, journal

CONFIG = ".claude.json"
SETTINGS = ".claude/settings.json"
THEIRS = """\
{
  // mine
  "model": "opus", // keep
  "hooks": {
    "UserPromptSubmit": [
      {"hooks": [{"type": "command", "command": "date"}]} // the time
    ],
    "Stop": []
  }
}
"""
SERVERS = '{\n\t"numStartups": 3,\n\t"mcpServers": {\n\t\t"other": {"command": "x"}\n\t}\n}'
HOOK = {
    "type": "mcp_tool",
    "server": "capd",
    "tool": "capd_turn",
    "input": {"prompt": "${prompt}", "session_id": "${session_id}", "cwd": "${cwd}"},
    "timeout": 5,
}
HERE = {"session_id": "${session_id}", "cwd": "${cwd}"}
AGENT = {"agent_id": "${agent_id}"}
TOOL_INPUT = {"event": "PreToolUse", "skill": "${tool_input.skill}"}
TOOL_HOOK = {**HOOK, "input": {**TOOL_INPUT, "tool_use_id": "${tool_use_id}", **AGENT, **HERE}}
OF_TOOLS = {"matcher": "^(Skill|mcp__capd__.*)$", "hooks": [TOOL_HOOK]}
OTHERS = {
    "PreToolUse": [OF_TOOLS],
    **{
        event: [{"hooks": [{**HOOK, "input": {"event": event, **AGENT, **HERE}}]}]
        for event in ("SubagentStart", "SubagentStop")
    },
}


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def hooks(user: User) -> list[dict[str, Any]]:
    """Return what speaks for the user, in Claude Code and in what else reads its settings."""
    words = f"{user.launcher} hook claude UserPromptSubmit"
    return [HOOK, {"type": "command", "command": words, "timeout": 5}]


def entry(user: User) -> dict[str, Any]:
    return {"type": "stdio", "command": str(user.launcher), "args": [], "alwaysLoad": True}


def test_a_user_without_files_gets_the_server_and_the_hook(user: User) -> None:
    said = user.capd("install", "claude")

    assert said.code == 0
    assert user.json(CONFIG) == {"mcpServers": {"capd": entry(user)}}
    of_prompts = {"UserPromptSubmit": [{"hooks": hooks(user)}]}
    assert user.json(SETTINGS) == {"hooks": {**of_prompts, **OTHERS}}
    assert os.access(user.launcher, os.X_OK)


def test_hooks_servers_and_comments_of_the_user_stay(user: User) -> None:
    user.file(CONFIG, SERVERS)
    settings = user.file(SETTINGS, THEIRS)

    user.capd("install", "claude")

    servers = {"other": {"command": "x"}, "capd": entry(user)}
    assert user.json(CONFIG) == {"numStartups": 3, "mcpServers": servers}
    text = settings.read_text()
    kept = [line for line in THEIRS.splitlines() if not re.search(r"date|Stop", line)]
    assert '    "Stop": [],\n' in text
    assert all(line in text.splitlines() for line in kept)
    assert '{"hooks": [{"type": "command", "command": "date"}]}, // the time\n' in text
    assert text.count('"capd_turn"') == 4


def test_a_second_installation_changes_nothing_and_says_so(user: User) -> None:
    user.file(SETTINGS, THEIRS)
    user.capd("install", "claude")
    before = {path: path.read_bytes() for path in user.home.rglob("*") if path.is_file()}

    said = user.capd("install", "claude")

    assert (said.code, said.out) == (0, "Claude Code has capd already: no change\n")
    assert {path: path.read_bytes() for path in user.home.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "files",
    [
        {},
        {CONFIG: SERVERS, SETTINGS: THEIRS},
        {CONFIG: "{}", SETTINGS: ""},
        {CONFIG: SERVERS.replace("\n", "\r\n"), SETTINGS: "\ufeff" + THEIRS},
        {CONFIG: '{"mcpServers":{"capd":{"command":"mine"}}}'},
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_files_that_nobody_touched_are_restored_byte_for_byte(
    user: User, files: dict[str, str], times: int
) -> None:
    for name, text in files.items():
        user.file(name, text)
    before = user.snapshot()
    for _ in range(times):
        user.capd("install", "claude")

    said = user.capd("uninstall", "claude")

    assert said.code == 0
    assert user.snapshot() == before
    assert user.backups() == []


def test_of_files_that_were_touched_only_capd_is_taken_out(user: User) -> None:
    config = user.file(CONFIG, SERVERS)
    settings = user.file(SETTINGS, THEIRS)
    user.capd("install", "claude")
    config.write_text(config.read_text().replace("3", "4"))
    settings.write_text(settings.read_text().replace("// mine", "// mine, and later"))

    said = user.capd("uninstall", "claude")

    assert config.read_text() == SERVERS.replace("3", "4")
    assert settings.read_text() == THEIRS.replace("// mine", "// mine, and later")
    assert all(str(path) in said.out for path in user.backups())


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '{\n  "a": 1,\n  "mcpServers": {}, "hooks": {}\n}',
        '{\n  "a": 1,\n  "hooks": {\n    "UserPromptSubmit": []\n  }\n}',
    ],
)
def test_what_capd_had_to_make_goes_and_what_was_empty_before_stays(user: User, text: str) -> None:
    for name in (CONFIG, SETTINGS):
        user.file(name, text)
    user.capd("install", "claude")
    for name in (CONFIG, SETTINGS):
        path = user.home / name
        path.write_text(path.read_text().replace('"a": 1', '"a": 2'))

    user.capd("uninstall", "claude")

    touched = text.replace('"a": 1', '"a": 2').encode()
    assert user.snapshot() == {CONFIG: touched, SETTINGS: touched}


def test_what_the_user_did_between_two_installations_is_not_lost(user: User) -> None:
    config = user.file(CONFIG, SERVERS)
    user.capd("install", "claude")
    config.write_text(config.read_text().replace("3", "4").replace('"stdio"', '"http"'))
    user.capd("install", "claude")
    assert user.json(CONFIG)["mcpServers"]["capd"] == entry(user)

    user.capd("uninstall", "claude")

    assert config.read_text() == SERVERS.replace("3", "4")


def test_the_hook_that_an_earlier_version_wrote_gets_the_other_beside_it(user: User) -> None:
    theirs = {"hooks": [{"type": "command", "command": "date"}]}
    ours = {"hooks": [{**HOOK, "input": {}, "timeout": 9}]}
    user.file(SETTINGS, json.dumps({"hooks": {"UserPromptSubmit": [theirs, ours]}}))

    user.capd("install", "claude")

    first, second = hooks(user)
    expected = [theirs, {"hooks": [{**first, "timeout": 9}, second]}]
    assert user.json(SETTINGS) == {"hooks": {"UserPromptSubmit": expected, **OTHERS}}


def test_hooks_of_the_user_for_tools_stay_with_ours_beside_them(user: User) -> None:
    theirs = {"matcher": "Bash|Skill", "hooks": [{"type": "command", "command": "date"}]}
    text = json.dumps({"hooks": {"PreToolUse": [theirs]}}, indent=2)
    user.file(SETTINGS, text)
    user.capd("install", "claude")
    there = user.json(SETTINGS)["hooks"]["PreToolUse"]
    (user.home / SETTINGS).write_text((user.home / SETTINGS).read_text() + "\n")

    user.capd("uninstall", "claude")

    assert there == [theirs, OF_TOOLS]
    assert user.json(SETTINGS) == json.loads(text)


def test_the_hook_of_skills_that_an_earlier_version_wrote_is_for_capds_tools_too(
    user: User,
) -> None:
    earlier = {"matcher": "Skill", "hooks": [{**HOOK, "input": TOOL_INPUT}]}
    user.file(SETTINGS, json.dumps({"hooks": {"PreToolUse": [earlier]}}))

    user.capd("install", "claude")

    assert user.json(SETTINGS)["hooks"]["PreToolUse"] == [OF_TOOLS]


def test_a_hook_of_the_user_in_the_group_of_an_earlier_version_keeps_its_matcher(
    user: User,
) -> None:
    theirs = {"type": "command", "command": "date"}
    group = {"matcher": "Skill", "hooks": [{**HOOK, "input": TOOL_INPUT}, theirs]}
    user.file(SETTINGS, json.dumps({"hooks": {"PreToolUse": [group]}}))

    user.capd("install", "claude")

    expected = [{"matcher": "Skill", "hooks": [theirs]}, OF_TOOLS]
    assert user.json(SETTINGS)["hooks"]["PreToolUse"] == expected


def test_hooks_that_only_look_like_ours_are_left_alone(user: User) -> None:
    commands = ["capd-mcp", "capd-mcp hook other", "echo capd-mcp hook claude", "date '"]
    theirs = [{"type": "command", "command": command} for command in commands]
    text = json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": theirs}]}})
    user.file(SETTINGS, text)
    user.capd("install", "claude")
    (user.home / SETTINGS).write_text((user.home / SETTINGS).read_text() + "\n")

    user.capd("uninstall", "claude")

    assert user.json(SETTINGS) == json.loads(text)


def test_what_a_user_added_to_the_entry_of_capd_survives_an_installation(user: User) -> None:
    user.capd("install", "claude")
    document = user.json(CONFIG)
    document["mcpServers"]["capd"] |= {"env": {"CAPD_PROJECT": "/src"}, "alwaysLoad": False}
    user.file(CONFIG, json.dumps(document))

    user.capd("install", "claude")

    expected = {**entry(user), "env": {"CAPD_PROJECT": "/src"}}
    assert user.json(CONFIG)["mcpServers"]["capd"] == expected


def test_a_server_of_that_name_that_is_not_ours_comes_back(user: User) -> None:
    theirs = {"command": "/opt/capd", "args": ["mcp"]}
    config = user.file(CONFIG, json.dumps({"mcpServers": {"capd": theirs}}, indent=2))
    user.capd("install", "claude")
    assert user.json(CONFIG)["mcpServers"]["capd"] == entry(user)
    config.write_text(config.read_text() + "\n")

    user.capd("uninstall", "claude")

    assert user.json(CONFIG) == {"mcpServers": {"capd": theirs}}


def test_without_an_installation_nothing_of_the_user_is_taken_out(user: User) -> None:
    user.file(CONFIG, '{"mcpServers": {"capd": {"command": "/opt/capd"}}}')
    user.file(SETTINGS, THEIRS)
    before = user.snapshot()

    said = user.capd("uninstall", "claude")

    assert (said.code, said.out) == (0, "Claude Code does not have capd: no change\n")
    assert user.snapshot() == before


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (CONFIG, '{\n  "a": 1\n  "b": 2\n}', 3),
        (SETTINGS, '{\n  "hooks": [],\n}', 2),
        (SETTINGS, b'{\n\n"a": "\xff"}', 3),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_and_nothing_is_written(
    user: User, name: str, text: str | bytes, line: int
) -> None:
    path = user.file(name, text)
    before = user.snapshot()

    said = user.capd("install", "claude")

    assert said.code == 1
    assert said.err.startswith(f"capd: {path}, line {line}: ")
    assert said.err.endswith("Nothing was changed. Correct the file, then try again.\n")
    assert user.snapshot() == before
    assert not user.launcher.exists()


def test_a_dry_run_prints_a_diff_and_writes_nothing(user: User) -> None:
    user.file(SETTINGS, THEIRS)
    before = user.snapshot()

    said = user.capd("install", "claude", "--dry-run")

    assert user.snapshot() == before
    assert not (user.home / ".local").exists()
    assert f"--- {user.home / SETTINGS}\n" in said.out
    assert f"--- /dev/null\n+++ {user.home / CONFIG}\n" in said.out
    assert '+            "tool": "capd_turn",\n' in said.out


def test_a_dry_run_of_uninstall_takes_nothing_out(user: User) -> None:
    user.capd("install", "claude")
    before = user.snapshot()

    said = user.capd("uninstall", "claude", "--dry-run")

    assert user.snapshot() == before
    assert f"--- {user.home / CONFIG}\n+++ /dev/null\n" in said.out


def test_a_link_stays_one_and_its_target_is_changed(user: User) -> None:
    target = user.file("dotfiles/settings.json", THEIRS)
    target.chmod(0o640)
    link = user.home / SETTINGS
    link.parent.mkdir()
    link.symlink_to(target)

    user.capd("install", "claude")

    assert link.is_symlink()
    assert '"capd_turn"' in target.read_text()
    assert target.stat().st_mode & 0o7777 == 0o640
    user.capd("uninstall", "claude")
    assert (link.is_symlink(), target.read_text()) == (True, THEIRS)


def test_backups_are_the_originals_and_nobody_elses_business(user: User) -> None:
    user.file(CONFIG, SERVERS).chmod(0o644)

    user.capd("install", "claude")

    (backup,) = user.backups()
    assert backup.read_text() == SERVERS
    assert backup.stat().st_mode & 0o777 == 0o600
    assert backup.parent.stat().st_mode & 0o777 == 0o700


def test_the_vendors_own_command_adds_the_server(user: User) -> None:
    add_claude(user)

    user.capd("install", "claude")

    (command,) = journal(user)
    assert command[:3] == ["mcp", "add-json", "capd"]
    assert json.loads(command[3]) == entry(user)
    assert command[4:] == ["--scope", "user"]
    expected = {"firstStartTime": "today", "mcpServers": {"capd": entry(user)}}
    assert user.json(CONFIG) == expected


def test_what_the_vendors_command_wrote_is_undone_byte_for_byte(user: User) -> None:
    add_claude(user)
    user.file(CONFIG, SERVERS)
    before = user.snapshot()
    user.capd("install", "claude")
    assert user.capd("install", "claude").out == "Claude Code has capd already: no change\n"

    user.capd("uninstall", "claude")

    assert user.snapshot() == before


@pytest.mark.parametrize(
    "act",
    ["sys.exit(1)", "sys.exit(0)", "sys.argv[4] = '{}'", "sys.argv[3] = 'other'"],
)
def test_where_the_vendors_command_fails_the_file_is_edited(user: User, act: str) -> None:
    add_claude(user, act)
    user.file(CONFIG, SERVERS)
    before = user.snapshot()

    said = user.capd("install", "claude")

    assert said.code == 0
    assert user.json(CONFIG)["mcpServers"]["capd"] == entry(user)
    user.capd("uninstall", "claude")
    assert user.snapshot() == before


def test_a_configuration_folder_that_claude_was_told_is_used(user: User) -> None:
    user.more["CLAUDE_CONFIG_DIR"] = str(user.home / "elsewhere")

    user.capd("install", "claude")

    assert sorted(user.snapshot()) == ["elsewhere/.claude.json", "elsewhere/settings.json"]
