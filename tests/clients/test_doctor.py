"""`capd doctor`: each check on a home folder, programs and a daemon."""

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from capd_client.doctor import programs, storage
from capd_client.doctor.checks import run_checks
from capd_client.doctor.daemon import check_daemon, check_degraded, check_model
from capd_client.doctor.editors import check_editors
from capd_client.doctor.environment import CheckContext
from capd_client.doctor.other_editors import check_other_editors
from capd_client.doctor.programs import check_commands, check_runners, check_search_path
from capd_client.doctor.sockets import check_other_sockets, check_socket
from capd_client.doctor.storage import check_storage
from capd_client.doctor.taps import check_taps

from .conftest import FakeDaemon
from .patients import READY, TAP, VERSION, Patient, levels


@contextmanager
def answering(path: Path, **documents: Any) -> Iterator[None]:
    daemon = FakeDaemon(path, documents)
    path.chmod(0o600)
    try:
        yield
    finally:
        daemon.close()


@contextmanager
def bound(path: Path) -> Iterator[socket.socket]:
    """Create a private socket file, which stays after it is closed."""
    path.parent.mkdir(mode=0o700, parents=True)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        path.chmod(0o600)
        yield made


# The command


def test_where_all_is_well_it_says_so(patient: Patient) -> None:
    status = {
        "schema": 1,
        "daemon": {"path": str(patient.bin), "degraded": []},
        "embedder": READY,
        "taps": [TAP],
    }
    caps = {"schema": 1, "capabilities": [{"tap": "mine", "name": "x", "commands": ["npx"]}]}
    patient.capd("install", "opencode")
    with answering(patient.socket, status=status, caps=caps):
        said = patient.capd("doctor")

    daemon_line, *others = said.out.splitlines()
    # The version that the played daemon has is its own.
    assert daemon_line == "ok      daemon: capd 0.1.0 answers, pid 77"
    # To root the default level is a note: root may undo it.
    findings = [line for line in others[:-2] if "as root a program may undo it" not in line]
    assert {line.split()[0] for line in findings} == {"ok"}
    assert others[-1] == "nothing is wrong"
    assert said.code == 0


def test_without_a_daemon_all_else_is_looked_at(patient: Patient) -> None:
    said = patient.capd("doctor", "--json")

    report = json.loads(said.out)
    assert (report["schema"], report["level"], said.code) == (1, "warning", 4)
    assert report["findings"][0] == {
        "check": "daemon",
        "level": "warning",
        "what": "no daemon runs",
        "why": f"no daemon at {patient.socket}",
        "fix": "start it: `capd daemon start`",
    }
    assert {each["check"] for each in report["findings"]} == {
        "daemon", "PATH", "runners", "sandbox", "storage",
    }  # fmt: skip


def test_an_error_has_its_own_exit_code_and_a_line_to_repair_it(patient: Patient) -> None:
    reason = "model file /m should be 9 bytes and is 1 bytes; reinstall it: pip install x"
    model = {"state": "unusable", "reason": reason}
    with answering(patient.socket, status={"schema": 1, "embedder": model}, caps={"schema": 1}):
        said = patient.capd("doctor")

    assert (
        "ERROR   model: no message is routed: the model cannot be used (model_not_ready)\n"
        "        why: model file /m should be 9 bytes and is 1 bytes\n"
        "        fix: reinstall it: pip install x\n"
    ) in said.out
    assert said.out.endswith("\nerrors: 1, warnings: 0\n")
    assert said.code == 1


def test_what_the_daemon_says_cannot_steer_a_terminal(patient: Patient) -> None:
    tap = {**TAP, "error": "broken \x1b[31m\u202e"}
    with answering(patient.socket, status={"schema": 1, "taps": [tap]}, caps={"schema": 1}):
        said = patient.capd("doctor")

    assert "why: broken \\x1b[31m\\u202e" in said.out


def test_a_check_that_cannot_look_costs_itself_alone(patient: Patient) -> None:
    (patient.home / ".config/capd/taps.toml").mkdir(parents=True)

    found = list(run_checks(patient.seen(down="no daemon")))

    [tap] = [each for each in found if each.check == "taps"]
    assert (tap.level, tap.what) == ("warning", "this could not be checked")
    assert "taps.toml" in tap.why
    assert found[-1].check == "storage"


def test_it_changes_nothing(patient: Patient) -> None:
    patient.capd("install", "claude")
    patient.capd("install", "opencode")
    before = {path: path.stat().st_mtime_ns for path in patient.folder.rglob("*")}

    patient.capd("doctor")

    assert {path: path.stat().st_mtime_ns for path in patient.folder.rglob("*")} == before


