"""Which messages refer to the one before, and which text they are compared by."""

import numpy as np
import pytest

from capd.core.routing.follow_ups import (
    MOST_CONVERSATIONS,
    LastMessages,
    blended,
    is_elliptical,
)

EAST, NORTH = np.array([1, 0], np.float32), np.array([0, 1], np.float32)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("and now push it", True),
        ("same for the other one", True),
        ("what about the staging cluster of the team", True),
        ("again, but sorted", True),
        ("only the ones after 2020", True),
        ("thanks, good to know", False),
        ("ok great", False),
        ("never mind", False),
        ("list every container that runs on the staging host today", False),
        ("post the minutes of Monday in the design channel", False),
        ("", False),
    ],
)
def test_a_message_leans_on_the_one_before(text: str, is_one: bool) -> None:
    assert is_elliptical(text) == is_one


def test_half_of_each_is_a_unit_vector_between_them() -> None:
    got = blended(EAST, NORTH)

    assert got == pytest.approx([0.5**0.5, 0.5**0.5])


def test_opposite_vectors_leave_the_message_as_it_is() -> None:
    got = blended(EAST, -EAST)

    assert got is EAST


def test_a_follow_up_is_compared_by_both_messages_of_its_own_conversation() -> None:
    last = LastMessages()
    last.compared("one", "list the containers of the staging host today please", NORTH)

    got = [last.compared(each, "and now restart it", EAST) for each in ("one", "two")]

    assert got[0] == pytest.approx([0.5**0.5, 0.5**0.5])
    assert got[1] is EAST


def test_what_says_something_by_itself_is_compared_alone() -> None:
    last = LastMessages()
    last.compared("one", "list the containers of the staging host today please", NORTH)

    got = last.compared("one", "write a note to Ada on the meeting of last Monday", EAST)

    assert got is EAST


def test_the_oldest_conversation_is_forgotten() -> None:
    last = LastMessages()
    for number in range(MOST_CONVERSATIONS + 1):
        last.compared(str(number), "list the containers", NORTH)

    got = last.compared("0", "and now restart it", EAST)

    assert got is EAST
