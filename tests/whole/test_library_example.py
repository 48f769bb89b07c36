"""The examples of docs/library.md, run on a real daemon and a real server."""

import re
import subprocess
import sys

import pytest

import capd_client
from documents.pages import DOCS
from whole_daemon import Home, wait_for

EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$", (DOCS / "library.md").read_text(), re.MULTILINE | re.DOTALL
)
SUBJECT = "paint the harbour wall"


@pytest.fixture
def repository(shipped_home: Home) -> str:
    """A repository with a commit, and a daemon that has had git's server already."""
    folder = shipped_home.folder / "harbour"
    folder.mkdir()
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for command in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", SUBJECT]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    shipped_home.start()
    with capd_client.connect(
        env=shipped_home.env, socket=shipped_home.socket, project=folder
    ) as capd:
        wait_for(lambda: shipped_home.ask("status")["embedder"]["state"] == "ready", 120)
        capd.enable("git")
    return str(folder)


def run(shipped_home: Home, example: str, folder: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", example],
        cwd=folder,
        env=shipped_home.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.real
def test_the_examples_of_the_page_do_what_it_says(shipped_home: Home, repository: str) -> None:
    blocking, tasks = (run(shipped_home, example, repository) for example in EXAMPLES)

    assert blocking.startswith("activate git\n")
    assert SUBJECT in blocking
    assert tasks.startswith("activate ['git__git_")


def test_the_example_is_twenty_lines() -> None:
    assert len(EXAMPLES[0].strip().splitlines()) <= 20
