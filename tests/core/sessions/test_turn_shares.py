"""Shares of a capability's worth: more for relevant and used tools, none is zero."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.sessions.turn_shares import shares
from capd_protos.types import WireName

A, B = WireName("a"), WireName("b")


@pytest.mark.parametrize(
    ("habits", "relevance", "expected"),
    [
        ({A: 1.0, B: 1.0}, {}, {A: 0.4, B: 0.4}),
        ({A: 3.0, B: 1.0}, {}, {A: 0.6, B: 0.2}),
        ({A: 1.0, B: 1.0}, {A: 0.15}, {A: 0.6, B: 0.2}),
        ({A: 1.0, B: 1.0}, {A: -1.0}, {A: 0.4, B: 0.4}),
        ({}, {A: 1.0}, {}),
    ],
)
def test_a_tool_has_its_share_by_fit_and_use(
    habits: dict[WireName, float],
    relevance: dict[WireName, float],
    expected: dict[WireName, float],
) -> None:
    assert shares(0.8, habits, relevance) == pytest.approx(expected)


names = st.text("abcdef", min_size=1, max_size=2).map(WireName)


@given(
    st.dictionaries(names, st.floats(1, 20), min_size=1),
    st.dictionaries(names, st.floats(-1, 2)),
    st.floats(0.01, 3),
)
def test_all_shares_are_the_whole(
    habits: dict[WireName, float], relevance: dict[WireName, float], worth: float
) -> None:
    found = shares(worth, habits, relevance)

    assert sum(found.values()) == pytest.approx(worth)
    assert min(found.values()) > 0
