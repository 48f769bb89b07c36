"""A daemon forked by the tests behaves like one that a person starts."""

import os
import signal

import pytest

from support.forked_daemons import ForkedDaemon, can_fork
from whole_daemon import PATIENCE, Home

pytestmark = pytest.mark.skipif(
    not can_fork(os.environ), reason="daemons are forked on Linux alone"
)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_forked_daemon_is_found_by_its_pid_and_ends_with_its_status(
    home: Home, number: signal.Signals, code: int
) -> None:
    process = home.start()
    pid = home.ask("status")["daemon"]["pid"]

    os.kill(pid, number)

    assert isinstance(process, ForkedDaemon)
    assert (process.pid, process.wait(PATIENCE)) == (pid, code)


def test_a_forked_daemon_has_the_environment_and_the_log_of_its_home(home: Home) -> None:
    home.env |= {"CAPD_LINGER": "7.5", "PATH": f"/nowhere:{os.environ['PATH']}"}
    home.start()

    status = home.ask("status")

    assert status["daemon"]["path"] == home.env["PATH"]
    assert status["daemon"]["socket"] == home.socket
    assert "daemon_ready" in home.log()


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONUTF8", "LD_PRELOAD"])
def test_what_python_is_told_at_its_start_takes_a_start(name: str) -> None:
    assert not can_fork({**os.environ, name: "/of/its/own"})
