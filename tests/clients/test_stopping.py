"""`capd stop` and `capd daemon stop` return once the daemon has ended for good."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from capd_client import commands
from capd_client.service import stopping
from capd_client.service.launchd import Launchd
from capd_client.service.manager import Manager
from capd_client.service.plain import Plain
from capd_client.service.systemd import Systemd
from capd_protos.places import STATE_LOCK

from .conftest import FakeDaemon


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    """The process that the fake daemon reports as its own."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


@pytest.fixture
def no_manager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide systemctl, even if this machine has it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in list(os.environ):
        if name.startswith("CAPD_"):
            monkeypatch.delenv(name)


def stop(base_env: dict[str, str], *arguments: str) -> Result:
    env = {**base_env, "PATH": "/nowhere"}
    return CliRunner().invoke(commands.cli, arguments, env=env, prog_name="capd")


@pytest.mark.usefixtures("no_manager")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("stop",),
            f"capd is stopped; {Plain.when_stopped}\n",
        ),
        (("stop", "--json"), json.dumps({"schema": 1, "stopping": True}, indent=2) + "\n"),
    ],
)
def test_stop_returns_when_the_process_has_ended_though_nobody_has_reaped_it(
    daemon: FakeDaemon,
    base_env: dict[str, str],
    process: "subprocess.Popen[bytes]",
    arguments: tuple[str, ...],
    said: str,
) -> None:
    results: list[Result] = []
    command = threading.Thread(target=lambda: results.append(stop(base_env, *arguments)))
    command.start()
    link = daemon.accept()
    link.welcome(pid=process.pid)
    request = link.read()
    link.write({"jsonrpc": "2.0", "id": request["id"], "result": {"schema": 1, "stopping": True}})
    is_early = bool(results)

    process.kill()
    command.join()

    assert not is_early
    assert (request["method"], request["params"]) == ("stop", {"for_good": True})
    assert (results[0].stdout, results[0].stderr, results[0].exit_code) == (said, "", 0)


@pytest.mark.usefixtures("no_manager")
def test_stopping_what_does_not_run_is_an_error_for_one_and_fine_for_the_other(
    base_env: dict[str, str], socket_at: Path
) -> None:
    short, long = stop(base_env, "stop"), stop(base_env, "daemon", "stop")

    text = f"capd: no daemon at {socket_at}\nStart it with: capd daemon start\n"
    assert (short.stderr, short.exit_code) == (text, 3)
    assert (long.stderr, long.exit_code) == ("", 0)


@pytest.mark.parametrize("kind", [Systemd, Launchd])
@pytest.mark.parametrize(
    ("other", "is_same"),
    [({}, True), ({"CAPD_HOME": "/srv/two"}, False), ({"CAPD_SOCKET": "/srv/one.sock"}, False)],
)
def test_a_service_of_another_home_is_not_taken_for_this_one(
    tmp_path: Path, kind: type, other: dict[str, str], *, is_same: bool
) -> None:
    base = {"HOME": str(tmp_path), "CAPD_HOME": "/srv/one"}
    installed = kind(base)
    if isinstance(installed, Systemd):
        installed.folder.mkdir(parents=True)
        for name, text in installed.units().items():
            (installed.folder / name).write_text(text)
    else:
        plist = tmp_path / "Library" / "LaunchAgents" / "dev.capd.daemon.plist"
        plist.parent.mkdir(parents=True)
        plist.write_bytes(installed.plist())

    asked: Manager = kind({**base, **other})

    assert (asked.is_installed(), asked.serves()) == (True, is_same)


@pytest.mark.usefixtures("no_manager")
def test_a_daemon_that_answers_nobody_is_found_by_its_lock_and_not_called_stopped(
    base_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "PATIENCE", 0.2)
    monkeypatch.setattr(stopping, "_SOCKET_BACK", 0.1)
    lock = Path(base_env["CAPD_HOME"], "state", STATE_LOCK)
    lock.parent.mkdir(parents=True)
    deaf = (
        "import fcntl, os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print(os.getpid(), file=file, flush=True)\n"
        "print('locked', flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", deaf, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            said = stop(base_env, "daemon", "stop")
            repair = re.search(r"To end it: (kill [-0-9 ]+)", said.stderr)
            assert repair is not None
            subprocess.run(["/bin/sh", "-c", repair[1]], check=True)
            process.wait(5)
        finally:
            process.kill()

    assert "is stopped" not in said.output
    assert f"the daemon (pid {process.pid}) has not ended" in said.stderr
    assert said.exit_code == 1
