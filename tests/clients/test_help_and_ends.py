"""Every command is listed in the help, and ends cleanly when interrupted or cut off."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from capd_client import commands
from capd_client.commands import purposes
from documents import command_tree

from .conftest import PATIENT, SILENCE, FakeDaemon

Start = Callable[..., FakeDaemon]

OPERATION = (
    *("status", "top", "sessions", "servers", "caps", "tools", "discover", "search", "enable"),
    *("disable", "turn", "call", "events", "doctor", "check", "index", "import", "install"),
    *("uninstall", "tap", "memory", "learn", "restart", "stop", "daemon", "mcp", "completion"),
    *("acp", "version"),
)
"""The verbs of docs/design/operation.md; `hook` is read before any of this, as it may not
wait, and `eval` becomes another program."""


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(commands.cli, arguments, prog_name="capd")


def listed_commands() -> list[str]:
    return commands.cli.list_commands(click.Context(commands.cli))


# Help


def test_help_is_one_screen_of_80_columns() -> None:
    lines = invoke("--help").stdout.splitlines()

    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_every_command_has_its_place_in_the_help() -> None:
    listed = commands.cli.list_commands(
        commands.cli.make_context("capd", [], resilient_parsing=True)
    )

    told = {name for group in purposes.PURPOSES.values() for name in group}
    assert set(listed) - told == set()


def test_help_names_what_is_there_and_nothing_else() -> None:
    listed = commands.cli.list_commands(
        commands.cli.make_context("capd", [], resilient_parsing=True)
    )

    lines = list(purposes.lines(listed))

    cells = [line[9:][at : at + 36].split() for line in lines for at in (0, 36)]
    assert sorted(cell[0] for cell in cells if cell) == sorted(listed)


def test_a_command_without_a_place_is_listed_at_the_end() -> None:
    assert list(purposes.lines(["odd", "stop", "mcp"])) == [
        "Run      stop       end it in good order",
        "More     odd",
    ]


@pytest.mark.parametrize("verb", OPERATION)
def test_every_verb_is_there_or_says_that_it_is_not_yet(verb: str) -> None:
    shown = invoke(verb, "--help")

    assert shown.exit_code == 0
    assert shown.stdout.startswith("Usage: capd ")


def every_command() -> dict[str, click.Command]:
    context = click.Context(commands.cli)
    found: dict[str, click.Command] = {}

    def walk(path: str, command: click.Command) -> None:
        found[path] = command
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                walk(f"{path} {name}", each)

    for name in [*listed_commands(), "mcp"]:
        command = commands.cli.get_command(context, name)
        assert command is not None
        walk(name, command)
    return found


@pytest.mark.parametrize("path", every_command())
def test_every_command_has_an_example_that_it_takes(path: str) -> None:
    command = every_command()[path]
    words = shlex.split(purposes.EXAMPLES[path])

    assert words[: len(path.split())] == path.split()
    assert command.epilog is not None
    assert path == "completion" or f"  capd {purposes.EXAMPLES[path]}" in command.epilog
    if path != "eval":
        assert command_tree.check(f"capd {shlex.join(words)}").startswith(path)


@pytest.mark.parametrize("path", every_command())
def test_options_that_many_commands_have_stand_last_and_in_one_order(path: str) -> None:
    names = [each.name for each in every_command()[path].params if isinstance(each, click.Option)]
    common = [name for name in ("session", "yes", "as_json") if name in names]

    assert names[len(names) - len(common) :] == common


@pytest.mark.parametrize(
    "path", [path for path, each in every_command().items() if isinstance(each, click.Group)]
)
def test_no_one_liner_is_cut(path: str) -> None:
    for width in ("60", "120"):
        shown = CliRunner().invoke(
            commands.cli, [*path.split(), "--help"], prog_name="capd", env={"COLUMNS": width}
        )

        assert "..." not in shown.stdout.partition("Commands:")[2].partition("Example:")[0]


@pytest.mark.parametrize("arguments", [("--version",), ("-V",)])
def test_the_version_is_one_line(arguments: tuple[str, ...]) -> None:
    for _ in range(2):
        shown = invoke(*arguments)

        assert re.fullmatch(r"capd \d+\.\d+\.\d+\S*\n", shown.stdout)
        assert (shown.stderr, shown.exit_code) == ("", 0)


@pytest.mark.parametrize(
    ("words", "same"), [((), ()), (("call",), ("call",)), (("tap", "add"), ("tap", "add"))]
)
def test_help_is_a_command_too(words: tuple[str, ...], same: tuple[str, ...]) -> None:
    shown = invoke("help", *words)

    assert (shown.stdout, shown.exit_code) == (invoke(*same, "--help").stdout, 0)


@pytest.mark.parametrize("words", [("stauts",), ("status", "x"), ("tap", "x")])
def test_help_for_what_is_no_command_is_a_mistake(words: tuple[str, ...]) -> None:
    shown = invoke("help", *words)

    assert shown.exit_code == 2
    assert words[-1] in shown.stderr


def test_list_lists_the_capabilities() -> None:
    assert invoke("list", "--help").stdout.startswith("Usage: capd list [OPTIONS]\n\n  List every")


def test_a_mistyped_command_is_told_the_near_one() -> None:
    shown = invoke("stauts")

    assert "No such command 'stauts'" in shown.stderr
    assert "Did you mean status or restart?" in shown.stderr
    assert shown.exit_code == 2


# Ends

WAITING: dict[str, tuple[str, ...]] = {
    "status": (),
    "caps": (),
    "servers": (),
    "sessions": (),
    "tools": (),
    "discover": ("x",),
    "search": ("x",),
    "turn": ("x",),
    "enable": ("x",),
    "disable": ("x",),
    "call": ("x",),
    "index": (),
    "events": (),
    "reload": (),
    "stop": (),
    "login": ("x",),
    "logout": ("x",),
}
"""Commands that wait for the daemon, and what they need beside their name."""


def start(env: dict[str, str], *arguments: str, stdout: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "capd_client.entry", *arguments]
    return subprocess.Popen(command, env=env, stdout=stdout, stderr=subprocess.PIPE)


def wait_until(look: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENT
    while not look():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.mark.parametrize("command", WAITING)
def test_an_interrupt_ends_it_without_a_word(
    start_daemon: Start, base_env: dict[str, str], command: str
) -> None:
    daemon = start_daemon({command: SILENCE})
    with start(base_env, command, *WAITING[command], stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: command in [each["method"] for each in daemon.requests()])

        process.send_signal(signal.SIGINT)

        assert process.stderr is not None
        # To be interrupted is how following events ends well.
        code = 0 if command == "events" else 130
        assert (process.stderr.read(), process.wait(PATIENT)) == (b"", code)


LONG = [{"name": "x" * 100, "description": "y" * 100}] * 40
PRINTING: dict[str, Any] = {
    "status": {"schema": 1, "daemon": {}, "servers": LONG},
    "caps": {"schema": 1, "capabilities": LONG},
    "servers": {"schema": 1, "servers": LONG},
    "sessions": {"schema": 1, "sessions": LONG},
    "tools": {"schema": 1, "tools": LONG},
    "discover": {"schema": 1, "hits": LONG},
    "search": {"schema": 1, "hits": LONG},
    "turn": {"schema": 1, "outcome": "abstain", "reason": "x" * 100_000},
    "reload": {"schema": 1, "taps": LONG},
    "events": {"result": {"schema": 1}, "then": [{"topic": "x", "event": {}}] * 5000},
}


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("command", PRINTING)
def test_a_reader_that_goes_away_ends_it_without_a_word(
    start_daemon: Start, base_env: dict[str, str], command: str, more: tuple[str, ...]
) -> None:
    start_daemon(PRINTING)
    read_end, write_end = os.pipe()
    os.close(read_end)

    with start(base_env, command, *WAITING[command], *more, stdout=write_end) as process:
        os.close(write_end)

        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(PATIENT)) == (b"", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--help",),
        ("version",),
        ("check",),
        ("tap", "list"),
        ("completion", "fish"),
    ],
)
def test_the_same_for_those_that_ask_nobody(
    base_env: dict[str, str], arguments: tuple[str, ...]
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)

    with start(base_env, *arguments, stdout=write_end) as process:
        os.close(write_end)

        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("arguments", [("status",), ("caps",), ("approve",)])
def test_a_command_runs_without_standard_input_and_output(
    start_daemon: Start, base_env: dict[str, str], arguments: tuple[str, ...]
) -> None:
    start_daemon({**PRINTING, "approvals": {"schema": 1}})
    command = [sys.executable, "-m", "capd_client.entry", *arguments]

    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command],
        env=base_env,
        stderr=subprocess.PIPE,
        check=False,
    )

    assert (done.stderr, done.returncode) == (b"", 0)


@pytest.mark.parametrize("arguments", [("status",), ("caps",), ("--help",)])
def test_a_full_disk_is_told_in_one_line(
    start_daemon: Start, base_env: dict[str, str], arguments: tuple[str, ...]
) -> None:
    start_daemon(PRINTING)

    with Path("/dev/full").open("wb") as full:
        process = start(base_env, *arguments, stdout=full.fileno())

    _, said = process.communicate()
    assert (said, process.returncode) == (b"capd: No space left on device\n", 1)


def test_no_command_says_more_than_what_why_and_what_next(
    base_env: dict[str, str], socket_at: Path
) -> None:
    spoken = []
    for command, words in WAITING.items():
        with start(base_env, command, *words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            spoken.append((process.stdout.read(), process.stderr.read(), process.wait(PATIENT)))

    said = f"capd: no daemon at {socket_at}\nStart it with: capd daemon start\n".encode()
    assert set(spoken) == {(b"", said, 3)}
    assert not re.search(rb"Traceback", said)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("login", ""), "SERVER"),
        (("logout", ""), "SERVER"),
        (("call", ""), "NAME"),
        (("enable", " "), "NAME"),
        (("disable", ""), "NAME"),
        (("memory", "forget", ""), "NAME"),
        (("memory", "edit", ""), "NAME"),
        (("approve", "--forget", ""), "--forget"),
    ],
)
def test_an_empty_argument_is_named(arguments: tuple[str, ...], name: str) -> None:
    said = invoke(*arguments)

    assert said.exit_code == 2
    assert f"Error: Invalid value for '{name}': it is empty\n" in said.stderr


@pytest.mark.parametrize("arguments", [("import", "--dry-run"), ("check", "."), ("eval", "route")])
def test_a_command_in_a_folder_that_was_removed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    said = invoke(*arguments)

    assert (
        said.stderr == "capd: the current folder does not exist any more\nGo to another one: cd\n"
    )
    assert said.exit_code == 1
