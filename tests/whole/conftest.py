"""Fixtures for tests of the whole: a daemon's folder, and the adversarial server."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import HOSTILE_SERVER
from whole_daemon import Home


@pytest.fixture
def home() -> Iterator[Home]:
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    made = Home(folder)
    try:
        yield made
        made.close()
    finally:
        for process in made.processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def evil_server() -> list[str]:
    """The command of the adversarial server, without its modes."""
    return [sys.executable, str(HOSTILE_SERVER)]
