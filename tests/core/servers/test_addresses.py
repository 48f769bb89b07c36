"""Which of several addresses is tried next, after any history of failures."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from capd.core.servers.addresses import FIRST_BACKOFF, LAST_BACKOFF, Addresses

COUNT = 3
ADDRESS = st.integers(0, COUNT - 1)


class History(RuleBasedStateMachine):
    """Addresses fail and serve; the list of these events determines the right choice."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses = Addresses(COUNT)
        self.now = 0.0
        self.failed_at: dict[int, list[float]] = {at: [] for at in range(COUNT)}

    @rule(seconds=st.floats(0, 2 * LAST_BACKOFF))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(at=ADDRESS, jitter=st.floats(0, 0.99))
    def one_fails(self, at: int, jitter: float) -> None:
        self.addresses.failed(at, self.now, jitter)
        self.failed_at[at].append(self.now)

    @rule(at=ADDRESS)
    def one_serves(self, at: int) -> None:
        self.addresses.served(at)
        self.failed_at[at] = []

    @rule(tried=st.sets(ADDRESS))
    def a_start_tries_each_address_once(self, tried: set[int]) -> None:
        order = []
        seen = set(tried)
        while (at := self.addresses.choose(self.now, seen)) is not None:
            order.append(at)
            seen.add(at)
        assert sorted(order) == sorted(set(range(COUNT)) - tried)

    @invariant()
    def a_sound_address_is_chosen_before_later_ones(self) -> None:
        sound = [at for at in range(COUNT) if not self.failed_at[at]]
        if sound:
            assert self.addresses.choose(self.now) in range(sound[0] + 1)

    @invariant()
    def an_address_that_has_just_failed_is_not_chosen_while_another_is_sound(self) -> None:
        chosen = self.addresses.choose(self.now)
        assert chosen is not None
        failures = self.failed_at[chosen]
        if failures and any(not each for each in self.failed_at.values()):
            assert self.now - failures[-1] >= FIRST_BACKOFF

    @precondition(lambda self: self.failed_at[0])
    @invariant()
    def the_first_is_gone_back_to_after_the_longest_back_off(self) -> None:
        later = max(self.now, self.failed_at[0][-1] + LAST_BACKOFF)
        assert self.addresses.choose(later) == 0


TestHistory = History.TestCase


def test_a_second_failure_in_a_row_lasts_longer() -> None:
    addresses = Addresses(2)
    addresses.failed(0, 0.0, 0.0)
    after_one = addresses.choose(FIRST_BACKOFF)
    addresses.failed(0, 0.0, 0.0)

    assert (after_one, addresses.choose(FIRST_BACKOFF)) == (0, 1)


def test_an_address_that_has_served_begins_with_the_first_back_off_again() -> None:
    addresses = Addresses(2)
    for _ in range(5):
        addresses.failed(0, 0.0, 0.0)
    addresses.served(0)
    at_once = addresses.choose(0.0)
    addresses.failed(0, 0.0, 0.0)

    after_one = [addresses.choose(now) for now in (0.0, FIRST_BACKOFF)]

    assert (at_once, after_one) == (0, [1, 0])


def test_of_addresses_that_all_fail_the_one_that_waits_least_is_tried() -> None:
    addresses = Addresses(3)
    for at, now in ((0, 2.0), (1, 1.0), (2, 3.0)):
        addresses.failed(at, now, 0.0)

    assert addresses.choose(3.0) == 1


def test_no_address_is_none() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Addresses(0)
