"""The set for a task is within budget, never worse than greedy, and exact for few items."""

from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.memories.task_set import (
    NO_ROOM,
    NO_USE,
    TOO_LARGE,
    WITHOUT,
    TaskItem,
    _greedy,
    best_set,
)

PARTS = st.builds(
    lambda shapes: [
        TaskItem(
            f"p{at}",
            tokens,
            float(worth),
            f"p{needs}" if needs is not None and needs < roots else None,
        )
        if at >= (roots := (len(shapes) + 1) // 2)
        else TaskItem(f"p{at}", tokens, float(worth))
        for at, (tokens, worth, needs) in enumerate(shapes)
    ],
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 20), st.none() | st.integers(0, 8)),
        max_size=10,
    ),
)


def exact(parts: list[TaskItem[str]], budget: int) -> float:
    """Return the worth of the best of all subsets."""
    subsets = chain.from_iterable(combinations(parts, size) for size in range(len(parts) + 1))
    return max(
        sum(each.worth for each in subset)
        for subset in subsets
        if sum(each.tokens for each in subset) <= budget
        and all(not e.needs or e.needs in {other.key for other in subset} for e in subset)
    )


@settings(deadline=None)
@given(PARTS, st.integers(0, 200))
def test_of_few_parts_the_best_of_all_subsets_is_found(
    parts: list[TaskItem[str]], budget: int
) -> None:
    found = best_set(parts, budget)

    assert found.tokens <= budget
    assert found.worth == exact(parts, budget)
    offered = [*found.chosen, *(each for each, _ in found.left_out)]
    assert sorted(offered, key=lambda each: each.key) == sorted(parts, key=lambda each: each.key)


MANY = st.lists(
    st.tuples(st.integers(0, 500), st.floats(0, 1, allow_nan=False), st.booleans()),
    min_size=20,
    max_size=60,
)


@settings(deadline=None)
@given(MANY, st.integers(0, 5000), st.sampled_from([2, 5, 1000]))
def test_of_many_parts_none_is_over_the_budget_or_worse_than_greedy(
    shapes: list[tuple[int, float, bool]], budget: int, most_states: int
) -> None:
    parts = [
        TaskItem(f"p{at}", tokens, worth, f"p{at - 1}" if hangs and at % 2 else None)
        for at, (tokens, worth, hangs) in enumerate(shapes)
    ]

    found = best_set(parts, budget, most_states)

    keys = {each.key for each in found.chosen}
    usable = [at for at, each in enumerate(parts) if each.worth > 0 and each.tokens <= budget]
    assert sum(each.tokens for each in found.chosen) <= budget
    assert all(not each.needs or each.needs in keys for each in found.chosen)
    assert found.worth >= _greedy(parts, usable, budget).worth - 1e-9
    assert len(found.chosen) + len(found.left_out) == len(parts)


def test_what_is_left_out_says_why() -> None:
    parts = [
        TaskItem("git", 100, 1.0),
        TaskItem("large", 900, 5.0),
        TaskItem("told", 10, 0.5, "large"),
        TaskItem("second", 60, 0.1),
        TaskItem("never", 1, 0.0),
    ]

    found = best_set(parts, 150)

    assert found.chosen == (parts[0],)
    assert found.left_out == (
        (parts[1], TOO_LARGE),
        (parts[2], WITHOUT),
        (parts[3], NO_ROOM),
        (parts[4], NO_USE),
    )
