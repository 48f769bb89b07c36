"""`make run`, as a user sees it: real server from PyPI, real model."""

import subprocess
import sys
from pathlib import Path

import pytest

from whole_daemon import Home, pids_with

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.real
def test_the_first_minute_shows_one_real_turn_and_leaves_nothing(home: Home) -> None:
    played = subprocess.run(
        [sys.executable, "-P", "-m", "capd_client.first_turn"],
        env=home.env,
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert played.returncode == 0, played.stderr
    assert "switched on: git" in played.stdout
    assert "git__git_log" in played.stdout
    assert "Commit history:" in played.stdout
    assert "held by ['first-editor', 'second-editor']" in played.stdout
    assert "MCP active: 1/4 (git)" in played.stdout
    assert "is gone; servers running: 0" in played.stdout
    assert "/capd install claude\n" in played.stdout
    assert pids_with(str(home.folder)) == []
