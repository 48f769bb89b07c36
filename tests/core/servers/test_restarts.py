"""Restart rules: a sliding window, and bounded exponential backoff."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.restarts import Backoff, RestartIntensity


@pytest.mark.parametrize(
    ("times", "answers"),
    [
        pytest.param([0.0, 0.0, 0.0], [True, True, True], id="as many as the limit"),
        pytest.param([0.0, 1.0, 2.0, 3.0], [True, True, True, False], id="one too many"),
        pytest.param([0.0, 1.0, 2.0, 5.0], [True, True, True, True], id="the first has left"),
        pytest.param([0.0, 1.0, 2.0, 4.9], [True, True, True, False], id="the first is still in"),
        pytest.param(
            [0.0, 0.0, 0.0, 0.0, 4.9, 9.8, 9.9],
            [True, True, True, False, False, True, True],
            id="a refused one counts",
        ),
    ],
)
def test_restarts_are_refused_while_too_many_lie_in_the_window(
    times: list[float], answers: list[bool]
) -> None:
    intensity = RestartIntensity(limit=3, window=5.0)

    got = [intensity.record(now) for now in times]

    assert got == answers


@given(
    steps=st.lists(st.floats(min_value=0, max_value=10), max_size=60),
    limit=st.integers(min_value=0, max_value=5),
    window=st.floats(min_value=0.1, max_value=20),
)
def test_the_answer_is_what_counting_every_restart_ever_would_give(
    steps: list[float], limit: int, window: float
) -> None:
    intensity = RestartIntensity(limit=limit, window=window)
    times = list(itertools.accumulate(steps))

    got = [intensity.record(now) for now in times]

    assert got == [
        sum(now - at < window for at in times[: index + 1]) <= limit
        for index, now in enumerate(times)
    ]


@pytest.mark.parametrize(
    ("failures", "shortest", "longest"),
    [
        (1, 0.5, 1.0),
        (2, 1.0, 2.0),
        (3, 2.0, 4.0),
        (6, 16.0, 32.0),
        (7, 30.0, 60.0),
        (8, 30.0, 60.0),
        (1_000_000_000, 30.0, 60.0),
    ],
)
def test_the_wait_doubles_and_its_jitter_spans_one_doubling(
    failures: int, shortest: float, longest: float
) -> None:
    backoff = Backoff()

    got = (backoff.delay(failures, 0.0), backoff.delay(failures, 1.0))

    assert got == (shortest, longest)


@given(
    first=st.floats(min_value=0.01, max_value=10),
    growth=st.floats(min_value=1, max_value=1000),
    factor=st.floats(min_value=1.1, max_value=10),
    failures=st.integers(min_value=1, max_value=500),
    jitter=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_the_wait_stays_in_its_bounds_and_never_shrinks(
    first: float, growth: float, factor: float, failures: int, jitter: float
) -> None:
    backoff = Backoff(first, first * growth, factor)

    now, after = backoff.delay(failures, jitter), backoff.delay(failures + 1, jitter)

    assert first <= now <= after <= first * growth


@pytest.mark.parametrize("shape", [(0.0, 1.0, 2.0), (2.0, 1.0, 2.0), (1.0, 2.0, 1.0)])
def test_a_wait_that_cannot_grow_is_refused(shape: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="no growing wait"):
        Backoff(*shape)


def test_no_failure_has_no_wait() -> None:
    with pytest.raises(ValueError, match="at least one failure"):
        Backoff().delay(0, 0.0)
