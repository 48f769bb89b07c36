"""Twenty faults that a machine can have: `capd doctor` names each, and its own cure mends it.

Each fault is made for real in a user's folder. A cure that is a command is typed as it stands in
the finding; one that asks for an edit or a program is done as its words say.
"""

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from capd_client.doctor.checks import run_checks
from capd_client.doctor.findings import Finding
from capd_client.doctor.servers import check_servers
from capd_protos.places import STATE_LOCK

from .patients import Patient

_COMMANDS = ("capd", "chmod", "kill", "rm")


@dataclass
class Case:
    """A user in whose machine a fault is made, and what the fault keeps open."""

    patient: Patient
    held: list[object] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.patient.home / ".config/capd"

    @property
    def state(self) -> Path:
        return self.patient.home / ".local/state/capd"

    def write(self, path: Path, text: str, mode: int = 0o600) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text)
        path.chmod(mode)
        return path

    def bind(self, path: Path, mode: int = 0o600) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
            path.chmod(mode)

    def find(self, check: str) -> list[Finding]:
        seen = self.patient.seen(down=f"no daemon at {self.patient.socket}")
        return [
            each
            for each in run_checks(seen)
            if each.check == check and each.level in {"warning", "error"}
        ]


def open_secrets(case: Case) -> None:
    case.write(case.config / "secrets.env", "A='b'\n", 0o644)


def broken_config(case: Case) -> None:
    case.write(case.config / "config.toml", "[routing\n")


def broken_clients(case: Case) -> None:
    case.write(case.config / "clients.toml", "zed = \n")


def tap_that_is_gone(case: Case) -> None:
    folder = case.patient.folder / "mine/capabilities"
    folder.mkdir(parents=True)
    case.patient.capd("tap", "add", str(folder.parent))
    folder.rmdir()


def broken_taps(case: Case) -> None:
    case.write(case.config / "taps.toml", "[[tap]\n")


def open_socket(case: Case) -> None:
    case.bind(case.patient.socket, 0o666)


def open_run_folder(case: Case) -> None:
    case.bind(case.patient.socket)
    case.patient.socket.parent.chmod(0o755)


def file_for_a_socket(case: Case) -> None:
    case.write(case.patient.socket, "")


def long_socket(case: Case) -> None:
    case.patient.more["CAPD_SOCKET"] = f"/tmp/{'x' * 120}/capd.sock"


def dead_socket_elsewhere(case: Case) -> None:
    case.bind(case.state / "run/capd.sock")


