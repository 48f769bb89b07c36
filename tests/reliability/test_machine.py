"""What a server can do to the machine and to capd itself."""

from typing import Any

import pytest

from whole_daemon import wait_for

from .world import World

pytestmark = pytest.mark.reliability


def of_evil(world: World) -> dict[str, Any]:
    servers: list[dict[str, Any]] = world.home.ask("servers")["servers"]
    return next((each for each in servers if each["name"] == "evil"), {"last_error": ""})


# A3


@pytest.mark.parametrize("modes", ["control_socket", "control_socket,double_fork"])
def test_a_server_that_talks_to_capds_socket_is_refused(world: World, modes: str) -> None:
    world.evil(modes, "--sock", world.home.socket)
    world.start()

    world.session("one", "evil")

    written = wait_for(lambda: world.out.exists() and world.out.read_text())
    assert "refused" in str(written)
    keys = [each["key"] for each in world.home.ask("sessions")["sessions"]]
    assert sorted(keys) == ["neighbour", "one"]


# C13, C14


@pytest.mark.parametrize("mode", ["fork_bomb", "mem_bomb"])
def test_a_bomb_is_ended_by_default_and_its_neighbour_answers(world: World, mode: str) -> None:
    world.evil(mode)
    world.start()
    world.session("one")

    world.enable("one", "evil")
    # Six gigabytes take a busy machine a while.
    reason = wait_for(lambda: of_evil(world)["last_error"], 240)
    world.ask_neighbour()

    assert "are the most" in reason
    world.home.ask("disable", session="one", name="evil")
    wait_for(lambda: not world.evil_pids())
