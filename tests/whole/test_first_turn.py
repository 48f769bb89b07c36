"""`make run`, with a real server from PyPI and the real model."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from whole_daemon import Home, pids_with

CHECKOUT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-P", "-m", "capd_client.first_turn"]


def play(shipped_home: Home) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        COMMAND,
        env=shipped_home.env,
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def check(played: "subprocess.CompletedProcess[str]") -> None:
    assert played.returncode == 0, played.stdout + played.stderr
    assert "switched on: git" in played.stdout
    assert "git__git_log" in played.stdout
    assert "Commit history:" in played.stdout
    assert re.search(r"held by \['first-editor-\w{8}', 'second-editor-\w{8}'\]", played.stdout)
    assert "MCP active: 1/4 (git)" in played.stdout
    assert "is gone; servers running: 0" in played.stdout
    assert "/capd install claude\n" in played.stdout


@pytest.mark.real
def test_the_first_minute_shows_one_real_turn_and_leaves_nothing_and_so_again(
    shipped_home: Home,
) -> None:
    for _ in range(2):
        check(play(shipped_home))
        assert pids_with(str(shipped_home.folder)) == []


@pytest.mark.real
def test_after_an_aborted_run_the_daemon_that_it_left_is_used(shipped_home: Home) -> None:
    with subprocess.Popen(
        COMMAND,
        env=shipped_home.env,
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as aborted:
        assert aborted.stdout is not None
        for line in aborted.stdout:
            if line.startswith("[3]"):
                # What it started has its output too: there is no end of the file to wait for.
                aborted.send_signal(signal.SIGKILL)
                break
    left = shipped_home.ask("status")["daemon"]["pid"]

    played = play(shipped_home)

    check(played)
    assert f"already (pid {left}): it is used, and goes on." in played.stdout
    assert shipped_home.capd("stop").returncode == 0
    assert pids_with(str(shipped_home.folder)) == []
