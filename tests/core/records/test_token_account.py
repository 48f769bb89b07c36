"""A session's token count equals the sum of all texts sent, however late they are counted."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.records.token_account import (
    MOST_CHANGES,
    MOST_OPEN,
    MOST_OPEN_BYTES,
    Figures,
    Kind,
    ListChange,
    TextCount,
    TokenAccount,
    sent_anew,
)


def never(text: bytes) -> None:
    """Stand for a tokenizer that has counted nothing yet."""


def definition(name: str, says: str = "") -> bytes:
    return json.dumps({"name": name, "description": says}, ensure_ascii=False).encode()


A, B, C = definition("a"), definition("b"), definition("c")


@pytest.mark.parametrize(
    ("before", "after", "anew"),
    [
        pytest.param([A], [A], (), id="the same"),
        pytest.param([A], [A, B, C], (B, C), id="appended"),
        pytest.param([A, B, C], [A], (), id="taken off the end"),
        pytest.param([A, B, C], [A, C], (C[10:],), id="taken out of the middle"),
        pytest.param([B, C], [A, B, C], (A[10:], B, C), id="put in front"),
        pytest.param([A, B], [definition("a", "x"), B], (b'x"}', B), id="redefined"),
        pytest.param([b'"\xc3\xa4"'], [b'"\xc3\xb6"'], (b'\xc3\xb6"',), id="a whole character"),
        pytest.param([], [A], (A,), id="the first of all"),
    ],
)
def test_a_list_is_read_anew_from_its_first_changed_byte_on(
    before: list[bytes], after: list[bytes], anew: tuple[bytes, ...]
) -> None:
    found = sent_anew(before, after)

    assert found == anew


def test_a_session_is_the_sum_of_its_parts() -> None:
    account = TokenAccount()
    account.note_instructions("12345")
    account.note_list([b"own", b"tool"], 1, 1.0)
    account.note_text("turns", "on")
    account.note_text("searches", "found")
    account.note_text("searches", "")
    account.note_text("answers", "list")
    account.note_list([b"own", b"tool", b"more"], 1, 2.0)

    account.store_counts(len)

    figures = account.figures()
    assert figures == Figures(
        tools=3,
        list_tokens=11,
        own_tokens=3,
        instructions=5,
        turns=TextCount(1, 2),
        searches=TextCount(1, 5),
        answers=TextCount(1, 4),
        changes=TextCount(1, 4),
        last_changes=(ListChange(2.0, 1, 0, 4),),
        is_counting=False,
    )
    assert (figures.surface, figures.added) == (16, 15)
    assert (figures.saved(100), figures.net(100)) == (84, 69)
    assert (figures.saved(10), figures.net(10)) == (-6, -21)


def test_a_session_that_never_listed_has_no_surface() -> None:
    account = TokenAccount()
    account.note_text("turns", "on")
    account.store_counts(len)

    figures = account.figures()

    assert (figures.tools, figures.surface, figures.added) == (None, None, 2)
    assert (figures.saved(100), figures.net(100)) == (None, None)


def test_what_is_not_counted_yet_is_unknown_and_not_a_guess() -> None:
    account = TokenAccount()
    account.note_list([A], 0, 1.0)
    account.note_text("turns", "on")

    account.store_counts(never)

    figures = account.figures()
    assert (figures.list_tokens, figures.turns) == (None, TextCount(1, None))
    assert (figures.surface, figures.added, figures.net(100)) == (None, None, None)
    assert list(account.uncounted_texts()) == [A, b"on"]


def test_the_same_list_again_is_no_change() -> None:
    account = TokenAccount()
    account.note_list([A, B], 0, 1.0)

    account.note_list([A, B], 0, 2.0)

    assert account.figures().changes == TextCount()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("listed"), st.lists(st.sampled_from([A, B, C, b"", b"z" * 9]))),
        st.tuples(st.sampled_from(["turns", "searches", "answers"]), st.text(max_size=5)),
        st.tuples(st.just("instructed"), st.text(max_size=5)),
        st.tuples(st.just("settle"), st.sampled_from([len, never])),
    ),
    max_size=30,
)


def replay(account: TokenAccount, events: list[tuple[str, Any]]) -> None:
    for now, (what, value) in enumerate(events):
        match what:
            case "listed":
                account.note_list(value, min(1, len(value)), float(now))
            case "instructed":
                account.note_instructions(value)
            case "settle":
                count: Callable[[bytes], int | None] = value
                account.store_counts(count)
            case _:
                account.note_text(cast("Kind", what), value)


@given(events=EVENTS)
def test_totals_are_the_sums_of_what_was_sent_whenever_it_was_counted(
    events: list[tuple[str, Any]],
) -> None:
    account = TokenAccount()

    replay(account, events)
    account.store_counts(len)

    figures = account.figures()
    lists = [value for what, value in events if what == "listed"]
    changed = [(a, b) for a, b in pairwise(lists) if a != b]
    told = [(what, len(value.encode())) for what, value in events if what in ("turns", "searches")]
    texts = [value for what, value in events if what == "instructed"]
    assert figures.list_tokens == (sum(map(len, lists[-1])) if lists else None)
    assert figures.instructions == (len(texts[-1].encode()) if texts else 0)
    assert figures.turns.tokens == sum(size for what, size in told if what == "turns")
    assert figures.searches.tokens == sum(size for what, size in told if what == "searches")
    assert figures.changes.count == len(changed)
    assert figures.changes.tokens == sum(len(t) for a, b in changed for t in sent_anew(a, b))
    last = [change.tokens for change in figures.last_changes]
    assert last == [sum(map(len, sent_anew(a, b))) for a, b in changed][-MOST_CHANGES:]


@given(events=EVENTS, everything=st.integers(0, 500))
def test_no_part_is_ever_below_nothing_and_net_is_what_is_left(
    events: list[tuple[str, Any]], everything: int
) -> None:
    account = TokenAccount()

    replay(account, events)

    figures = account.figures()
    parts = [figures.list_tokens, figures.own_tokens, figures.instructions, figures.added]
    assert all(part is None or part >= 0 for part in parts)
    if figures.own_tokens is not None and figures.list_tokens is not None:
        assert figures.own_tokens <= figures.list_tokens
    net = figures.net(everything)
    if net is not None:
        assert figures.surface is not None
        assert figures.added is not None
        assert net == everything - figures.surface - figures.added


@given(
    before=st.lists(st.sampled_from([A, B, C]), unique=True),
    after=st.lists(st.sampled_from([A, B, C]), unique=True),
)
def test_nothing_is_read_anew_exactly_where_the_list_begins_like_the_one_before(
    before: list[bytes], after: list[bytes]
) -> None:
    anew = sent_anew(before, after)

    assert b"".join(after).endswith(b"".join(anew))
    assert (anew == ()) == (after == before[: len(after)])


def test_what_nobody_counts_stays_bounded_and_is_said_to_be_uncounted() -> None:
    account = TokenAccount()

    for now in range(3 * MOST_OPEN):
        account.note_text("searches", f"found {now}")
        account.note_list([b"%d" % now], 0, float(now))
    held = list(account.uncounted_texts())
    account.store_counts(len)

    figures = account.figures()
    uncounted = figures.searches.uncounted + figures.changes.uncounted
    assert len(held) <= MOST_OPEN + 1
    assert figures.searches.count + figures.changes.count - uncounted == MOST_OPEN
    assert len(figures.last_changes) == MOST_CHANGES
    assert figures.last_changes[-1] == ListChange(3 * MOST_OPEN - 1.0, 1, 1, None)


def test_texts_too_long_to_wait_for_a_count_are_uncounted() -> None:
    account = TokenAccount()

    account.note_text("answers", "a" * (MOST_OPEN_BYTES + 1))

    assert (account.figures().answers, list(account.uncounted_texts())) == (TextCount(1, 0, 1), [])
