"""`capd config` and `capd trust`, with and without a person at the terminal."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from capd_client import commands

from .conftest import FakeDaemon

Run = Callable[..., Result]
Start = Callable[..., FakeDaemon]

CONFIG: dict[str, Any] = {
    "schema": 1,
    "project": "",
    "values": [
        {"key": "servers.linger", "value": 5.0, "origin": "/c/config.toml"},
        {"key": "sessions.tools", "value": 24, "origin": ""},
        {"key": "surface.pins", "value": ["é:*"], "origin": "CAPD_X"},
    ],
    "problems": [],
    "project_files": {},
    "needs_restart": ["embedder.placement"],
    "not_watched": "",
}
PROBLEM = "/c/config.toml is not used: line 3\x1b[2J"
SHOWN: dict[str, Any] = {"schema": 1, "project": "/p", "servers": [], "findings": []}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, base_env: dict[str, str]) -> Run:
    for name in list(os.environ):
        if name.startswith(("CAPD_", "XDG_", "COLUMNS")):
            monkeypatch.delenv(name)

    def run(*arguments: str, **env: str) -> Result:
        return CliRunner().invoke(
            commands.cli, arguments, env={**base_env, **env}, prog_name="capd"
        )

    return run


def test_what_is_set_is_shown_and_defaults_are_not(start_daemon: Start, run: Run) -> None:
    start_daemon({"config": CONFIG})

    result = run("config", "show")

    assert result.stdout.splitlines() == [
        "servers.linger = 5.0",
        'surface.pins = ["é:*"]',
        "# embedder.placement counts from the next start on: capd restart",
    ]
    assert result.exit_code == 0


def test_every_value_says_where_it_is_from(start_daemon: Start, run: Run) -> None:
    start_daemon({"config": CONFIG})

    result = run("config", "show", "--origin", "--project", "/p")

    assert result.stdout.splitlines()[:3] == [
        "servers.linger = 5.0  # /c/config.toml",
        "sessions.tools = 24  # default",
        'surface.pins = ["é:*"]  # CAPD_X',
    ]


def test_a_file_that_is_not_used_is_said_and_degrades(start_daemon: Start, run: Run) -> None:
    start_daemon({"config": {**CONFIG, "problems": [PROBLEM]}})

    result = run("config", "show")

    assert result.stderr == "/c/config.toml is not used: line 3\\x1b[2J\n"
    assert result.exit_code == 4


def test_without_a_daemon_it_is_what_the_files_have(run: Run, home: Path) -> None:
    (home / "config").mkdir()
    (home / "config/config.toml").write_text("[servers]\nlinger = 7\nlingr = 3\n")

    result = run("config", "show", "--json", CAPD_TOOLS="3")
    shown = json.loads(result.stdout)

    by_key = {each["key"]: (each["value"], each["origin"]) for each in shown["values"]}
    assert by_key["servers.linger"] == (7.0, str(home / "config/config.toml"))
    assert by_key["sessions.capabilities"] == (4, "")
    unknown = "unknown key `servers.lingr` is read over; did you mean `linger`?"
    assert shown["problems"] == [f"{home}/config/config.toml: line 3: {unknown}"]
    assert result.exit_code == 4


def test_the_schema_needs_no_daemon(run: Run) -> None:
    schema = json.loads(run("config", "schema").stdout)

    assert schema["title"] == "capd config.toml"


def test_the_places_of_the_files_are_said_whether_they_are_there_or_not(
    run: Run, home: Path
) -> None:
    result = run("config", "path", "--project", "/p")

    assert result.stdout.splitlines() == [
        str(home / "config/config.toml"),
        str(home / "config/clients.toml"),
        "/p/.capd.toml",
    ]


@pytest.mark.parametrize("arguments", [("trust",), ("trust", "/p"), ("trust", "--revoke")])
def test_nothing_is_trusted_without_a_terminal(
    start_daemon: Start, run: Run, arguments: tuple[str, ...]
) -> None:
    daemon = start_daemon({"trust": SHOWN, "trust_grant": SHOWN, "trust_revoke": SHOWN})

    result = run(*arguments)

    assert result.exit_code == 1
    assert "asks a person, on a terminal, and this is none: nothing was trusted" in result.stderr
    assert daemon.requests() == []


def test_what_a_project_would_start_can_be_looked_at_without_a_terminal(
    start_daemon: Start, run: Run
) -> None:
    start_daemon({"trust": SHOWN})

    result = run("trust", "/p", "--json")

    assert json.loads(result.stdout) == SHOWN


def test_what_is_trusted_is_listed(start_daemon: Start, run: Run) -> None:
    listed = {"schema": 1, "projects": [{"project": "/p", "servers": ["a", "b"]}], "problem": ""}
    start_daemon({"trust_list": listed})

    assert run("trust", "--list").stdout == "/p: a, b\n"


def test_a_file_of_trust_that_is_damaged_is_said(start_daemon: Start, run: Run) -> None:
    start_daemon({"trust_list": {"schema": 1, "projects": [], "problem": "it is damaged"}})

    result = run("trust", "--list")

    assert (result.exit_code, "it is damaged" in result.stderr) == (1, True)