def lock_that_is_held(case: Case) -> None:
    path = case.write(case.state / STATE_LOCK, "")
    script = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'r+');"
        "fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)"
    )
    argv = [sys.executable, "-c", script, str(path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    case.held.append(process)


def daemon_that_could_not_start(case: Case) -> None:
    text = '{"event": "starting"}\nTraceback (most recent call last):\nOSError: disk is full\n'
    case.write(case.state / "capd.log", text)


def launcher_that_is_gone(case: Case) -> None:
    case.patient.capd("install", "opencode")
    (case.patient.home / ".local/share/capd/bin/capd-mcp").unlink()


def launcher_of_another_python(case: Case) -> None:
    case.patient.capd("install", "opencode")
    (case.patient.home / ".local/share/capd/bin/capd-mcp").write_text("#!/gone/python\n")


def plugin_that_is_gone(case: Case) -> None:
    case.patient.capd("install", "opencode")
    (case.patient.home / ".config/opencode/plugin/capd.js").unlink()


def unreadable_client(case: Case) -> None:
    case.patient.capd("install", "opencode")
    (case.patient.home / ".config/opencode/opencode.json").write_text("{ broken")


def old_node(case: Case) -> None:
    case.patient.program("node", "echo v16.0.0")


def runner_that_fails(case: Case) -> None:
    case.patient.program("npx", "exit 1")


def shell_that_fails(case: Case) -> None:
    case.patient.program("sh", "exit 1")


def folder_that_the_shell_alone_knows(case: Case) -> None:
    folder = case.patient.folder / "tools"
    folder.mkdir()
    case.patient.program("sh", f'PATH="$PATH:{folder}" exec /bin/sh -c "$4"')


# What the words of a cure ask for, where they are no command.


def correct_config(case: Case) -> None:
    (case.config / "config.toml").write_text("[routing]\n")


def correct_clients(case: Case) -> None:
    (case.config / "clients.toml").write_text("")


def correct_taps(case: Case) -> None:
    (case.config / "taps.toml").unlink()


def shorten_socket(case: Case) -> None:
    del case.patient.more["CAPD_SOCKET"]


def correct_client(case: Case) -> None:
    (case.patient.home / ".config/opencode/opencode.json").unlink()


def install_node(case: Case) -> None:
    case.patient.program("node", "echo v22.1.0")


def install_npx(case: Case) -> None:
    case.patient.program("npx", "echo 10.1.0")


def mend_the_shell(case: Case) -> None:
    case.patient.program("sh", 'exec /bin/sh -c "$4"')


def start_with_the_shells_path(case: Case) -> None:
    case.patient.more["PATH"] += f":{case.patient.folder / 'tools'}"


def start_a_daemon_that_lives(case: Case) -> None:
    case.write(case.state / "capd.log", '{"event": "stopped"}\n')


FAULTS: list[tuple[Callable[[Case], None], str, str, Callable[[Case], None] | None]] = [
    (open_secrets, "configuration", "secrets.env is not read", None),
    (broken_config, "configuration", "config.toml cannot be used", correct_config),
    (broken_clients, "configuration", "clients.toml cannot be used", correct_clients),
    (tap_that_is_gone, "taps", "the tap mine is not at", None),
    (broken_taps, "taps", "the list of taps cannot be read", correct_taps),
    (open_socket, "socket", "is open to others", None),
    (open_run_folder, "socket", "is open to others", None),
    (file_for_a_socket, "socket", "is not a socket", None),
    (long_socket, "socket", "the socket's path has", shorten_socket),
    (dead_socket_elsewhere, "other socket", "a socket that no daemon serves", None),
    (lock_that_is_held, "lock", "nothing answers at the socket", None),
    (
        daemon_that_could_not_start,
        "daemon",
        "the last daemon ended with an error",
        start_a_daemon_that_lives,
    ),
    (launcher_that_is_gone, "opencode", "cannot start capd", None),
    (launcher_of_another_python, "opencode", "which this capd did not write", None),
    (plugin_that_is_gone, "opencode", "has capd in part", None),
    (unreadable_client, "opencode", "cannot be read", correct_client),
    (old_node, "runners", "node is v16.0.0", install_node),
    (runner_that_fails, "runners", "npx does not say its version", install_npx),
    (shell_that_fails, "PATH", "does not say its PATH", mend_the_shell),
    (
        folder_that_the_shell_alone_knows,
        "PATH",
        "folders of your login shell",
        start_with_the_shells_path,
    ),
]


@pytest.fixture
def case(patient: Patient) -> Iterator[Case]:
    made = Case(patient)
    yield made
    for process in made.held:
        assert isinstance(process, subprocess.Popen)
        process.kill()
        process.communicate()


def command_of(fix: str) -> str:
    """Return the first command that a cure names: in backticks, or as its first or last clause."""
    quoted: list[str] = [
        each for each in re.findall(r"`([^`]+)`", fix) if each.split()[0] in _COMMANDS
    ]
    clauses = [part.strip() for part in re.split(r"[;:]", fix)]
    plain = [part for part in clauses if part.split()[:1] and part.split()[0] in _COMMANDS]
    first: str = [*quoted, *plain][0]
    return first


def type_it(case: Case, command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "capd":
        said = case.patient.capd(*arguments)
        assert said.code == 0, said
    else:
        subprocess.run([program, *arguments], check=True)
        for process in case.held if program == "kill" else ():
            assert isinstance(process, subprocess.Popen)
            process.wait(60)


@pytest.mark.parametrize(
    ("make", "check", "what", "cure"), FAULTS, ids=[each[0].__name__ for each in FAULTS]
)
def test_a_fault_is_named_and_its_own_cure_mends_it(
    case: Case,
    make: Callable[[Case], None],
    check: str,
    what: str,
    cure: Callable[[Case], None] | None,
) -> None:
    assert [each for each in case.find(check) if what in each.what] == []
    make(case)
    found = [each for each in case.find(check) if what in each.what]
    assert found, case.find(check)
    assert all(each.fix for each in found)

    if cure is None:
        type_it(case, command_of(found[0].fix))
    else:
        cure(case)

    assert [each for each in case.find(check) if what in each.what] == []


def test_there_are_twenty_faults() -> None:
    assert len(FAULTS) == 20
    assert len({make for make, *_ in FAULTS}) == 20


def test_a_server_that_failed_is_named_with_its_last_lines(patient: Patient) -> None:
    said = "it exited with code 3 (last on stderr: no such configuration)"
    servers = [
        {"name": "git", "state": "ready"},
        {"name": "db", "state": "failed", "last_error": said},
    ]
    capabilities = [{"tap": "mine", "name": "database", "servers": ["db"]}]
    seen = patient.served(capabilities=capabilities, servers=servers)

    found = list(check_servers(seen))

    assert found == [
        Finding(
            "servers",
            "warning",
            "the server db does not start",
            said,
            "correct what these lines say, then `capd enable database`; more: "
            "`capd logs --level warning`",
        )
    ]


def test_servers_that_run_are_well(patient: Patient) -> None:
    seen = patient.served(servers=[{"name": "git", "state": "ready"}])

    assert list(check_servers(seen)) == [Finding("servers", "ok", "1 server as wanted")]
