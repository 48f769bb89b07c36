"""The world of a reliability test: closed, and unharmed, at its end."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import HOSTILE_SERVER
from whole_daemon import Home

from .world import World


@pytest.fixture
def evil_server() -> list[str]:
    """The command of the adversarial server, without its modes."""
    return [sys.executable, "-I", "-S", str(HOSTILE_SERVER)]


@pytest.fixture
def world(evil_server: list[str]) -> Iterator[World]:
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    home = Home(folder)
    made = World(home, evil_server)
    try:
        yield made
        made.check_unharmed()
        made.close()
        home.close()
    finally:
        made.close()
        for process in home.processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
