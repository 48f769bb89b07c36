"""The limits on what one server's processes may use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.tree_limits import (
    MIB,
    SHORT_PAUSE,
    USUAL_PAUSE,
    Tree,
    TreeLimits,
    TreeLooks,
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

    in_haste = size_bytes // 2 if configured is None else 0
    assert limits == TreeLimits(1000, size_bytes, in_haste)


def looked(*sizes: tuple[float, int, int]) -> tuple[float, str]:
    """Return the pause and the excess after looks at one tree: when, processes, MiB."""
    looks: TreeLooks[str] = TreeLooks(usual_limits(1000, None, 24 * GIB))
    excess: dict[str, str] = {}
    for at, processes, mib in sizes:
        excess = looks.look({"it": Tree(processes, mib * MIB)}, at)
    return looks.pause, excess.get("it", "")


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        ([], USUAL_PAUSE),
        ([(0, 1, 100)], USUAL_PAUSE),
        ([(0, 1, 200)], SHORT_PAUSE),
        ([(0, 60, 0)], SHORT_PAUSE),
        ([(0, 3, 900), (2, 3, 1000)], USUAL_PAUSE),
        ([(0, 3, 900), (2, 3, 1100)], SHORT_PAUSE),
        ([(0, 3, 900), (2, 60, 900)], SHORT_PAUSE),
        ([(0, 3, 900), (2, 3, 0)], USUAL_PAUSE),
        # A gust that is over is looked at for two seconds more.
        ([(0, 1, 0), (2, 1, 900), (2.25, 1, 900)], SHORT_PAUSE),
        ([(0, 1, 0), (2, 1, 900), (2.25, 1, 900), (4.5, 1, 900)], USUAL_PAUSE),
    ],
)
def test_a_tree_that_grows_fast_is_looked_at_more_often(
    looks: list[tuple[float, int, int]], seconds: float
) -> None:
    pause, _ = looked(*looks)

    assert pause == seconds


HASTE = (
    "was ended: it took 3300 MiB of memory and {} more each second, and 3072 are the most for one"
    " that grows so fast, unless you allow it more ([servers] most_memory_mib)"
)


@pytest.mark.parametrize(
    ("looks", "excess"),
    [
        ([(0, 1, 3300)], HASTE.format(1650)),
        ([(0, 1, 0), (2, 1, 2600), (2.25, 1, 2700), (4, 1, 3300)], HASTE.format(350)),
        # What is there, and stays or grows slowly, may take all of it.
        ([(0, 1, 3000), (2, 1, 3050), (4, 1, 3100)], ""),
        ([(0, 1, 2600), (2, 1, 3000), (4, 1, 3000), (6, 1, 6000 - 3000)], ""),
    ],
)
def test_a_tree_that_grows_fast_may_take_half_of_what_a_steady_one_may(
    looks: list[tuple[float, int, int]], excess: str
) -> None:
    _, said = looked(*looks)

    assert said == excess


def test_what_the_user_allows_may_be_taken_as_fast_as_it_goes() -> None:
    looks: TreeLooks[str] = TreeLooks(usual_limits(1000, 6144, 24 * GIB))

    excess = looks.look({"it": Tree(1, 6 * GIB)}, 0)

    assert excess == {}


def test_each_tree_is_measured_by_itself_and_one_that_ended_is_forgotten() -> None:
    looks: TreeLooks[str] = TreeLooks(usual_limits(1000, None, 24 * GIB))
    looks.look({"calm": Tree(1, 2 * GIB), "other": Tree(1, 4 * GIB)}, 0)
    looks.look({"calm": Tree(1, 2 * GIB)}, 200)

    excess = looks.look({"calm": Tree(1, 2 * GIB), "other": Tree(1, 4 * GIB)}, 202)

    assert list(excess) == ["other"]


@given(
    sizes=st.lists(st.integers(0, 3 * GIB), max_size=20),
    gaps=st.lists(st.floats(0.01, 5), min_size=20, max_size=20),
)
def test_below_half_of_the_bound_nothing_is_ever_too_much(
    sizes: list[int], gaps: list[float]
) -> None:
    looks: TreeLooks[int] = TreeLooks(usual_limits(1000, None, 24 * GIB))
    now = 0.0

    for size, gap in zip(sizes, gaps, strict=False):
        now += gap

        assert looks.look({1: Tree(1, size)}, now) == {}
        assert looks.pause in {SHORT_PAUSE, USUAL_PAUSE}
