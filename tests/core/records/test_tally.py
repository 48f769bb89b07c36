"""Counters from notes, with a bounded number of labels."""

from capd.core.records.tally import CALL_BOUNDS, DECISION_BOUNDS, MOST_NAMES, Histogram, Tally
from capd_protos.ledger import (
    ActivationNote,
    CallNote,
    DecisionNote,
    RecordedOutcome,
    SessionNote,
)
from capd_protos.types import SessionKey

ONE = SessionKey("one")


def call(server: str = "git", outcome: RecordedOutcome = "result", ms: float = 3.0) -> CallNote:
    return CallNote(0.0, ONE, "zed", "/src", "id-1", server, "log", [], outcome, ms, 20, 300)


def test_calls_are_counted_by_server_and_outcome_with_their_sizes_and_times() -> None:
    tally = Tally()

    for note in (call(), call(ms=0.5), call(outcome="error"), call("files", ms=700_000.0)):
        tally.note(note)

    assert tally.calls == {("git", "result"): 2, ("git", "error"): 1, ("files", "result"): 1}
    assert tally.call_bytes == {
        ("git", "in"): 60,
        ("git", "out"): 900,
        ("files", "in"): 20,
        ("files", "out"): 300,
    }
    git, files = tally.call_seconds["git"], tally.call_seconds["files"]
    assert git.counts == [1, 0, 2, *[0] * (len(CALL_BOUNDS) - 2)]
    assert round(git.total, 6) == 0.0065
    assert files.counts == [*[0] * len(CALL_BOUNDS), 1]


def test_decisions_activations_and_sessions_are_counted_by_what_became_of_them() -> None:
    tally = Tally()

    tally.note(DecisionNote(0.0, ONE, "f", "abstain", "too_short", "", [], 0.2))
    tally.note(DecisionNote(0.0, ONE, "f", "activate", "", "a/b", [], 30.0))
    tally.note(ActivationNote(0.0, ONE, "a/b", "on", "turn"))
    tally.note(SessionNote(0.0, ONE, "zed", "/src", "started"))

    assert tally.decisions == {("abstain", "too_short"): 1, ("activate", ""): 1}
    assert sum(tally.decision_seconds.counts) == 2
    assert len(tally.decision_seconds.counts) == len(DECISION_BOUNDS) + 1
    assert tally.activations == {"on": 1}
    assert tally.sessions == {("zed", "started"): 1}


def test_a_value_at_a_bound_belongs_to_it() -> None:
    histogram = Histogram((1.0, 2.0))

    for value in (1.0, 1.1, 2.0, 2.1):
        histogram.add(value)

    assert histogram.counts == [1, 2, 1]


def test_names_from_outside_make_a_bounded_number_of_labels() -> None:
    tally = Tally()

    for number in range(10 * MOST_NAMES):
        tally.note(call(f"server-{number}"))
        tally.note(SessionNote(0.0, ONE, f"client-{number}", "/", "started"))

    assert len(tally.calls) == len(tally.sessions) == MOST_NAMES + 1
    assert tally.calls["other", "result"] == 9 * MOST_NAMES


def test_a_label_steers_no_terminal_and_is_short() -> None:
    tally = Tally()

    tally.note(SessionNote(0.0, ONE, "\x1b[2Jzed" + "x" * 100, "/", "started"))

    assert list(tally.sessions) == [("?[2Jzed" + "x" * 57, "started")]
