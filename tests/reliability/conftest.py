"""The world of a reliability test, checked and closed at the end of the test."""

import sys
from collections.abc import Iterator

import pytest

from support.programs import HOSTILE_SERVER

from .world import World, world_of_its_own


@pytest.fixture
def evil_server() -> list[str]:
    """The command of the adversarial server, without its modes."""
    return [sys.executable, "-I", "-S", str(HOSTILE_SERVER)]


@pytest.fixture
def world(evil_server: list[str]) -> Iterator[World]:
    with world_of_its_own(evil_server) as made:
        yield made
