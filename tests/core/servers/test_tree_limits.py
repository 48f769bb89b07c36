"""What one server's processes may take of the machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.tree_limits import (
    MIB,
    SHORT_PAUSE,
    USUAL_PAUSE,
    Tree,
    TreeLimits,
    pause,
    usual_limits,
)

GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("tree", "excess"),
    [
        (Tree(1000, 6 * GIB), ""),
        (
            Tree(1001, 0),
            "was ended: it had 1001 processes, and 1000 are the most ([servers] most_processes)",
        ),
        (
            Tree(1, 6 * GIB + MIB),
            (
                "was ended: it took 6145 MiB of memory, and 6144 are the most"
                " ([servers] most_memory_mib)"
            ),
        ),
    ],
)
def test_what_is_over_a_limit_is_named_with_the_key_that_moves_it(tree: Tree, excess: str) -> None:
    assert TreeLimits().excess(tree) == excess


@given(tree=st.builds(Tree, st.integers(0, 10**6), st.integers(0, 10**13)))
def test_without_limits_nothing_is_too_much(tree: Tree) -> None:
    assert not TreeLimits(0, 0).excess(tree)


@pytest.mark.parametrize(
    ("configured", "machine_bytes", "size_bytes"),
    [
        (None, 8 * GIB, 4 * GIB),
        (None, 64 * GIB, 6 * GIB),
        (None, 0, 6 * GIB),
        (512, 8 * GIB, 512 * MIB),
        (0, 8 * GIB, 0),
    ],
)
def test_memory_is_limited_to_half_of_the_machine_unless_the_user_says(
    configured: int | None, machine_bytes: int, size_bytes: int
) -> None:
    limits = usual_limits(1000, configured, machine_bytes)

    assert limits == TreeLimits(1000, size_bytes)


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        ({}, {}, USUAL_PAUSE),
        ({1: Tree(3, 900 * MIB)}, {1: Tree(3, 1000 * MIB)}, USUAL_PAUSE),
        ({1: Tree(3, 900 * MIB)}, {1: Tree(3, 1100 * MIB)}, SHORT_PAUSE),
        ({1: Tree(3, 0)}, {1: Tree(60, 0)}, SHORT_PAUSE),
        ({1: Tree(3, 900 * MIB)}, {1: Tree(3, 0)}, USUAL_PAUSE),
        ({}, {2: Tree(1, 200 * MIB)}, SHORT_PAUSE),
    ],
)
def test_a_tree_that_grows_fast_is_looked_at_more_often(
    before: dict[int, Tree], after: dict[int, Tree], seconds: float
) -> None:
    assert pause(before, after) == seconds