# The daemon


def test_a_daemon_of_another_version_is_told(patient: Patient) -> None:
    seen = patient.seen(daemon={"version": "0.0.1", "pid": 7})

    found = list(check_daemon(seen))

    assert levels(found) == [("daemon", "ok"), ("version", "warning")]
    assert found[1].what == f"the daemon is capd 0.0.1, this command is {VERSION}"
    # After `capd stop` an open editor starts none, and under systemd no editor does.
    assert found[1].fix == "capd restart"


def test_something_else_at_the_socket_is_an_error(patient: Patient) -> None:
    [found] = check_daemon(patient.seen(trouble="what listens at s is not capd"))

    assert (found.level, found.why) == ("error", "what listens at s is not capd")


def test_what_is_degraded_is_told_once(patient: Patient) -> None:
    degraded = ["config.toml is not used: x", "tap mine: gone", "no routing: model file"]
    seen = patient.served(daemon={"degraded": degraded}, taps=[{**TAP, "error": "tap mine: gone"}])

    found = list(check_degraded(seen))

    assert [each.why for each in found] == ["config.toml is not used: x"]


@pytest.mark.parametrize(
    ("model", "level", "says"),
    [
        (READY, "ok", "minilm is ready, 150 MB"),
        ({"state": "cold", "reason": ""}, "note", "the model is cold: a message loads it"),
        ({"state": "loading", "reason": "its process ended"}, "warning", "its process ended"),
        ({"state": "unusable", "reason": "no remedy"}, "error", "no remedy"),
    ],
    ids=["ready", "idle", "restarting", "unusable"],
)
def test_the_model_is_as_the_daemon_says(
    patient: Patient, model: dict[str, Any], level: str, says: str
) -> None:
    [found] = check_model(patient.served(embedder=model))

    assert found.level == level
    assert says in (found.what, found.why)


# Sockets


def test_a_socket_that_others_can_reach_is_an_error(patient: Patient) -> None:
    with bound(patient.socket):
        patient.socket.chmod(0o666)
        patient.socket.parent.chmod(0o755)
        found = list(check_socket(patient.served()))

    assert [(each.level, each.fix) for each in found] == [
        ("error", f"chmod go-rwx {patient.socket.parent}"),
        ("error", f"chmod go-rwx {patient.socket}"),
    ]


def test_a_socket_of_somebody_else_is_an_error(patient: Patient) -> None:
    patient.socket.parent.mkdir(mode=0o700)
    seen = patient.seen(down="no daemon")

    [found] = check_socket(CheckContext(seen.env, seen.uid + 1, seen.places, VERSION, down="none"))

    assert found.level == "error"
    assert f"belongs to user {os.getuid()}" in found.what
    assert found.fix.endswith("or set CAPD_SOCKET to a file name in a folder of your own")


def test_a_socket_that_was_left_is_nothing_to_worry_about(patient: Patient) -> None:
    with bound(patient.socket):
        pass

    found = list(check_socket(patient.seen(down="no daemon")))

    assert levels(found) == [("socket", "note")]


def test_a_file_where_the_socket_should_be_is_an_error(patient: Patient) -> None:
    patient.socket.parent.mkdir(mode=0o700)
    patient.socket.touch(0o600)

    [found] = check_socket(patient.seen(down="no daemon"))

    assert (found.level, found.fix) == ("error", f"rm {patient.socket}")


def test_a_path_that_is_too_long_for_a_socket_is_an_error(patient: Patient) -> None:
    patient.more["CAPD_SOCKET"] = f"/{'x' * 107}"

    [found] = check_socket(patient.seen(down="no daemon"))

    assert (found.level, found.why) == ("error", "the system takes 107")


def test_another_daemon_is_told_with_the_command_that_stops_it(patient: Patient) -> None:
    other = patient.state / "run" / "capd.sock"
    with bound(other) as listener:
        listener.listen()
        [found] = check_other_sockets(patient.served())

    assert found.what == f"another daemon of yours listens at {other}"
    assert found.fix.startswith(f"CAPD_SOCKET={other} capd stop")


def test_a_socket_that_was_left_elsewhere_is_told(patient: Patient) -> None:
    other = patient.state / "run" / "capd.sock"
    with bound(other):
        pass

    [found] = check_other_sockets(patient.served())

    assert (found.level, found.fix) == ("warning", f"rm {other}")


