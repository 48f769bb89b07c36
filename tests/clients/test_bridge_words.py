"""Hostile output of a far side is refused in one line, and bounded."""

import json
import os
import sys
from pathlib import Path

import pytest

from capd_client.bridge.opened import MOST_SAID, FarSideError, Prepared, parse_report, send_order

FOLDER = "/home/bob/.local/share/capd-bridge/far"


@pytest.fixture
def far(tmp_path: Path) -> list[str]:
    """The command of an ssh whose far side runs `far.py` whatever the command line says."""
    return [sys.executable, str(tmp_path / "far.py")]


def play(tmp_path: Path, program: str) -> None:
    (tmp_path / "far.py").write_text(f"import sys\n{program}\n")


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param("/home/bob/${HOME}/.local/share/capd-bridge/far", id="a variable"),
        pytest.param("/home/%i/.local/share/capd-bridge/far", id="a token of ssh"),
        pytest.param("/home/bob:/etc/.local/share/capd-bridge/far", id="another socket"),
        pytest.param("/home/bob\\/.local/share/capd-bridge/far", id="an escape"),
        pytest.param("/home/bob\n/.local/share/capd-bridge/far", id="two lines"),
        pytest.param("home/bob/.local/share/capd-bridge/far", id="relative"),
        pytest.param("/home/bob/.local/share/capd-bridge/near", id="another bridge"),
        pytest.param(f"/{'x' * 2000}/.local/share/capd-bridge/far", id="too long"),
        pytest.param(None, id="none"),
    ],
)
def test_a_folder_that_would_steer_ssh_is_refused(folder: str | None) -> None:
    with pytest.raises(FarSideError, match="names no folder of a bridge"):
        Prepared.of({"folder": folder, "python": "python3"}, "far", "far.example")


@pytest.mark.parametrize("python", [None, 3, "x" * 2000, "python3\n\x1b[2J", "python3\u202e"])
def test_a_python_that_is_none_is_refused(python: object) -> None:
    with pytest.raises(FarSideError, match="names no folder of a bridge"):
        Prepared.of({"folder": FOLDER, "python": python}, "far", "far.example")


@pytest.mark.parametrize("home", ["/home/bob", "/Users/Bob Müller", "/h/a.b-c_d+e@f"])
def test_a_folder_of_a_bridge_is_taken(home: str) -> None:
    folder = f"{home}/.local/share/capd-bridge/far"

    found = Prepared.of({"folder": folder, "python": "python3"}, "far", "far.example")

    assert found == Prepared(folder, "python3", is_installed=False)


def test_a_line_that_is_nested_without_end_says_nothing() -> None:
    assert parse_report(b"capd-bridge:" + b"[" * 200_000) is None


def test_words_without_end_are_refused(far: list[str], tmp_path: Path) -> None:
    play(tmp_path, "while True: sys.stdout.write('x' * 65536)")

    with pytest.raises(FarSideError, match=f"says more than {MOST_SAID >> 20} MiB"):
        send_order(far, "far.example", {"do": "remove", "name": "far"}, timeout=60.0)


def test_a_far_side_that_reads_nothing_and_says_nothing_is_given_up(
    far: list[str], tmp_path: Path
) -> None:
    play(tmp_path, "import time; time.sleep(600)")

    with pytest.raises(FarSideError, match="does not answer"):
        send_order(far, "far.example", {"do": "prepare"}, os.urandom(1 << 20), timeout=0.5)


def test_an_answer_that_comes_before_all_was_read_is_taken(far: list[str], tmp_path: Path) -> None:
    said = {"folder": FOLDER, "python": "python3"}
    play(tmp_path, f"print('Welcome!\\ncapd-bridge:' + {json.dumps(json.dumps(said))})")

    found = send_order(far, "far.example", {"do": "prepare"}, os.urandom(1 << 20), timeout=60.0)

    assert found == said
