"""The configuration is merged key by key, and no layer can stop the daemon."""

from pathlib import Path

import pytest

from capd.adapters.configuration import (
    Configuration,
    EmbedderTable,
    HttpTable,
    LedgerTable,
    ResultsTable,
    ServersTable,
    SessionsTable,
    load_configuration,
)
from capd.core.sessions.domains import Domains
from capd.core.sessions.routing_switch import RoutingSwitch


def test_domains_are_of_clients_and_of_folders_below_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    file = tmp_path / "config.toml"
    file.write_text('[clients.zed]\ndomain = "developer"\n[projects."~/src"]\ndomain = "devops"\n')

    configuration, problems = load_configuration(file, {})

    assert problems == []
    assert configuration.domains() == Domains({"zed": "developer"}, {"/home/me/src": "devops"})


def test_whose_messages_are_routed_is_said_for_all_for_clients_and_for_folders(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[routing]\nsession = true\n[clients.zed]\nrouting = true\ndomain = "x"\n'
        '[clients.vim]\ndomain = "x"\n[projects."/src"]\nrouting = false\n'
    )

    configuration, problems = load_configuration(file, {"CAPD_ROUTING": "false"})

    assert problems == []
    assert configuration.routing_switch() == RoutingSwitch(False, {"zed": True}, {"/src": False})
    assert configuration.routing.priors == ("files", "session")


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        (None, {}, Configuration()),
        ("", {}, Configuration()),
        ("[servers]\nlinger = 5\n", {}, Configuration(ServersTable(5.0))),
        ("[servers]\nlinger = 5\n", {"CAPD_LINGER": "0"}, Configuration(ServersTable(0.0))),
        (
            '[servers]\nlinger = 5\n[embedder]\nplacement = "daemon"\n',
            {"CAPD_EMBEDDER_IDLE": "60.5", "CAPD_CAPABILITIES": "2"},
            Configuration(ServersTable(5.0), SessionsTable(2), EmbedderTable("daemon", 60.5)),
        ),
        (
            '[listen_http]\nenabled = true\nport = 9000\nnames = "bare"\ncapabilities = ["a/b"]\n',
            {},
            Configuration(listen_http=HttpTable(True, 9000, "bare", ("a/b",))),
        ),
        (
            '[results]\nmedia = 7\n[results.servers]\ngit = 0\n[results.tools]\n"git:log" = 9000\n',
            {"CAPD_RESULT_LIMIT": "50000"},
            Configuration(results=ResultsTable(50_000, 7, {"git": 0}, {"git:log": 9000})),
        ),
        ("[future]\nx = 1\n[servers]\nnew = true\n", {}, Configuration()),
    ],
)
def test_layers_are_merged_key_by_key(
    tmp_path: Path, text: str | None, environment: dict[str, str], expected: Configuration
) -> None:
    file = tmp_path / "config.toml"
    if text is not None:
        file.write_text(text)

    assert load_configuration(file, environment) == (expected, [])


@pytest.mark.parametrize(
    "data",
    [
        b"[servers",
        b"\xff",
        b"[servers]\nlinger = -1\n",
        b"[servers]\nlinger = nan\n",
        b"[servers]\nlinger = inf\n",
        b'[servers]\nlinger = "5"\n',
        b"servers = 3\n",
        b"[sessions]\ncapabilities = 0\n",
        b'[embedder]\nplacement = "moon"\n',
        None,
    ],
)
def test_a_file_that_cannot_be_used_leaves_the_defaults_and_says_so(
    tmp_path: Path, data: bytes | None
) -> None:
    file = tmp_path / "config.toml"
    if data is None:
        file.mkdir()
    else:
        file.write_bytes(data)

    configuration, problems = load_configuration(file, {"CAPD_CAPABILITIES": "9"})

    assert configuration == Configuration(sessions=SessionsTable(9))
    assert len(problems) == 1
    assert problems[0].startswith(f"{file} is not used: ")


@pytest.mark.parametrize("value", ["", "x", "-1", "nan", "inf", "1e99", "5 s"])
def test_a_variable_that_cannot_be_used_leaves_what_the_file_says(
    tmp_path: Path, value: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[servers]\nlinger = 7\n")

    configuration, problems = load_configuration(file, {"CAPD_LINGER": value})

    assert configuration == Configuration(ServersTable(7.0))
    assert [problem.split(":")[0] for problem in problems] == ["CAPD_LINGER is not used"]


def test_the_bounds_of_the_ledger_are_set_and_checked(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("[ledger]\ndays = 3\nsize_mib = 8\n")
    bad.write_text("[ledger]\nsize_mib = 0\n")

    configuration, problems = load_configuration(good, {})
    default, said = load_configuration(bad, {})

    assert configuration.ledger == LedgerTable(enabled=True, days=3, size_mib=8)
    assert problems == []
    assert default.ledger == LedgerTable()
    assert len(said) == 1
    assert "line 2, `ledger.size_mib`: " in said[0]
