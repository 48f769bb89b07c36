"""The Emacs package in a real Emacs, in batch mode; gptel and mcp.el are fakes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import capd_client
from whole_daemon import Home

pytestmark = pytest.mark.clients

HERE = Path(__file__).parent
PACKAGE = Path(capd_client.__file__).parent
LISP = PACKAGE / "emacs"


@pytest.fixture(scope="session")
def emacs() -> str:
    """The program of Emacs, of which no registry of packages has one."""
    return shutil.which("emacs") or pytest.skip("emacs is not installed")


def run(emacs: str, folder: Path, *arguments: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        [emacs, "--batch", "-Q", *arguments],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + (done.stderr if "-f" in arguments else "")


def use(emacs: str, home: Home, **env: str) -> dict[str, Any]:
    """Run the script in Emacs; return its results."""
    shim = [sys.executable, "-I", "-S", str(PACKAGE / "launch.py")]
    arguments = ["-L", str(LISP), "-l", str(HERE / "emacs_user.el"), *shim]
    said = run(emacs, home.folder, *arguments, env={**home.env, "HOME": str(home.folder), **env})
    seen: dict[str, Any] = json.loads(said.splitlines()[-1])
    return seen


def test_emacs_connects_takes_turns_lists_and_calls(emacs: str, home: Home) -> None:
    home.plain("talk")
    home.start()

    seen = use(emacs, home)

    assert "+ talk__echo" in seen["enabled"]
    assert "talk__shout" in seen["tools"]
    assert seen["called"].endswith(" grüße")
    assert "no tap has a capability 'dance'" in seen["wrong"]
    assert "- talk__echo" in seen["disabled"]
    before = "an older question\nthe model's answer\nplease run talk"
    assert seen["prompt"].startswith(f"{before}\n\ncapd switched on 'talk' for this message")
    assert seen["again"] == before
    assert "(emacs): talk" in seen["status"]


def test_without_a_daemon_a_prompt_goes_on_and_commands_say_how_one_is_started(
    emacs: str, home: Home
) -> None:
    seen = use(emacs, home, CAPD_TEST_ALONE="1")

    assert seen["prompt"].endswith("\nplease run talk")
    assert seen["status"] == seen["turn"]
    assert seen["turn"].endswith("start it with: capd daemon start")


def test_the_package_compiles_without_a_warning(emacs: str, home: Home) -> None:
    copy = home.folder / "capd.el"
    shutil.copy(LISP / "capd.el", copy)

    said = run(emacs, home.folder, "-f", "batch-byte-compile", str(copy), env=home.env)

    assert said == ""
