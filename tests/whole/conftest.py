"""Fixtures for whole-system tests: a daemon's folder, and the adversarial server."""

import sys
from collections.abc import Iterator

import pytest

from support.programs import HOSTILE_SERVER
from whole_daemon import Home, home_of_its_own


@pytest.fixture
def home(request: pytest.FixtureRequest) -> Iterator[Home]:
    """A folder whose daemons have its own tap alone, and the model if the test is marked so."""
    with home_of_its_own(is_shipped=False, is_forked=True) as made:
        if not request.node.get_closest_marker("model"):
            made.leave_out_model()
        yield made


@pytest.fixture(scope="module")
def running_home() -> Iterator[Home]:
    """A folder whose daemon runs: for tests that leave it as it is, and share it."""
    with home_of_its_own(is_shipped=False, is_forked=True) as made:
        made.leave_out_model()
        made.start()
        yield made


@pytest.fixture
def shipped_home() -> Iterator[Home]:
    """An empty folder, as a user's first daemon finds it: it has the starter tap, too."""
    with home_of_its_own(is_forked=True) as made:
        yield made


@pytest.fixture
def evil_server() -> list[str]:
    """The command of the adversarial server, without its modes."""
    return [sys.executable, str(HOSTILE_SERVER)]
