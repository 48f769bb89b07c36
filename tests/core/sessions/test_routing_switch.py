"""For which sessions messages activate nothing."""

import pytest

from capd.core.sessions.routing_switch import RoutingSwitch

SWITCH = RoutingSwitch(
    clients={"zed": False, "claude": True}, projects={"/src": False, "/src/app": True}
)


@pytest.mark.parametrize(
    ("names", "project", "is_on"),
    [
        (["vim"], "/home", True),
        (["zed"], "/home", False),
        (["", "zed"], "", False),
        (["claude"], "/src/other", False),
        (["zed"], "/src/app/deep", True),
        (["zed"], "/srcs", False),
        (["vim"], "/srcs", True),
    ],
)
def test_the_nearest_folder_counts_and_then_the_client(
    names: list[str], project: str, *, is_on: bool
) -> None:
    assert SWITCH.of(names, project) is is_on


def test_who_nothing_is_said_of_follows_the_word_for_all() -> None:
    switch = RoutingSwitch(is_on=False, clients={"zed": True})

    assert [switch.of([name], "/x") for name in ("vim", "zed")] == [False, True]


@pytest.mark.parametrize(
    ("switch", "is_on"),
    [
        (RoutingSwitch(), True),
        (RoutingSwitch(is_on=False), False),
        (RoutingSwitch(is_on=False, clients={"zed": False, "vim": True}), True),
        (RoutingSwitch(is_on=False, projects={"/src": True}), True),
        (RoutingSwitch(is_on=False, clients={"zed": False}, projects={"/src": False}), False),
    ],
)
def test_one_client_or_folder_is_enough_for_routing_to_be_on_for_any(
    switch: RoutingSwitch, *, is_on: bool
) -> None:
    assert switch.is_on_for_any is is_on
