"""`capd status --tokens`: what each number counts, and which are unknown."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from capd_client import commands

from .conftest import FakeDaemon

Start = Callable[..., FakeDaemon]

SESSION: dict[str, Any] = {
    "key": "zed-1",
    "client": "zed",
    "mode": "dynamic",
    "counting": False,
    "surface": {"tools": 6, "tokens": 840, "list": 710, "own_tools": 633, "instructions": 130},
    "all_tools": {"tools": 340, "tokens": 41_000, "unlisted": ["calc", "git"]},
    "saved": 40_160,
    "added": {
        "tokens": 1166,
        "turns": {"count": 1, "tokens": 40, "uncounted": 0},
        "searches": {"count": 2, "tokens": 1000, "uncounted": 1},
        "answers": {"count": 0, "tokens": 0, "uncounted": 0},
        "list_changes": {"count": 1, "tokens": 126, "uncounted": 0},
    },
    "net": 38_994,
    "last_changes": [{"at": 1.0, "added": 2, "removed": 1, "tokens": 126}],
}
TOKENS: dict[str, Any] = {
    "schema": 1,
    "vocabulary": "o200k_base",
    "problem": "",
    "sessions": [SESSION],
}
LAST = "Counted with o200k_base: exact for OpenAI's models, an estimate for others."


def run(base_env: dict[str, str], *arguments: str) -> Result:
    cleared = {name: None for name in os.environ if name.startswith(("CAPD_", "XDG_", "COLUMNS"))}
    return CliRunner().invoke(
        commands.cli, arguments, env={**cleared, **base_env, "TZ": "UTC"}, prog_name="capd"
    )


def lines_of(result: Result) -> list[str]:
    assert result.exit_code == 0, result.stderr
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_each_sum_stands_with_what_it_is_of(start_daemon: Start, base_env: dict[str, str]) -> None:
    start_daemon({"tokens": TOKENS})

    result = run(base_env, "status", "--tokens")

    lines = lines_of(result)
    without = "without 2 servers never asked for theirs (capd index): calc, git"
    assert lines[:13] == [
        "zed-1 zed, dynamic",
        (
            "Each prompt carries 840 tokens of tools and instructions instead of 41,000 of tools. "
            "So far it added 1,166 more in texts and lists: in all 38,994 fewer than with every "
            "tool listed."
        ),
        "list of tools 710 6 tools",
        "capd's own 633 of these",
        "instructions 130",
        "before every prompt 840",
        f"all tools 41,000 340 tools; {without}",
        "saved 40,160",
        "turns 40 1 text",
        "searches 1,000 2 answers, 1 of them uncounted",
        "answers 0 0 answers",
        "list changes 126 1 change",
        "net 38,994 as if all of it were one prompt",
    ]
    assert lines[13].split(" ", 1)[1] == "126 2 came, 1 went"
    assert lines[14:] == ["", LAST]


@pytest.mark.parametrize(
    ("session", "said"),
    [
        pytest.param({"counting": True}, "counting", id="counting"),
        pytest.param({}, "unknown", id="not counted"),
        pytest.param({"surface": {"tools": None}, "counting": True}, "not listed", id="not listed"),
    ],
)
def test_what_is_not_known_is_said_and_no_number(
    start_daemon: Start, base_env: dict[str, str], session: dict[str, Any], said: str
) -> None:
    unknown = {"surface": {"tools": 6, "tokens": None}, "all_tools": {"tokens": None}}
    bare = {"key": "zed-1", "client": "zed", "mode": "auto", "saved": None, "net": None}
    start_daemon({"tokens": {**TOKENS, "sessions": [{**bare, **unknown, **session}]}})

    result = run(base_env, "status", "--tokens")

    rows = [line for line in lines_of(result) if said in line]
    assert [row.partition(f" {said}")[0] for row in rows] == [
        *("list of tools", "capd's own", "instructions", "before every prompt", "all tools"),
        *("saved", "turns", "searches", "answers", "list changes", "net"),
    ]


def test_a_loss_is_called_one(start_daemon: Start, base_env: dict[str, str]) -> None:
    start_daemon({"tokens": {**TOKENS, "sessions": [{**SESSION, "saved": -763}]}})

    result = run(base_env, "status", "--tokens")

    assert "lost 763 the list of all tools is shorter" in lines_of(result)


def test_what_capd_costs_is_said_in_words_over_the_time_of_the_session(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    few = {**SESSION, "all_tools": {"tools": 4, "tokens": 300}, "saved": -540, "net": -1706}
    sessions = {"schema": 1, "sessions": [{"key": "zed-1", "age_s": 7_260}]}
    start_daemon({"tokens": {**TOKENS, "sessions": [few]}, "sessions": sessions})

    result = run(base_env, "status", "--tokens")

    # Longer than a line of a file, so it is wrapped.
    assert " ".join(lines_of(result)[1:3]) == (
        "Each prompt carries 840 tokens of tools and instructions instead of 300 of tools. "
        "In 2 h 1 min it added 1,166 more in texts and lists: in all 1,706 more than with every "
        "tool listed, because so few are installed."
    )
    assert "net cost 1,706 more than all tools, as if all of it were one prompt" in lines_of(result)
    assert "-" not in "".join(lines_of(result)[3:13])


def test_a_tokenizer_that_failed_is_the_first_line(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    problem = "Tokens are not counted: reinstall capd\x1b[2J"
    start_daemon({"tokens": {**TOKENS, "problem": problem, "sessions": []}})

    result = run(base_env, "status", "--tokens")

    shown = "Tokens are not counted: reinstall capd\\x1b[2J"
    assert lines_of(result) == [shown, "no session is open", LAST]


def test_json_is_the_daemons_answer(start_daemon: Start, base_env: dict[str, str]) -> None:
    start_daemon({"tokens": TOKENS})

    result = run(base_env, "status", "--tokens", "--json")

    assert json.loads(result.stdout) == TOKENS


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        (
            {"tokens": 840, "tokens_saved": 900, "tokens_state": "counted"},
            "840 tokens of tools, 900 fewer so far than with every tool",
        ),
        (
            {"tokens": 840, "tokens_saved": -9, "tokens_state": "counted"},
            "840 tokens of tools, 9 more so far than with every tool",
        ),
        ({"tokens": None, "tokens_saved": None, "tokens_state": "counting"}, "tokens: counting"),
        (
            {"tokens": 840, "tokens_saved": None, "tokens_state": "counting"},
            "840 tokens of tools, counting",
        ),
        (
            {"tokens": None, "tokens_saved": None, "tokens_state": "not_listed"},
            "tokens: not listed",
        ),
        (
            {"tokens": None, "tokens_saved": None, "tokens_state": "not_counted"},
            "tokens: not counted",
        ),
    ],
)
def test_the_status_says_what_a_session_costs_as_far_as_it_is_known(
    start_daemon: Start, base_env: dict[str, str], tokens: dict[str, Any], shown: str
) -> None:
    session = {"key": "zed-1", "surface": 6, "available": 6, "mode": "auto", **tokens}
    start_daemon({"status": {"schema": 1, "daemon": {}, "sessions": [session]}})

    result = run(base_env, "status")

    lines = lines_of(result)
    assert lines[lines.index("6/6 tools, auto") + 1] == shown


def test_the_table_of_sessions_names_what_is_not_a_number(
    start_daemon: Start, base_env: dict[str, str]
) -> None:
    session = {"key": "zed-1", "client": "zed", "mode": "auto", "tokens_state": "not_listed"}
    start_daemon({"sessions": {"schema": 1, "sessions": [session]}})

    result = run(base_env, "sessions")

    assert lines_of(result)[1] == "zed-1 zed no auto 0/0 not listed not listed 0"
