"""Every command in the documents is valid, and some test runs it."""

import re
from pathlib import Path

import pytest

from documents import command_tree, pages
from documents.command_tree import NoSuchCommandError

ROOT = Path(__file__).parents[2]
RUN_HERE = (
    pages.README,
    *(pages.DOCS / name for name in ("quickstart.md", "service.md", "writing-a-capability.md")),
)
"""Pages whose blocks `test_first_hour` runs, line by line."""
RUN_ELSEWHERE = {
    "approve": "tests/whole/test_approval.py",
    "bridge": "tests/whole/test_bridges.py",
    "bridge list": "tests/whole/test_bridges.py",
    "bridge revoke": "tests/whole/test_json_shapes.py",
    "bridge container": "tests/whole/test_bridge_container.py",
    "bridge ssh": "tests/reliability/test_bridge_ssh.py",
    "skill": "tests/whole/test_agent_skill.py",
    "profile": "tests/whole/test_profiles.py",
    "profile use": "tests/whole/test_profiles.py",
    "tap export": "tests/whole/test_tap_export.py",
    "tool edit": "tests/whole/test_tool_edits.py",
    "tool list": "tests/whole/test_tool_edits.py",
    "tool reset": "tests/whole/test_tool_edits.py",
    "tool show": "tests/whole/test_tool_edits.py",
    "acp": "tests/whole/test_acp.py",
    "plugin": "tests/clients/test_commands.py",
    "completion": "tests/clients/test_completion.py",
    "config path": "tests/clients/test_config_commands.py",
    "config schema": "tests/clients/test_config_commands.py",
    "config show": "tests/clients/test_config_commands.py",
    "daemon run": "tests/whole_daemon.py",
    "disable": "tests/clients/test_commands.py",
    "eval": "tests/evaluation",
    "events": "tests/clients/test_commands.py",
    "find": "tests/whole/test_registry_servers.py",
    "hook": "tests/clients/test_hook.py",
    "import": "tests/clients/test_import.py",
    "index": "tests/clients/test_indexing.py",
    "learn": "tests/clients/test_learned.py",
    "help": "tests/clients/test_help_and_ends.py",
    "mcp": "tests/clients/test_shim.py",
    "memory add": "tests/clients/test_memory_commands.py",
    "memory edit": "tests/clients/test_memory_commands.py",
    "memory forget": "tests/clients/test_memory_commands.py",
    "memory list": "tests/clients/test_memory_commands.py",
    "memory suggest": "tests/clients/test_memory_commands.py",
    "logout": "tests/whole/test_logins.py",
    "metrics": "tests/clients/test_records.py",
    "reload": "tests/clients/test_commands.py",
    "run": "tests/whole/test_scripts.py",
    "restart": "tests/clients/test_help_and_ends.py",
    "routing": "tests/clients/test_commands.py",
    "search": "tests/clients/test_commands.py",
    "secret list": "tests/clients/test_secrets.py",
    "secret remove": "tests/clients/test_secrets.py",
    "stop": "tests/clients/test_commands.py",
    "sessions": "tests/clients/test_commands.py",
    "tap list": "tests/clients/test_taps.py",
    "tap update": "tests/clients/test_tap_git.py",
    "update": "tests/whole/test_registry_servers.py",
    "version": "tests/clients/test_commands.py",
    "tap build": "tests/whole/test_tap_build.py",
}
NOT_RUN_AS_WRITTEN = {
    "daemon install": "takes a service manager: tests/reliability/test_systemd.py has a real one",
    "login": "takes a browser: tests/whole/test_logins.py plays it",
    "trust definitions": "takes a server that changes: tests/clients/test_trusting.py",
    "trust project": "takes a hostile project and a terminal: tests/whole/test_trust.py",
}


@pytest.mark.parametrize("page", pages.pages(), ids=lambda page: page.name)
def test_a_page_has_no_command_that_capd_does_not_take(page: Path) -> None:
    wrong = []

    for command in (each for each in pages.commands() if each.page == page.name):
        try:
            command_tree.check(command.words)
        except NoSuchCommandError as error:
            wrong.append(f"{command}: {error}")

    assert wrong == []


def test_every_command_that_is_written_of_is_run_by_a_test() -> None:
    paths = {command_tree.check(each.words) for each in pages.commands()} - {""}
    here = {
        command_tree.check(line)
        for page in RUN_HERE
        for line in pages.typed_lines(page)
        if line.startswith("capd ")
    }

    unrun = paths - here - RUN_ELSEWHERE.keys() - NOT_RUN_AS_WRITTEN.keys()

    assert unrun - {"config", "daemon", "secret", "tap", "trust"} == set()


@pytest.mark.parametrize(("command", "where"), RUN_ELSEWHERE.items())
def test_the_tests_that_run_the_others_are_there(command: str, where: str) -> None:
    place = ROOT / where
    files = [place] if place.is_file() else list(place.rglob("*.py"))

    words = {word for file in files for word in re.findall(r"[\w-]+", file.read_text("utf-8"))}

    assert set(command.split()) <= words


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("capd moon", "capd  has no moon"),
        ("capd tap fly", "capd tap has no fly"),
        ("capd status --moon", "No such option"),
        ("capd stop now", "now is too much"),
        ("capd install moon", "names is one of claude, claude-desktop, "),
        ("capd eval route --moon", "capd eval does not take that"),
    ],
)
def test_what_capd_does_not_take_is_found(words: str, why: str) -> None:
    with pytest.raises(NoSuchCommandError) as caught:
        command_tree.check(words)

    assert str(caught.value).startswith(why)


def test_a_synopsis_is_each_of_the_commands_that_it_means(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text with `capd routing on\\|off` in it.\n\n"
        "    capd install NAME [--dry-run]     what it does\n"
        '    eval "$(capd completion zsh)"\n'
        "    capd tap list   capd stop\n\n"
        "1. a list\n    capd is no command here\n"
    )

    found = [words for _, text in pages.texts_of(page) for words in pages.spelled_out(text)]

    assert found == [
        "capd install NAME --dry-run",
        "capd completion zsh",
        "capd tap list",
        "capd stop",
        "capd routing on",
        "capd routing off",
    ]