def test_a_daemon_in_a_home_of_its_own_has_no_others(patient: Patient) -> None:
    other = patient.state / "run" / "capd.sock"
    patient.more["CAPD_HOME"] = str(patient.folder / "apart")
    with bound(other) as listener:
        listener.listen()
        found = list(check_other_sockets(patient.seen()))

    assert found == []


# Programs


def test_folders_that_only_the_login_shell_knows_are_named(patient: Patient) -> None:
    known = patient.folder / "nvm"
    known.mkdir()
    patient.program("sh", f'PATH="$PATH:{known}:/not/there" exec /bin/sh -c "$4"')

    [found] = check_search_path(patient.served())

    assert found.level == "warning"
    assert found.what.endswith(f"1 folders of your login shell: {known}")
    # Not `capd stop`: under systemd no editor starts the daemon after it.
    assert found.fix == "open a new terminal, and run `capd restart` in it"


@pytest.mark.parametrize("script", ["exit 1", "echo hello"], ids=["fails", "says nothing"])
def test_a_shell_that_does_not_say_its_path_is_told(patient: Patient, script: str) -> None:
    patient.program("sh", script)

    [found] = check_search_path(patient.served())

    assert found.level == "warning"
    assert "does not say its PATH" in found.what


def test_a_shell_that_hangs_is_left_alone_in_time(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "TIMEOUT", 0.1)
    patient.program("sh", "exec /bin/sleep 60")

    [found] = check_search_path(patient.served())

    assert "does not say its PATH" in found.what


def test_a_command_that_is_not_found_is_named_with_who_wants_it(patient: Patient) -> None:
    wanted = [
        {"tap": "mine", "name": "a", "commands": ["npx", "gh"]},
        {"tap": "mine", "name": "b", "commands": ["gh", "./here.py"]},
        {"tap": "mine", "name": "web"},
    ]

    [found] = check_commands(patient.served(capabilities=wanted))

    assert found.what == "`gh` is not found; wanted by mine/a, mine/b"
    assert found.level == "warning"


def test_commands_are_looked_for_where_the_daemon_looks(patient: Patient) -> None:
    wanted = [{"tap": "mine", "name": "a", "commands": ["node"]}]

    found = list(check_commands(patient.served(path="/elsewhere", capabilities=wanted)))

    assert levels(found) == [("commands", "warning")]


@pytest.mark.parametrize(
    ("script", "level", "says"),
    [
        ("echo v22.1.0", "ok", "node v22.1.0"),
        ("echo v16.3.1", "warning", "node is v16.3.1"),
        ("exit 127", "warning", "does not say its version"),
        ("", "warning", "does not say its version"),
    ],
    ids=["current", "old", "broken", "silent"],
)
def test_node_is_told_with_its_version(
    patient: Patient, script: str, level: str, says: str
) -> None:
    patient.program("node", script)

    node, *_ = check_runners(patient.served())

    assert node.level == level
    assert says in node.what


def test_a_runner_that_is_not_there_is_a_note(patient: Patient) -> None:
    (patient.bin / "npx").unlink()

    _, npx, _ = check_runners(patient.served())

    assert (npx.level, npx.what) == ("note", "no npx: servers from npm cannot be started")


# Taps


def test_taps_are_told_as_the_daemon_loaded_them(patient: Patient) -> None:
    left_out = {"path": "a/config.toml", "line": 3, "reason": "no trigger", "severity": "error"}
    remark = {"path": "b", "line": 1, "reason": "no pin", "severity": "warning"}
    taps = [
        {**TAP, "error": "tap mine: gone"},
        {**TAP, "findings": [remark, left_out]},
        {**TAP, "findings": [remark]},
    ]

    gone, partly, good = check_taps(patient.served(taps=taps))

    assert [gone.level, partly.level, good.level] == ["error", "warning", "ok"]
    assert gone.why == "tap mine: gone"
    assert partly.why == "the first: a/config.toml:3: no trigger"


def test_without_a_daemon_the_list_of_taps_is_read(patient: Patient) -> None:
    patient.file(".config/capd/taps.toml", '[[taps]]\nname = "mine"\npath = "/not/there"\n')

    [found] = check_taps(patient.seen(down="no daemon"))

    assert (found.level, found.what) == ("error", "the tap mine is not at /not/there")


def test_a_list_of_taps_that_is_no_toml_is_an_error(patient: Patient) -> None:
    patient.file(".config/capd/taps.toml", "[[taps\n")

    [found] = check_taps(patient.seen(down="no daemon"))

    assert (found.level, found.what) == ("error", "the list of taps cannot be read")


