"""A server that answers many calls at once with large results: all arrive, in little memory."""

import sys
from pathlib import Path

import pytest

from .bombing_site import CALLS
from .test_hostile_sites import bombing
from .world import World, outcome

pytestmark = pytest.mark.reliability

SERVER = Path(__file__).with_name("bursting_server.py")


def check_burst(world: World) -> None:
    with world.beside_an_honest_session():
        session = world.session("one", "far")

        calls = [session.begin("far__echo") for _ in range(CALLS)]

        assert {outcome(session.answer(call)) for call in calls} == {"result"}


def test_a_burst_of_large_results_is_not_in_memory_at_once(world: World) -> None:
    world.home.capability("far", [sys.executable, "-I", "-S", str(SERVER), str(CALLS)])
    world.start()

    check_burst(world)


def test_a_burst_of_large_results_by_url_is_not_in_memory_at_once(world: World) -> None:
    with bombing(world, "burst", timeout_seconds=120):
        check_burst(world)
