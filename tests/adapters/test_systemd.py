"""What systemd is notified of, and which variables child processes never get."""

import os
import socket
from pathlib import Path

import pytest

from capd.adapters.systemd import Notifier


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_hears_of_the_start_and_of_the_end(tmp_path: Path, is_abstract: bool) -> None:
    name = f"@capd-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "2", "HOME": "/"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if is_abstract else name)
        notifier = Notifier(environment)
        notifier.ready("serving /x")
        notifier.stopping()

        heard = [manager.recv(1000).decode() for _ in range(2)]

    assert heard == [f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serving /x", "STOPPING=1"]
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nonexistent/notify"}])
def test_a_manager_that_is_not_there_is_no_trouble(environment: dict[str, str]) -> None:
    notifier = Notifier(environment)

    notifier.ready("serving")
    notifier.stopping()

    assert environment == {}


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}, 10.0),
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_is_fed_where_it_watches_this_process(
    given: dict[str, str], seconds: float
) -> None:
    environment = dict(given)

    notifier = Notifier(environment)

    assert notifier.watchdog == seconds
    assert environment == {}
