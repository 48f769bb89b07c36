"""A conversation's price: cache reads and writes, cache breaks, minimums and expiry."""

from dataclasses import replace

import pytest
from bench.tokens.token_price import Bill, Priced, Rates, bill, common_prefix
from hypothesis import given
from hypothesis import strategies as st

RATES = Rates(least_cached=4)
HEAD = (1, 2, 3, 4, 5)
TOKENS = st.lists(st.integers(0, 3), max_size=30).map(tuple)
PROMPTS = st.lists(TOKENS, max_size=8).map(lambda prompts: [Priced(p, 2) for p in prompts])


def test_what_the_request_before_had_is_read_and_the_rest_is_written() -> None:
    requests = [Priced(HEAD, 10), Priced((*HEAD, 6, 7), 20)]

    came_to = bill(requests, RATES)

    assert came_to == Bill(requests=2, prompt=12, read=5, written=7, output=30)
    assert came_to.units(RATES) == pytest.approx(7 * 1.25 + 5 * 0.1 + 30 * 5)


def test_a_change_at_the_front_breaks_all_that_follows() -> None:
    requests = [Priced(HEAD, 0), Priced((9, *HEAD), 0)]

    came_to = bill(requests, RATES)

    assert came_to == Bill(requests=2, prompt=11, written=11, breaks=1, broken=5)


def test_a_change_in_the_middle_keeps_what_stands_before_it() -> None:
    requests = [Priced(HEAD, 0), Priced((1, 2, 3, 4, 9, 5), 0)]

    came_to = bill(requests, RATES)

    assert came_to == Bill(requests=2, prompt=11, read=4, written=7, breaks=1, broken=1)


def test_a_prompt_that_is_too_short_is_neither_kept_nor_read() -> None:
    requests = [Priced((1, 2), 0), Priced((1, 2, 3), 0), Priced((1, 2, 3, 4), 0)]

    came_to = bill(requests, RATES)

    assert came_to == Bill(requests=3, prompt=9, plain=5, written=4)


def test_a_cache_that_expires_is_written_again_at_each_turn() -> None:
    requests = [
        Priced(HEAD, 0, begins_turn=True),
        Priced((*HEAD, 6), 0),
        Priced((*HEAD, 6, 7), 0, begins_turn=True),
    ]

    came_to = bill(requests, RATES, expires_between_turns=True)

    assert came_to == Bill(requests=3, prompt=18, read=5, written=13)


def test_only_what_the_request_before_has_written_is_found() -> None:
    requests = [Priced((*HEAD, 6, 7), 0), Priced(HEAD, 0), Priced((*HEAD, 6, 7), 0)]

    came_to = bill(requests, RATES)

    assert came_to == Bill(requests=3, prompt=19, read=10, written=9, breaks=1, broken=2)


def test_no_request_costs_nothing() -> None:
    assert bill([], RATES) == Bill()


@given(PROMPTS)
def test_each_token_of_a_prompt_is_billed_once(requests: list[Priced]) -> None:
    came_to = bill(requests, RATES)

    assert came_to.prompt == came_to.read + came_to.written + came_to.plain
    assert came_to.prompt == sum(len(request.prompt) for request in requests)
    assert came_to.output == 2 * len(requests)


@given(PROMPTS)
def test_a_cache_that_expires_never_costs_less(requests: list[Priced]) -> None:
    turns = [replace(request, begins_turn=True) for request in requests]

    kept, expired = bill(turns, RATES), bill(turns, RATES, expires_between_turns=True)

    assert kept.units(RATES) <= expired.units(RATES)


@given(TOKENS, TOKENS)
def test_a_common_prefix_is_common_and_ends_where_they_differ(
    one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    shared = common_prefix(one, other)

    assert one[:shared] == other[:shared]
    assert one[shared : shared + 1] != other[shared : shared + 1] or shared == len(one) == len(
        other
    )
