"""`capd doctor` with daemons that hang, and with servers that fail."""

import json
import os
import signal
from typing import Any

import pytest

from whole_daemon import Home, wait_for

pytestmark = pytest.mark.model


def findings(home: Home, check: str) -> list[dict[str, Any]]:
    report = json.loads(home.capd("doctor", "--json").stdout)
    return [each for each in report["findings"] if each["check"] == check]


def test_a_daemon_that_hangs_is_named_by_its_process_and_the_cure_ends_it(home: Home) -> None:
    process = home.start()
    pid = home.ask("status")["daemon"]["pid"]
    os.kill(pid, signal.SIGSTOP)

    (found,) = findings(home, "daemon")

    assert found["what"] == f"the daemon, process {pid}, does not answer"
    assert found["fix"].startswith(f"kill -9 {pid}, then `capd daemon start`")
    os.kill(pid, signal.SIGKILL)
    process.wait()
    assert [each["what"] for each in findings(home, "daemon")] == ["no daemon runs"]


def test_a_server_that_fails_is_named_with_what_it_said(home: Home) -> None:
    home.capability("broken", ["/bin/sh", "-c", "echo no such configuration >&2; exit 3"])
    home.start()
    with_session = home.shim("one")
    home.capd("enable", "broken", "--session", "one")

    def named() -> list[dict[str, Any]]:
        return [each for each in findings(home, "servers") if each["level"] == "warning"]

    (found,) = wait_for(named)

    assert "no such configuration" in found["why"]
    assert "`capd enable broken`" in found["fix"]
    with_session.leave()
