"""A daemon with the HTTP front, and the conformance suite."""

import socket
from collections.abc import Iterator

import pytest

from whole_daemon import Home, home_of_its_own

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
    with home_of_its_own() as made:
        yield made
