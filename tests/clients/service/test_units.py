"""The files for systemd and launchd, and a daemon without either."""

import configparser
import os
import plistlib
import stat
import sys
from pathlib import Path

import pytest

from capd_client.control import Control
from capd_client.log_lines import existing_lines
from capd_client.service.launchd import Launchd
from capd_client.service.manager import ServiceError, daemon_command, run
from capd_client.service.plain import Plain
from capd_client.service.systemd import Systemd


def test_the_units_run_this_capd_in_the_usual_places() -> None:
    units = Systemd({"HOME": "/home/ada"}).units()

    assert f"ExecStart={daemon_command()[0]} daemon run\n" in units["capd.service"]
    assert "Environment=" not in units["capd.service"]
    assert "ListenStream=%t/capd/capd.sock\n" in units["capd.socket"]


def test_another_place_is_written_into_both_units() -> None:
    env = {"HOME": "/home/ada", "CAPD_HOME": "/srv/100% mine"}

    units = Systemd(env).units()

    assert 'Environment="CAPD_HOME=/srv/100%% mine"\n' in units["capd.service"]
    assert "ListenStream=/srv/100%% mine/run/capd.sock\n" in units["capd.socket"]


def test_the_users_folders_are_written_into_the_service_and_do_not_make_it_anothers(
    tmp_path: Path,
) -> None:
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "my config")}
    systemd = Systemd({**env, "XDG_STATE_HOME": f"{tmp_path}/.local/state/"})

    unit = systemd.units()["capd.service"]

    variables = [line for line in unit.splitlines() if line.startswith("Environment=")]
    assert variables == [f'Environment="XDG_CONFIG_HOME={tmp_path}/my config"']
    assert "ListenStream=%t/capd/capd.sock\n" in systemd.units()["capd.socket"]
    # Units of earlier versions lack the line.
    for text in (unit, unit.replace(variables[0], "")):
        systemd.folder.mkdir(parents=True, exist_ok=True)
        (systemd.folder / "capd.service").write_text(text)
        assert systemd.serves()
    assert not Systemd({**env, "CAPD_HOME": "/srv"}).serves()


def test_the_service_has_no_directive_that_ordinary_servers_would_notice() -> None:
    unit = Systemd({"HOME": "/"}).units()["capd.service"]
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # keys have capitals

    parsed.read_string(unit)

    # Each of these implies NoNewPrivileges in a user's service.
    implying = ("Filter", "RestrictAddress", "LockPersonality", "Architectures", "NoNewPriv")
    assert not [key for key in parsed["Service"] if any(each in key for each in implying)]
    assert parsed["Service"]["Type"] == "notify"
    assert parsed["Service"]["Restart"] == "always"


def test_the_property_list_of_launchd_can_be_read_back() -> None:
    agent = plistlib.loads(Launchd({"HOME": "/Users/ada", "CAPD_HOME": "/srv/capd"}).plist())

    assert agent["ProgramArguments"] == daemon_command()
    assert agent["EnvironmentVariables"] == {"CAPD_HOME": "/srv/capd"}
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["StandardErrorPath"] == "/srv/capd/state/capd.log"


def test_the_agent_of_launchd_has_the_users_folders(tmp_path: Path) -> None:
    launchd = Launchd({"HOME": str(tmp_path), "XDG_STATE_HOME": "/srv/state"})

    agent = plistlib.loads(launchd.plist())

    assert agent["EnvironmentVariables"] == {"XDG_STATE_HOME": "/srv/state"}
    launchd.path.parent.mkdir(parents=True)
    launchd.path.write_bytes(launchd.plist())
    assert launchd.serves()
    assert not Launchd({"HOME": str(tmp_path), "CAPD_HOME": "/srv"}).serves()


def test_a_process_of_its_own_is_started_once_and_stopped(tmp_path: Path) -> None:
    env = {**os.environ, "CAPD_HOME": str(tmp_path)}
    plain = Plain(env)

    plain.start()
    plain.start()
    with Control(str(tmp_path / "run/capd.sock")) as control:
        first = int(control.daemon["pid"])
    plain.restart()
    with Control(str(tmp_path / "run/capd.sock")) as control:
        second = int(control.daemon["pid"])
    plain.stop()

    assert first != second
    assert not (tmp_path / "run/capd.sock").exists()


def test_what_a_started_daemon_creates_is_for_its_user_alone_whatever_the_umask(
    tmp_path: Path,
) -> None:
    home = tmp_path / "new" / "home"
    plain = Plain({**os.environ, "CAPD_HOME": str(home)})
    before = os.umask(0)
    try:
        plain.start()
        plain.stop()
    finally:
        os.umask(before)

    folders = [home.parent, home, *(each for each in home.rglob("*") if each.is_dir())]
    assert {stat.S_IMODE(each.stat().st_mode) for each in folders} == {0o700}
    assert stat.S_IMODE((home / "state" / "capd.log").stat().st_mode) == 0o600


def test_a_named_pipe_in_place_of_the_log_is_named_and_not_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "state" / "capd.log"
    log.parent.mkdir()
    os.mkfifo(log)
    plain = Plain({**os.environ, "CAPD_HOME": str(tmp_path)})

    with pytest.raises(ServiceError) as started:
        plain.start()
    with pytest.raises(ServiceError) as shown:
        list(existing_lines(plain))

    said = f"{log} is a named pipe, not a file\nRemove it: rm {log}"
    assert (str(started.value), str(shown.value)) == (said, said)


def test_a_log_that_is_full_is_moved_aside_by_the_daemon_that_writes_it(tmp_path: Path) -> None:
    log = tmp_path / "state" / "capd.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (9 << 20))
    plain = Plain({**os.environ, "CAPD_HOME": str(tmp_path)})

    plain.start()
    plain.stop()

    assert log.with_name("capd.log.1").stat().st_size >= 9 << 20
    assert '"event":"daemon_stopped"' in log.read_text().splitlines()[-1]


def test_a_daemon_that_cannot_start_is_told_with_the_reason_and_the_place_of_its_log(
    tmp_path: Path,
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "run").write_text("in the way")

    with pytest.raises(
        ServiceError, match=r"code 1: .*/run is not a folder: remove it; see .*capd\.log"
    ):
        Plain({**os.environ, "CAPD_HOME": str(tmp_path)}).start()


def test_without_a_manager_installing_says_that_nothing_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="the first client starts the daemon"):
        Plain({"HOME": str(tmp_path)}).install(is_hardened=False)


@pytest.mark.parametrize(
    ("command", "text"),
    [(["/nonexistent/systemctl"], "cannot be run"), ([sys.executable, "-c", "exit('no')"], "no")],
)
def test_a_manager_that_fails_is_told_in_its_own_words(command: list[str], text: str) -> None:
    with pytest.raises(ServiceError, match=text):
        run(command)
