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
        # What is refused anyway, before what is silent, before what has a token.
        ([Waiting("a", 1), Waiting("b", 1), Waiting("c", 2, -1), Waiting("d", 1)], "c"),
        ([Waiting("a", 1, 1), Waiting("b", 1, 1), Waiting("c", 2), Waiting("d", 1, 1)], "c"),
    ],
)
def test_who_goes(waiting: list[Waiting[str]], expected: str | None) -> None:
    assert one_too_many(waiting, FULL) == expected


@given(
    owners=st.lists(st.integers(1, 3), min_size=FULL + 1, max_size=20),
    ranks=st.lists(st.integers(-1, 1), min_size=20, max_size=20),
)
def test_nobody_goes_for_one_of_a_lower_rank(owners: list[int], ranks: list[int]) -> None:
    waiting = [
        Waiting(number, owner, rank)
        for number, (owner, rank) in enumerate(zip(owners, ranks, strict=False))
    ]

    goes = one_too_many(waiting, FULL)

    assert goes is not None
    assert waiting[goes].rank == min(each.rank for each in waiting)
