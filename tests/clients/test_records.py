"""The output of `capd why`, `logs` and `metrics`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from capd_client import commands

from .conftest import FakeDaemon

Start = Callable[..., FakeDaemon]
Run = Callable[..., Result]

DECISION = {
    "at": 1_800_000_000.0,
    "session": "zed-1",
    "fingerprint": "993f6c75",
    "outcome": "activate",
    "name": "mine/mail",
    "reason": "",
    "top": [{"name": "mine/mail", "score": 0.91}, {"name": "starter/git", "score": 0.2}],
    "suggested": [],
    "left_out": {},
    "ms": 4.0,
    "why": "mine/mail scored 0.91",
    "came": "it could not be switched on: Capability 'mail' needs TOKEN\x1b[2J",
    "next": ["it needs TOKEN: capd secret set TOKEN", "then: capd enable mine/mail"],
    "learnt": [
        {
            "name": "mine/mail",
            "offset": 0.3,
            "project_offset": 0.0,
            "enabled": 2,
            "disabled": 0,
            "called": 1,
            "since": 1_799_990_000.0,
            "last_at": 1_799_999_000.0,
        }
    ],
}
OLDER = {**DECISION, "at": 1_799_999_000.0, "fingerprint": "11111111", "came": "", "next": []}
FAILED = {"at": 1.8e9, "session": "s", "name": "a/b", "action": "failed", "why": "no such file"}
WHY: dict[str, Any] = {
    "schema": 1,
    "source": "ledger",
    "problem": "",
    "decisions": [DECISION, OLDER],
    "activations": [FAILED, {**FAILED, "action": "on"}],
}
SCRIPT = {
    "at": 1_800_000_000.0,
    "session": "zed-1",
    "outcome": "error",
    "ms": 1500.0,
    "calls": [
        {"tool": "git__log", "outcome": "result", "count": 12, "ms": 20.0},
        {"tool": "git__show\x1b", "outcome": "not_sent", "count": 1, "ms": 0.0},
    ],
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, base_env: dict[str, str]) -> Run:
    """Run a `capd` command; return its output."""
    for name in list(os.environ):
        if name.startswith(("CAPD_", "XDG_", "COLUMNS")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TZ", "UTC")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(commands.cli, arguments, env=base_env, prog_name="capd")

    return run


def test_why_tells_the_newest_decision_last_with_its_reason_and_the_way_out(
    start_daemon: Start, run: Run
) -> None:
    start_daemon({"why": WHY})

    result = run("why")

    lines = [line[16:] if line.startswith("01-") else line for line in result.stdout.splitlines()]
    assert [line for line in lines if "message" in line] == [
        "zed-1  message 11111111  activate mine/mail",
        "zed-1  message 993f6c75  activate mine/mail",
    ]
    assert lines[-10:] == [
        "zed-1  message 993f6c75  activate mine/mail",
        "  scores: mine/mail 0.91, starter/git 0.20",
        "  why:    mine/mail scored 0.91",
        "  learnt: mine/mail +0.30 since 2027-01-15 (switched on 2, switched off 0, called 1)",
        "  then:   it could not be switched on: Capability 'mail' needs TOKEN\\x1b[2J",
        "  next:   it needs TOKEN: capd secret set TOKEN",
        "  next:   then: capd enable mine/mail",
        "",
        "not switched on, though a model or a person asked for it",
        lines[-1],
    ]
    assert lines[-1].endswith("s  a/b: no such file")
    assert result.exit_code == 0


def test_why_shows_scripts_and_what_they_called(start_daemon: Start, run: Run) -> None:
    start_daemon({"why": {**WHY, "activations": [], "scripts": [SCRIPT]}})

    result = run("why")

    assert result.stdout.splitlines()[-3:] == [
        "",
        "scripts, and what they called",
        "  01-15 08:00:00  zed-1  error in 1,500 ms: git__log x12, git__show\\x1b not_sent",
    ]


def test_why_asks_for_what_was_named_and_json_is_the_answer_as_it_came(
    start_daemon: Start, run: Run
) -> None:
    daemon = start_daemon({"why": WHY})

    result = run("why", "--session", "zed-1", "-n", "3", "--json")

    assert json.loads(result.stdout) == WHY
    asked = daemon.requests()[-1]
    assert (asked["method"], asked["params"]) == ("why", {"session": "zed-1", "limit": 3})


def test_why_without_a_ledger_says_what_it_tells_from(start_daemon: Start, run: Run) -> None:
    start_daemon({"why": {**WHY, "source": "memory", "problem": "nothing is recorded"}})

    result = run("why")

    assert result.stderr == "from memory, since the daemon began: nothing is recorded\n"


def test_why_says_what_to_do_where_no_message_was_heard(start_daemon: Start, run: Run) -> None:
    start_daemon({"why": {**WHY, "decisions": [], "activations": []}})

    result = run("why")

    assert "capd turn TEXT" in result.stdout


def test_metrics_are_printed_as_they_came(start_daemon: Start, run: Run) -> None:
    text = "# TYPE capd_up gauge\ncapd_up 1.0\n"
    start_daemon({"metrics": {"schema": 1, "text": text}})

    assert run("metrics").stdout == text
    assert json.loads(run("metrics", "--json").stdout) == {"schema": 1, "text": text}


# The log


def line(event: str, level: str = "info", **facts: Any) -> str:
    written = {"event": event, **facts, "level": level, "timestamp": "2026-11-22T09:00:00.1Z"}
    return json.dumps(written)


LOG = [
    line("daemon_ready", socket="/run/a socket"),
    line("session_opened", session="one", client="zed"),
    "Traceback: \x1b[2J",
    line("server_failed", "warning", session="two", reason="it broke"),
    line("session_ended", session="one"),
]


@pytest.fixture
def log_file(home: Path) -> Path:
    """A log of a daemon that a client started."""
    file = home / "state" / "capd.log"
    file.parent.mkdir()
    file.write_text("\n".join(LOG) + "\n")
    return file


@pytest.mark.parametrize(
    ("arguments", "events"),
    [
        ((), ["daemon_ready", "session_opened", "Traceback:", "server_failed", "session_ended"]),
        (("-n", "2"), ["server_failed", "session_ended"]),
        (("-n", "0"), []),
        (("-n", "9" * 30, "--level", "warning"), ["server_failed"]),
        (("-n", "9" * 30, "--session", "two"), ["server_failed"]),
        (("--session", "one"), ["session_opened", "session_ended"]),
        (("--session", "one", "-n", "1"), ["session_ended"]),
        (("--level", "warning"), ["server_failed"]),
        (("--session", "one", "--level", "error"), []),
    ],
)
def test_the_last_lines_that_are_wanted_are_shown(
    run: Run, log_file: Path, arguments: tuple[str, ...], events: list[str]
) -> None:
    result = run("logs", *arguments)

    shown = [each.split() for each in result.stdout.splitlines()]
    assert [each[0] if each[0] == "Traceback:" else each[3] for each in shown] == events
    assert (result.stderr, result.exit_code) == ("", 0)


def test_a_line_is_told_in_words_and_steers_no_terminal(run: Run, log_file: Path) -> None:
    spoken, machine = run("logs").stdout.splitlines(), run("logs", "--json").stdout

    assert spoken[0].endswith('info    daemon_ready socket="/run/a socket"')
    assert spoken[2] == "Traceback: \\x1b[2J"
    assert spoken[3].endswith('warning server_failed session=two reason="it broke"')
    assert machine.splitlines() == [each for each in LOG if each.startswith("{")]


def test_a_log_that_is_not_there_is_said_with_what_makes_one(run: Run, home: Path) -> None:
    result = run("logs")

    assert result.exit_code == 1
    assert result.stderr.startswith(f"capd: there is no log at {home / 'state' / 'capd.log'}\n")
    assert "capd daemon start" in result.stderr


@pytest.mark.parametrize(
    ("count", "events"), [("3", ["b", "c", "d"]), ("2", ["c", "d"]), ("1", ["d"]), ("9", [*"abcd"])]
)
def test_what_was_moved_aside_is_shown_before_what_came_since(
    run: Run, log_file: Path, count: str, events: list[str]
) -> None:
    log_file.with_name("capd.log.2").write_text(line("a") + "\n" + line("b") + "\n")
    log_file.with_name("capd.log.1").write_text(line("c") + "\n")
    log_file.write_text(line("d") + "\n")

    result = run("logs", "--json", "-n", count)

    assert [json.loads(each)["event"] for each in result.stdout.splitlines()] == events


@pytest.fixture
def following(log_file: Path, base_env: dict[str, str]) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "capd_client.entry", "logs", "-f", "--json", "-n", "1"],
        env=base_env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_what_comes_is_followed_without_a_line_twice_and_ends_with_ctrl_c(
    following: "subprocess.Popen[str]", log_file: Path
) -> None:
    assert following.stdout is not None
    assert following.stdout.readline() == LOG[-1] + "\n"
    with log_file.open("a") as file:
        file.write(line("one_more") + "\n")

    heard = following.stdout.readline()
    following.send_signal(signal.SIGINT)
    rest, said = following.communicate()

    assert heard == line("one_more") + "\n"
    assert (rest, said, following.returncode) == ("", "", 0)


def test_who_follows_goes_on_where_the_file_is_moved_aside(
    following: "subprocess.Popen[str]", log_file: Path
) -> None:
    assert following.stdout is not None
    following.stdout.readline()
    log_file.rename(log_file.with_name("capd.log.1"))

    log_file.write_text(line("one_more") + "\n")

    assert following.stdout.readline() == line("one_more") + "\n"


def test_a_reader_that_goes_away_ends_it_without_a_word(
    following: "subprocess.Popen[str]", log_file: Path
) -> None:
    assert following.stdout is not None
    assert following.stderr is not None
    following.stdout.readline()
    following.stdout.close()

    with log_file.open("a") as file:
        file.write((line("one_more") + "\n") * 10)

    following.wait()
    assert following.stderr.read() == ""


@pytest.mark.parametrize(
    ("ledger", "line"),
    [
        ({"enabled": False}, "records: none are kept ([ledger] enabled = false)"),
        (
            {"enabled": True, "rows": {"calls": 2, "decisions": 0}, "size_bytes": 1 << 20},
            "records: 2 calls, 1 MiB",
        ),
        (
            {"enabled": True, "rows": {}, "size_bytes": 0, "waiting": 3, "dropped": 4},
            "records: none yet, 0 MiB, 3 waiting, 4 dropped",
        ),
    ],
)
def test_the_status_has_a_line_about_the_ledger(
    start_daemon: Start, run: Run, ledger: dict[str, Any], line: str
) -> None:
    start_daemon({"status": {"schema": 1, "daemon": {}, "ledger": ledger}})

    assert line in run("status").stdout.splitlines()


def test_topics_are_named_either_way(start_daemon: Start, run: Run) -> None:
    event = {"topic": "server.exited", "event": {"type": "server.exited"}}
    daemon = start_daemon({"events": {"result": {"schema": 1, "topics": []}, "then": [event]}})

    run("events", "server.", "--topic", "session.")

    assert daemon.requests()[-1]["params"] == {"topics": ["server.", "session."]}