# Clients


CONFIGS = [
    ("claude", ".claude.json"),
    ("opencode", ".config/opencode/opencode.json"),
    ("codex", ".codex/config.toml"),
    ("goose", ".config/goose/config.yaml"),
    ("continue", ".continue/config.yaml"),
]


@pytest.mark.parametrize(("client", "config"), CONFIGS)
def test_a_client_that_has_capd_is_well(patient: Patient, client: str, config: str) -> None:
    patient.capd("install", client, *(["--trust-hooks"] if client == "codex" else []))

    found = list(check_editors(patient.seen()))

    assert levels(found) == [(client, "ok")]


@pytest.mark.parametrize(("client", "config"), CONFIGS)
def test_a_client_that_never_had_capd_is_a_note(patient: Patient, client: str, config: str) -> None:
    patient.file(config, "" if config.endswith("toml") else "{}")

    found = list(check_editors(patient.seen()))

    assert levels(found) == [(client, "note")]


@pytest.mark.parametrize(("client", "config"), CONFIGS)
def test_a_launcher_that_is_gone_is_an_error(patient: Patient, client: str, config: str) -> None:
    patient.capd("install", client)
    patient.launcher.unlink()

    [found] = check_editors(patient.seen())

    assert (found.level, found.fix) == ("error", f"capd install {client}")


@pytest.mark.parametrize(("client", "config"), CONFIGS)
def test_a_launcher_of_another_capd_is_told(patient: Patient, client: str, config: str) -> None:
    patient.capd("install", client)
    other = patient.folder / "other" / "capd-mcp"
    other.parent.mkdir()
    shutil.copy(patient.launcher, other)
    path = patient.home / config
    path.write_text(path.read_text().replace(str(patient.launcher), str(other)))

    [found] = check_editors(patient.seen())

    assert (found.level, found.what.endswith(f"starts another capd: {other}")) == ("warning", True)


@pytest.mark.parametrize(("client", "config"), CONFIGS)
def test_a_launcher_that_another_python_wrote_is_told(
    patient: Patient, client: str, config: str
) -> None:
    patient.capd("install", client)
    text = patient.launcher.read_text()
    patient.launcher.write_text(text.replace(sys.executable, "/old/python"))

    [found] = check_editors(patient.seen())

    assert (found.level, found.fix) == ("warning", f"capd install {client}")


def test_a_hook_that_codex_has_not_been_told_to_trust_is_told(patient: Patient) -> None:
    patient.capd("install", "codex")

    [found] = check_editors(patient.seen())

    assert (found.level, found.what, found.fix) == (
        "warning",
        "Codex CLI skips capd's hook: no prompt reaches capd",
        "run codex, then /hooks; or: capd install codex --trust-hooks",
    )


def test_a_hook_that_is_gone_is_told(patient: Patient) -> None:
    patient.capd("install", "claude")
    settings = patient.file(".claude/settings.json", "{}")

    [found] = check_editors(patient.seen())

    assert (found.level, found.what) == ("warning", "Claude Code has capd in part")
    assert str(settings) in found.why


def test_a_configuration_that_cannot_be_read_is_told(patient: Patient) -> None:
    config = patient.file(".claude.json", "{,")

    [found] = check_editors(patient.seen())

    assert (found.level, found.what) == ("warning", f"{config} cannot be read")


def test_a_users_own_way_to_start_capd_is_a_note(patient: Patient) -> None:
    script = patient.program("my-script", "exit 0")
    server = {"command": str(script), "args": []}
    patient.file(".claude.json", json.dumps({"mcpServers": {"capd": server}}))

    [found] = check_other_editors(patient.seen())

    assert (found.level, found.what) == ("note", f"Claude Code starts capd its own way: {script}")
    assert list(check_editors(patient.seen())) == []


# Storage


@pytest.mark.parametrize(("too_little", "level"), [(0, "warning"), (1 << 62, "error")])
def test_a_disk_without_room_is_told(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, too_little: int, level: str
) -> None:
    monkeypatch.setattr(storage, "LITTLE_BYTES", 1 << 62)
    monkeypatch.setattr(storage, "TOO_LITTLE_BYTES", too_little)

    found = list(check_storage(patient.seen()))

    assert [each.level for each in found] == [level, level]
    assert found[0].fix == "make room on that disk"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_state_folder_that_cannot_be_written_is_an_error(patient: Patient) -> None:
    patient.state.mkdir(parents=True)
    patient.state.chmod(0o500)

    state, _ = check_storage(patient.seen())

    assert state.level == "error"
