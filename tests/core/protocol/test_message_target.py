"""The session that a server's message is for; none if that is uncertain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.protocol.message_target import LEVELS, is_shown, lowest_level, only_session, refusal
from capd_protos.types import ServerName, SessionKey

SESSIONS = st.lists(st.sampled_from([SessionKey(each) for each in "abc"]), max_size=6)


@pytest.mark.parametrize(
    ("in_call", "holders", "expected"),
    [
        ("a", "ab", "a"),
        ("aa", "ab", "a"),
        ("ab", "a", None),
        ("", "a", "a"),
        ("", "ab", None),
        ("", "", None),
    ],
)
def test_the_session_in_a_call_is_meant_else_the_only_holder(
    in_call: str, holders: str, expected: str | None
) -> None:
    meant = only_session(map(SessionKey, in_call), map(SessionKey, holders))

    assert meant == expected


@given(SESSIONS, SESSIONS)
def test_nobody_is_meant_where_two_sessions_could_be(
    in_call: list[SessionKey], holders: list[SessionKey]
) -> None:
    meant = only_session(in_call, holders)

    candidates = set(in_call) or set(holders)
    assert meant == (candidates.pop() if len(candidates) == 1 else None)


def test_a_refusal_names_the_remedy() -> None:
    assert refusal(ServerName("git"), "sampling/createMessage") == (
        "several sessions use git, and sampling/createMessage could be for any of them; "
        'give this server scope = "session" in its definition'
    )


@given(st.lists(st.sampled_from([*LEVELS, "", "loud"])))
def test_the_lowest_level_shows_each_session_all_that_it_asked_for(levels: list[str]) -> None:
    lowest = lowest_level(levels)

    assert lowest in {"", *LEVELS}
    known = [level for level in levels if level in LEVELS]
    assert bool(lowest) == bool(known)
    assert all(is_shown(level, lowest) for level in known)


@pytest.mark.parametrize(
    ("level", "wanted", "expected"),
    [
        ("info", "info", True),
        ("debug", "info", False),
        ("emergency", "info", True),
        ("debug", "", True),
        ("unheard-of", "error", True),
    ],
)
def test_a_message_is_shown_from_the_wanted_level_on(
    level: str, wanted: str, expected: bool
) -> None:
    assert is_shown(level, wanted) is expected
