"""Who goes when too many connections wait to be let in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.sessions.crowd import Waiting, one_too_many

FULL = 3


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        ([], None),
        ([Waiting("a"), Waiting("b"), Waiting("c")], None),
        # The oldest one.
        ([Waiting("a"), Waiting("b"), Waiting("c"), Waiting("d")], "a"),
        # That of the process that has most.
        ([Waiting("a", 1), Waiting("b", 2), Waiting("c", 3), Waiting("d", 2)], "b"),
        # What is refused anyway.
        ([Waiting("a", 1), Waiting("b", 1), Waiting("c", 2, True), Waiting("d", 1)], "c"),
    ],
)
def test_who_goes(waiting: list[Waiting[str]], expected: str | None) -> None:
    assert one_too_many(waiting, FULL) == expected


@given(
    owners=st.lists(st.integers(1, 3), min_size=FULL + 1, max_size=20),
    refused=st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_nobody_goes_before_one_that_is_refused(owners: list[int], refused: list[bool]) -> None:
    waiting = [
        Waiting(number, owner, is_refused)
        for number, (owner, is_refused) in enumerate(zip(owners, refused, strict=False))
    ]

    goes = one_too_many(waiting, FULL)

    assert goes is not None
    assert waiting[goes].is_refused == any(each.is_refused for each in waiting)
