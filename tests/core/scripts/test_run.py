"""A script's calls run at most once each, whenever the daemon dies."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from capd.core.scripts.run import (
    MOST_AT_ONCE,
    SLEEP,
    Answer,
    Answered,
    Begun,
    DamagedRunError,
    Frame,
    IssuedCall,
    ScriptRun,
    Sent,
    Suspended,
    restored,
)
from capd_protos.types import WireName

TOOL = WireName("git__git_log")
BEGUN = Begun("s", "1", "code", b"{}", "engine", 0.0)
OK = Answer("value", b"1", 10, 2.0)


def issued(*ids: int) -> ScriptRun:
    run = ScriptRun()
    run.issue(IssuedCall(id_, TOOL, b"{}") for id_ in ids)
    return run


def test_calls_begin_in_order_and_at_most_eight_at_a_time() -> None:
    run = issued(*range(12))

    first = run.begin()
    run.answered(3, OK)
    second = run.begin()

    assert [each.id for each in first] == list(range(MOST_AT_ONCE))
    assert [each.id for each in second] == [8]


def test_a_delivered_call_is_a_line_of_the_table_and_a_sleep_is_none() -> None:
    run = issued(0)
    run.issue([IssuedCall(1, SLEEP, b"1")])
    run.begin()
    run.answered(0, OK)
    run.answered(1, Answer("value", b"null"))

    run.delivered(run.due())

    assert [(each.id, each.kind, each.size_bytes) for each in run.table()] == [(0, "value", 10)]
    assert run.issued_count == run.answered_count == 1


def test_what_is_under_way_at_the_end_is_in_the_table_with_what_is_known_of_it() -> None:
    run = issued(0, 1)
    run.begin()
    run.sent(0)

    assert [each.kind for each in run.table()] == ["OutcomeUnknown", "NotSent"]


@pytest.mark.parametrize("what", ["issue", "sent", "answered"])
def test_what_cannot_happen_twice_is_an_error(what: str) -> None:
    run = issued(0)
    run.begin()
    run.sent(0)
    run.answered(0, OK)

    with pytest.raises(ValueError, match="call 0"):
        {
            "issue": lambda: run.issue([IssuedCall(0, TOOL, b"{}")]),
            "sent": lambda: run.sent(0),
            "answered": lambda: run.answered(0, OK),
        }[what]()


def test_a_sent_call_without_an_answer_is_unknown_in_the_next_daemon() -> None:
    calls = [IssuedCall(id_, TOOL, b"{}") for id_ in range(3)]
    frames: list[Frame] = [BEGUN, Suspended(b"x", calls, []), Sent(0), Sent(1), Answered(1, OK)]

    run = restored(frames).run

    assert {id_: answer.kind for id_, answer in run.due().items()} == {
        0: "OutcomeUnknown",
        1: "value",
    }
    assert [each.id for each in run.begin()] == [2]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [BEGUN],
        [Suspended(b"x", [], []), BEGUN],
        [BEGUN, Suspended(b"x", [], []), Sent(7)],
        [BEGUN, Suspended(b"x", [], []), BEGUN],
        [BEGUN, Suspended(b"x", [IssuedCall(0, TOOL, b"")] * 2, [])],
    ],
)
def test_frames_that_no_run_has_are_refused(frames: list[Frame]) -> None:
    with pytest.raises(DamagedRunError):
        restored(frames)


class Runs(RuleBasedStateMachine):
    """A script over many daemons, each of which may die at any moment.

    The file is what `RunJournal` writes: a suspension where a call is sent that the last one does
    not know, and a frame for each that is sent or answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self.run = ScriptRun()
        self.next_id = 0
        self.frames: list[Frame] = []
        self.reached: list[int] = []
        """Calls that a server has got, in order."""
        self.told: dict[int, str] = {}
        """What the interpreter has been told of each call, by the daemon that lives."""
        self.answered: set[int] = set()
        """Calls whose server has answered, and the daemon knows."""
        self.snapshot: tuple[int, dict[int, str]] = (0, {})

    def written(self) -> set[int]:
        """Return the calls of the last suspension that is written down."""
        suspensions = [each for each in self.frames if isinstance(each, Suspended)]
        return {each.id for each in suspensions[-1].calls} if suspensions else set()

    def begun(self) -> list[int]:
        return [id_ for id_, each in self.run._open.items() if each.status == "begun"]

    def sent(self) -> list[int]:
        return [id_ for id_, each in self.run._open.items() if each.status == "sent"]

    @rule(many=st.integers(1, 12))
    def step_issues(self, many: int) -> None:
        """Let the interpreter take the due answers and issue more calls."""
        due = self.run.due()
        self.told |= {id_: answer.kind for id_, answer in due.items()}
        self.run.delivered(due)
        ids = range(self.next_id, self.next_id + many)
        self.run.issue(IssuedCall(id_, TOOL, b"{}") for id_ in ids)
        self.next_id += many

    @rule()
    def begin(self) -> None:
        self.run.begin()

    @precondition(lambda self: self.begun())
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(self.begun()))
        self.run.sent(id_)
        if id_ in self.written():
            self.frames.append(Sent(id_))
        else:
            self.snapshot = (self.next_id, dict(self.told))
            suspended = self.run.suspended(b"x", "", 0.0)
            self.frames = [*(self.frames or [BEGUN]), suspended]
        self.reached.append(id_)

    @precondition(lambda self: self.sent())
    @rule(data=st.data(), is_written=st.booleans())
    def answer(self, data: st.DataObject, *, is_written: bool) -> None:
        id_ = data.draw(st.sampled_from(self.sent()))
        self.run.answered(id_, OK)
        if is_written and id_ in self.written():
            self.frames.append(Answered(id_, OK))

    @precondition(lambda self: self.frames)
    @rule()
    def daemon_dies(self) -> None:
        """The next one sends its first call under a new suspension, as any other."""
        self.run = restored(self.frames).run
        self.next_id, self.told = self.snapshot[0], dict(self.snapshot[1])

    @invariant()
    def no_call_reaches_a_server_twice(self) -> None:
        assert len(self.reached) == len(set(self.reached))

    @invariant()
    def at_most_eight_are_under_way(self) -> None:
        assert len(self.begun()) + len(self.sent()) <= MOST_AT_ONCE


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
