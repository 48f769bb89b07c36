"""Fixtures for tests of the whole: a daemon's folder, and the adversarial server."""

import sys
from collections.abc import Iterator

import pytest

from support.programs import HOSTILE_SERVER
from whole_daemon import Home, home_of_its_own


@pytest.fixture
def home() -> Iterator[Home]:
    """A folder whose daemons have its own tap alone."""
    with home_of_its_own(is_shipped=False) as made:
        yield made


@pytest.fixture
def shipped_home() -> Iterator[Home]:
    """An empty folder, as a user's first daemon finds it: it has the starter tap, too."""
    with home_of_its_own() as made:
        yield made


@pytest.fixture
def evil_server() -> list[str]:
    """The command of the adversarial server, without its modes."""
    return [sys.executable, str(HOSTILE_SERVER)]
