"""Fixtures for tests of the whole: a daemon's folder, and the adversarial server."""

import sys
from collections.abc import Iterator

import pytest

from support.programs import HOSTILE_SERVER
from whole_daemon import Home, home_of_its_own


@pytest.fixture
def home() -> Iterator[Home]:
    with home_of_its_own() as made:
        yield made


@pytest.fixture
def evil_server() -> list[str]:
    """The command of the adversarial server, without its modes."""
    return [sys.executable, str(HOSTILE_SERVER)]
