"""`capd trust definitions` and other commands that show definitions."""

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from capd_client import commands, definition_texts

from .conftest import PATIENT, FakeDaemon

Run = Callable[..., Result]

DIFFERENCE = '--- git:log (trusted)\n+++ git:log (listed)\n-  "a"\n+  "b\x1b[2J"'
CHANGED = {
    "tool": "log",
    "kind": "changed",
    "digest": "c1",
    "is_withheld": True,
    "is_rejected": False,
    "seen_at": 0.0,
    "difference": DIFFERENCE,
}
REMOVED = {
    **CHANGED,
    "tool": "diff",
    "kind": "removed",
    "digest": "r1",
    "is_withheld": False,
    "difference": "",
}
GIT = {
    "name": "git",
    "identity": "9c1e",
    "tools": 2,
    "standing": "pinned",
    "is_lost": False,
    "changes": [CHANGED, REMOVED],
    "flags": [{"tool": "log", "code": "secret_file", "seen": "~/.ssh/", "source": "a paper"}],
}
QUIET = {**GIT, "name": "fs", "identity": "7", "standing": "", "changes": [], "flags": []}
FOUND: dict[str, Any] = {
    "schema": 1,
    "mode": "notify",
    "servers": [QUIET, GIT],
    "problems": ["a file was damaged"],
}
DECIDED = {"schema": 1, "decided": ["log"], "stale": [], "problem": ""}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    path = tmp_path / "s"
    made = FakeDaemon(path, {"definitions": FOUND, "trust_definitions": DECIDED})
    yield made
    made.close()


@pytest.fixture
def run(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("CAPD_SOCKET", str(daemon.path))

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(commands.cli, [*arguments], prog_name="capd")

    return invoke


def on_a_terminal(daemon: FakeDaemon, answer: str, *arguments: str) -> tuple[str, int]:
    """Run `capd` on a terminal, answering its question; return its output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "capd_client.entry", *arguments],
        env={**os.environ, "CAPD_SOCKET": str(daemon.path)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said, is_answered = b"", False
    while select.select([ours], [], [], PATIENT)[0]:
        try:
            chunk = os.read(ours, 4096)
        except OSError:
            # The terminal is gone with its last user.
            break
        said += chunk
        if b"[y/N]" in said and not is_answered:
            is_answered = True
            os.write(ours, answer.encode() + b"\n")
    code = process.wait(PATIENT)
    os.close(ours)
    return said.decode().replace("\r\n", "\n"), code


def test_changes_are_shown_with_their_difference_and_steer_no_terminal(run: Run) -> None:
    result = run("trust", "definitions")

    assert result.exit_code == 0
    assert result.output.split("\n") == [
        "problem: a file was damaged",
        "git (of a pinned version: changes are withheld): 2 tools are trusted",
        "  log: changed, withheld",
        "--- git:log (trusted)",
        "+++ git:log (listed)",
        '-  "a"',
        '+  "b\\x1b[2J"',
        "  diff: removed",
        "",
        "Trust them with --accept, withhold them with --reject.",
        "",
    ]


def test_where_nothing_has_changed_one_line_says_so(run: Run, daemon: FakeDaemon) -> None:
    assert daemon.answers is not None
    daemon.answers["definitions"] = {**FOUND, "servers": [QUIET], "problems": []}

    result = run("trust", "definitions")

    expected = "nothing has changed: 2 tools of 1 server are as they were trusted\n"
    assert (result.exit_code, result.output) == (0, expected)


def test_a_server_that_nobody_has_met_is_said_to_be_unknown(run: Run, daemon: FakeDaemon) -> None:
    assert daemon.answers is not None
    daemon.answers["definitions"] = {**FOUND, "servers": []}

    result = run("trust", "definitions", "gti")

    assert result.exit_code == 1
    assert result.output.startswith("capd: gti was never started")


@pytest.mark.parametrize("word", ["--accept", "--reject"])
def test_without_a_terminal_nothing_is_decided(run: Run, daemon: FakeDaemon, word: str) -> None:
    result = run("trust", "definitions", "git", word)

    assert result.exit_code == 1
    assert "a decision needs a terminal" in result.output
    assert [each["method"] for each in daemon.requests()] == ["definitions"]


@pytest.mark.parametrize(("word", "is_accepted"), [("--accept", True), ("--reject", False)])
def test_a_person_decides_on_what_they_were_shown(
    daemon: FakeDaemon, word: str, is_accepted: bool
) -> None:
    said, code = on_a_terminal(daemon, "y", "trust", "definitions", "git", word, "--tool", "log")

    assert code == 0, said
    assert f"1 definitions of git are {'trusted' if is_accepted else 'withheld'}." in said
    assert daemon.requests()[-1] == {
        "method": "trust_definitions",
        "params": {"identity": "9c1e", "digests": {"log": "c1"}, "accept": is_accepted},
    }


def test_whoever_does_not_say_yes_has_decided_nothing(daemon: FakeDaemon) -> None:
    said, code = on_a_terminal(daemon, "", "trust", "definitions", "git", "--accept")

    assert (code, "Nothing is decided." in said) == (0, True)
    assert [each["method"] for each in daemon.requests()] == ["definitions"]


def test_what_changed_meanwhile_is_an_error(daemon: FakeDaemon) -> None:
    assert daemon.answers is not None
    daemon.answers["trust_definitions"] = {**DECIDED, "decided": [], "stale": ["log"]}

    said, code = on_a_terminal(daemon, "y", "trust", "definitions", "git", "--accept")

    assert code == 1
    assert "these have changed since they were shown; look again: log" in said


def test_json_is_the_answer_as_it_came(run: Run) -> None:
    result = run("trust", "definitions", "--json")

    assert json.loads(result.output) == FOUND


def test_flags_are_shown_with_where_they_are_known_from(run: Run, daemon: FakeDaemon) -> None:
    result = run("tools", "--flags")

    assert result.output.split() == [
        *("server", "tool", "flag", "seen", "known", "from"),
        *("git", "log", "secret_file", "~/.ssh/", "a", "paper"),
    ]
    assert daemon.requests()[-1]["params"] == {"flags": True}


@pytest.mark.parametrize(
    ("definitions", "line"),
    [
        ({}, ""),
        ({"changed": 0, "servers": []}, ""),
        (
            {"changed": 2, "removed": 1, "withheld": 2, "servers": ["git", "fs"]},
            (
                "definitions: 2 changed, 1 removed tools of git, fs, 2 withheld"
                " (see: capd trust definitions)"
            ),
        ),
        (
            {"lost": ["git"]},
            (
                "definitions: nothing changed; what was trusted of git is lost"
                " (see: capd trust definitions)"
            ),
        ),
    ],
)
def test_the_status_has_one_line_where_something_is_to_be_decided(
    definitions: dict[str, Any], line: str
) -> None:
    got = definition_texts.status_line({"definitions": definitions})

    assert got == line
