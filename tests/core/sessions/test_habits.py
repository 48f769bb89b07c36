"""Observations about clients, by version: success outweighs failure, and they are bounded."""

import pytest

from capd.core.sessions.habits import MOST_CLIENTS, Habit, Habits


def test_each_version_of_a_client_has_habits_of_its_own() -> None:
    habits = Habits()
    habits.note("zed", "1", was_seen=False)
    habits.note("zed", "2", was_seen=True)

    seen = [habits.seen("zed", version) for version in ("1", "2", "")]

    assert seen == [False, True, None]


@pytest.mark.parametrize(
    ("notes", "seen"),
    [([False, True], True), ([True, False], True), ([None], None), ([False, None], False)],
)
def test_that_a_client_lists_again_outweighs_all_else(
    notes: list[bool | None], *, seen: bool | None
) -> None:
    habits = Habits()

    for note in notes:
        habits.note("zed", "1", note)

    assert habits.seen("zed", "1") is seen


def test_only_what_is_another_habit_is_to_be_written_down() -> None:
    changes: list[str] = []
    habits = Habits(lambda: changes.append("changed"))

    for note in (None, False, False, True, True, False):
        habits.note("zed", "1", note)

    assert len(changes) == 2


def test_those_that_were_met_last_are_kept() -> None:
    habits = Habits()
    for number in range(MOST_CLIENTS):
        habits.note(f"client {number}", "1", was_seen=True)
    habits.note("client 0", "1", was_seen=False)

    habits.note("another", "1", was_seen=False)

    assert len(habits.written) == MOST_CLIENTS
    assert (habits.seen("client 0", "1"), habits.seen("client 1", "1")) == (True, None)


@pytest.mark.parametrize(("client", "version"), [("", "1"), ("x" * 201, "1"), ("x", "1" * 201)])
def test_a_name_that_is_none_is_not_kept(client: str, version: str) -> None:
    habits = Habits()

    habits.note(client, version, was_seen=True)

    assert habits.written == []


def test_what_was_written_down_is_found_again() -> None:
    written = [Habit(f"client {number}", "1", number % 2 == 0) for number in range(300)]
    habits = Habits()

    habits.restore(written)

    assert habits.written == written[100:]
