"""Progress lines appear on a terminal only, and vanish when the command is done."""

import io
import os
import threading
from typing import Any

import pytest

from capd_client.waiting import Waiting, bar, line_of, server_words


class Terminal(io.StringIO):
    """Standard error that is a terminal, with an event for every line that was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.was_shown = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.endswith(" s"):
            self.was_shown.set()
        return written


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "60")
    return Terminal()


def test_a_wait_is_shown_with_its_seconds_and_the_line_is_cleared(terminal: Terminal) -> None:
    with Waiting("loading the model", first_after=0, stream=terminal):
        assert terminal.was_shown.wait(60)

    assert terminal.getvalue().startswith("\r\x1b[Kloading the model 0 s")
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_what_is_looked_up_meanwhile_takes_the_place_of_the_first_words(
    terminal: Terminal,
) -> None:
    with Waiting("waiting", lambda: "starting time", first_after=0, stream=terminal):
        assert terminal.was_shown.wait(60)

    assert "starting time 0 s" in terminal.getvalue()
    assert "waiting" not in terminal.getvalue()


def test_a_line_that_stays_goes_above_and_cannot_steer_the_terminal(terminal: Terminal) -> None:
    with Waiting("asking", first_after=0, stream=terminal) as waiting:
        assert terminal.was_shown.wait(60)
        waiting.print_above("db: \x1b[31mbroke")

    assert "\r\x1b[Kdb: \\x1b[31mbroke\n" in terminal.getvalue()


def test_without_a_terminal_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked: list[int] = []

    def look() -> str:
        looked.append(1)
        return ""

    with Waiting("waiting", look, first_after=0) as waiting:
        waiting.say("still waiting")

    assert capsys.readouterr().err == ""
    assert looked == []


def test_a_line_is_as_long_as_the_terminal_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "COLUMNS", "60")

    assert line_of("x" * 100, 12.9) == "x" * 53 + "… 12 s"


def test_a_bar_has_a_total_from_the_start() -> None:
    assert bar(0, 4) == "[....................] 0/4"
    assert bar(1, 4) == "[#####...............] 1/4"
    assert bar(4, 4) == "[####################] 4/4"


def test_servers_that_start_are_named_and_a_long_start_is_explained() -> None:
    servers: list[dict[str, Any]] = [
        {"name": "git", "state": "ready"},
        {"name": "time", "state": "starting", "uptime_s": 1.0},
        {"name": "browser", "state": "starting", "uptime_s": 8.0},
        {"name": "db", "state": "backing_off", "last_error": "exit code 1"},
    ]

    words = server_words(servers)

    assert words == (
        "starting time, starting browser (a first start downloads it), "
        "starting db again (exit code 1)"
    )
    assert server_words(servers[:1]) == ""
