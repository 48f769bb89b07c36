"""Which connection is closed when too many wait for a valid hello."""

import pytest

from capd.adapters.clients.waiting_pool import Waiting, connection_to_close

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
    ],
)
def test_who_goes(waiting: list[Waiting[str]], expected: str | None) -> None:
    assert connection_to_close(waiting, FULL) == expected
