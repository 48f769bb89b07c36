"""A daemon with the HTTP front, and the suite."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from whole_daemon import Home

from .suite import Suite, installed


@pytest.fixture(scope="session")
def suite() -> Suite:
    """The conformance suite."""
    return installed()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


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
