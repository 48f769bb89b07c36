"""Retries of a failing server: growing delays, and then once a minute."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.attempts import MOST_FAILURES, PROBE_AFTER, STEADY, Attempts


def failed(attempts: Attempts, now: float, served: float | None = None) -> float:
    """Return the wait after another failure."""
    attempts.failed("it broke", now, served=served, jitter=0.0)
    return attempts.wait(now)


def test_the_wait_grows_and_the_fifth_failure_in_a_minute_makes_it_one_minute() -> None:
    attempts = Attempts()

    waits = [failed(attempts, float(now)) for now in range(6)]

    assert waits == [0.5, 1.0, 2.0, 4.0, PROBE_AFTER, PROBE_AFTER]
    assert attempts.is_failed


def test_a_failed_server_is_tried_once_a_minute_until_it_serves_that_long() -> None:
    attempts, waits = Attempts(), []
    now = 0.0
    for _ in range(9):
        wait = failed(attempts, now)
        waits.append(wait)
        now += wait

    served = failed(attempts, now, served=STEADY)

    assert waits == [0.5, 1.0, 2.0, 4.0, *[PROBE_AFTER] * 5]
    assert (served, attempts.is_failed) == (0.5, False)


def test_a_minute_of_service_forgets_the_failures_before_it() -> None:
    attempts = Attempts()
    for now in range(3):
        failed(attempts, float(now))

    wait = failed(attempts, 1000.0, served=STEADY)

    assert (attempts.failures, wait, attempts.is_failed) == (1, 0.5, False)


def test_a_short_service_forgets_nothing() -> None:
    attempts = Attempts()
    failed(attempts, 0.0)

    failed(attempts, 10.0, served=STEADY - 1)

    assert attempts.failures == 2


def test_what_a_person_has_to_do_is_waited_for_without_end() -> None:
    attempts = Attempts()
    attempts.failed("wants a login", 0.0, served=None, jitter=0.5, parks=True)

    assert attempts.wait(1e12) == float("inf")
    assert attempts.refusal(0.0) == "wants a login; until then it is not tried again"


def test_what_is_forgiven_is_tried_at_once() -> None:
    attempts = Attempts()
    for _ in range(9):
        attempts.failed("it broke", 5.0, served=None, jitter=0.9, parks=True)

    attempts.forgive()

    assert (attempts.wait(5.0), attempts.is_failed, attempts.is_parked) == (0.0, False, False)
    assert failed(attempts, 6.0) == 0.5


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 0.999)), min_size=1, max_size=60))
def test_never_more_than_five_attempts_in_a_minute_and_one_a_minute_after(
    pauses: list[tuple[float, float]],
) -> None:
    attempts, now, tried = Attempts(), 0.0, []
    for pause, jitter in pauses:
        now = max(now + pause, attempts.not_before)
        tried.append(now)
        attempts.failed("it broke", now, served=None, jitter=jitter)

    for at in tried:
        assert sum(at <= each < at + 60.0 for each in tried) <= MOST_FAILURES + 1


def test_the_refusal_says_what_failed_and_when_it_is_tried_again() -> None:
    attempts = Attempts()
    for now in range(5):
        failed(attempts, float(now))

    assert attempts.refusal(4.0) == (
        "it failed 5 times in a row, the last time because it broke; it is tried again in 60 s"
    )


@pytest.mark.parametrize("elapsed", [0.0, 59.0, 60.0, 61.0])
def test_a_failed_server_gets_one_attempt_a_minute(elapsed: float) -> None:
    attempts = Attempts()
    for _ in range(5):
        failed(attempts, 0.0)

    assert (attempts.wait(elapsed) == 0.0) is (elapsed >= PROBE_AFTER)
