"""What systemd is notified of, and which variables child processes never get."""

import contextlib
import os
import resource
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
        with contextlib.closing(Notifier(environment)) as notifier:
            notifier.ready("serving /x")
            notifier.stopping()

        heard = [manager.recv(1000).decode() for _ in range(2)]

    assert heard == [f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serving /x", "STOPPING=1"]
    assert environment == {"HOME": "/"}


def test_the_watchdog_hears_of_a_daemon_that_has_no_free_descriptor(tmp_path: Path) -> None:
    name = str(tmp_path / "notify")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        with contextlib.closing(Notifier({"NOTIFY_SOCKET": name})) as notifier:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
            try:
                notifier.alive()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        heard = manager.recv(1000, socket.MSG_DONTWAIT)

    assert heard == b"WATCHDOG=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": "/nonexistent/notify"}])
def test_a_manager_that_is_not_there_is_no_trouble(environment: dict[str, str]) -> None:
    with contextlib.closing(Notifier(environment)) as notifier:
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
