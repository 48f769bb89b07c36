"""Learning from use is bounded, reproducible from its labels, and can be undone."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from capd.adapters.routing_files import read_profile
from capd.core.routing import learning
from capd.core.routing.gates import decide
from capd.core.routing.learning import (
    HIGHEST,
    LONGEST_KEPT,
    LOWEST,
    MOST_BY_CALLS,
    MOST_LABELS,
    MOST_OF_A_PART,
    MOST_OF_ONE,
    NOTHING,
    History,
    Learnt,
    lowest_activated,
    project_mark,
    replay,
    shifted,
)
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    RoutingAct,
    RoutingLabel,
    Score,
    TapName,
)

ACTS: tuple[RoutingAct, ...] = ("enabled", "disabled", "called")
PROFILE = read_profile()
HERE = project_mark("/src/app")


def label(
    act: RoutingAct,
    name: str = "t/git",
    *,
    score: float = 0.5,
    at: float = 0.0,
    fingerprint: str = "",
    project: str = "",
) -> RoutingLabel:
    return RoutingLabel(at, name, act, score, fingerprint, project)


LABELS = st.builds(
    label,
    st.sampled_from(ACTS),
    st.sampled_from(["t/git", "t/web", "u/git"]),
    score=st.floats(0, 1),
    at=st.floats(0, 1e9),
    fingerprint=st.sampled_from(["", "a", "b"]),
    project=st.sampled_from(["", HERE, project_mark("/other")]),
)


def ranked(*scores: float) -> list[Score]:
    ids = (CapabilityId(TapName("t"), CapabilityName(f"c{at}")) for at in range(len(scores)))
    return [Score(id_, score) for id_, score in zip(ids, scores, strict=True)]


@st.composite
def probabilities(draw: st.DrawFn) -> list[Score]:
    """Return scores of which "none" has the rest, best first."""
    raw = draw(st.lists(st.floats(0.001, 1), min_size=1, max_size=6))
    none = draw(st.floats(0.001, 3))
    shares = sorted((each / (sum(raw) + none) for each in raw), reverse=True)
    return ranked(*shares)


@pytest.mark.parametrize(
    ("acts", "offset"),
    [
        ([], 0.0),
        (["enabled"], 0.2),
        (["called"], 0.15),
        (["called"] * 9, MOST_BY_CALLS),
        (["disabled"], -0.125),
        (["enabled"] * 99, HIGHEST),
        (["disabled"] * 99, LOWEST),
        (["disabled", "called"], 0.075),
    ],
)
def test_an_offset_follows_what_was_done(acts: list[RoutingAct], offset: float) -> None:
    learnt = replay(label(act) for act in acts)

    assert learnt.offset("t/git") == pytest.approx(offset)


def test_what_is_learnt_in_a_project_counts_there_alone() -> None:
    learnt = replay([label("called", project=HERE)])

    assert learnt.offset("t/git", HERE) == pytest.approx(2 * learning.STEP_UP)
    assert learnt.offset("t/git", project_mark("/other")) == pytest.approx(learning.STEP_UP)
    assert learnt.wanted_in(HERE) == {"t/git"}
    assert learnt.wanted_in("") == frozenset()


def test_what_is_switched_off_is_wanted_in_its_project_no_more() -> None:
    learnt = replay([label("enabled", project=HERE), label("disabled", project=HERE)])

    assert learnt.wanted_in(HERE) == frozenset()


def test_a_capability_of_which_the_message_does_not_speak_moves_no_other() -> None:
    learnt = replay([label("enabled", score=0.0)])

    assert learnt.shared == 0.0
    assert learnt.offset("t/web") == 0.0


@given(st.lists(LABELS, max_size=40))
def test_calls_alone_never_lift_above_their_bound(labels: list[RoutingLabel]) -> None:
    learnt = replay(each for each in labels if each.act == "called")

    assert learnt.shared == 0.0
    for name in ("t/git", "t/web"):
        assert learnt.offset(name, HERE) <= 2 * MOST_BY_CALLS + 1e-9


@given(st.lists(LABELS, max_size=60))
def test_no_history_leaves_the_bounds(labels: list[RoutingLabel]) -> None:
    learnt = replay(labels)

    assert -MOST_OF_A_PART <= learnt.shared <= MOST_OF_A_PART
    assert all(LOWEST <= each <= MOST_OF_A_PART for each in learnt.capabilities.values())
    assert all(0 <= each <= MOST_OF_A_PART for each in learnt.projects.values())
    for project in ("", HERE):
        assert LOWEST <= learnt.offset("t/git", project) <= HIGHEST


@given(probabilities(), st.data())
def test_no_offsets_activate_what_scores_under_the_lowest(
    scores: list[Score], data: st.DataObject
) -> None:
    offsets = {str(each.id): data.draw(st.floats(-9, 9)) for each in scores}
    learnt = Learnt(data.draw(st.floats(-9, 9)), offsets)

    decision = decide(shifted(scores, learnt, ""), (), PROFILE)

    best = scores[0].score
    assert decision.outcome != "activate" or best >= lowest_activated(PROFILE.threshold) - 1e-6


@given(probabilities(), st.data())
def test_no_offsets_activate_what_may_want_nothing(
    scores: list[Score], data: st.DataObject
) -> None:
    offsets = {str(each.id): data.draw(st.floats(-9, 9)) for each in scores}
    learnt = Learnt(data.draw(st.floats(-9, 9)), offsets)
    profile = replace(PROFILE, activate_at=0.8)

    decision = decide(shifted(scores, learnt, ""), (), profile)

    together = sum(each.score for each in scores)
    assert decision.outcome != "activate" or together >= lowest_activated(0.8) - 1e-6


@given(probabilities(), st.floats(LOWEST, 0))
def test_lowering_one_capability_lifts_no_other(scores: list[Score], offset: float) -> None:
    lowered = Learnt(0.0, {str(scores[0].id): offset})

    after = {each.id: each.score for each in shifted(scores, lowered, "")}

    assert after[scores[0].id] <= scores[0].score
    assert all(after[each.id] == pytest.approx(each.score) for each in scores[1:])


@given(probabilities())
def test_scores_stay_probabilities(scores: list[Score]) -> None:
    most = Learnt(0.0, {str(each.id): HIGHEST for each in scores})

    after = shifted(scores, most, "")

    assert 0 <= sum(each.score for each in after) <= 1 + 1e-9
    assert [each.score for each in after] == sorted((e.score for e in after), reverse=True)


def test_what_is_not_learnt_changes_nothing() -> None:
    scores = ranked(0.5, 0.2)

    assert shifted(scores, NOTHING, HERE) == scores


# The history


def test_a_message_teaches_once_of_a_capability() -> None:
    history = History()

    taught = [history.add(label("called", fingerprint="a")) for _ in range(3)]

    assert taught == [True, False, False]
    assert history.add(label("disabled", fingerprint="a")) is True


@pytest.mark.parametrize("score", [-0.1, 1.1, math.nan, math.inf])
def test_a_score_that_is_none_teaches_nothing(score: float) -> None:
    bad = label("enabled", score=score)

    assert History().add(bad) is False
    assert History([bad]).learnt == NOTHING


def test_one_capability_has_no_more_than_its_share_of_the_labels() -> None:
    history = History()

    for at in range(MOST_OF_ONE + 5):
        history.add(label("enabled", at=float(at)))
    history.add(label("enabled", "t/web", at=99.0))

    names = [each.capability for each in history.labels]
    assert (names.count("t/git"), names.count("t/web")) == (MOST_OF_ONE, 1)
    assert history.labels[0].at == 5.0


def test_what_a_person_did_outlasts_what_a_model_called() -> None:
    history = History()
    for at in range(20):
        history.add(label("enabled", f"t/mine{at}", at=float(at)))

    for at in range(MOST_LABELS + 50):
        history.add(label("called", f"t/c{at}", at=100.0 + at))

    assert len(history.labels) == MOST_LABELS
    assert sum(each.act == "enabled" for each in history.labels) == 20


def test_what_is_old_is_forgotten() -> None:
    history = History([label("enabled", "t/old"), label("enabled", at=LONGEST_KEPT + 1)])

    assert [each.capability for each in history.labels] == ["t/git"]
    assert history.learnt.offset("t/old") == pytest.approx(history.learnt.shared)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("git", ["t/web"]),
        ("t/git", ["t/web", "u/git"]),
        ("none", ["t/git", "t/web", "u/git"]),
        ("", []),
    ],
)
def test_what_is_forgotten_is_as_if_it_had_never_been(name: str, left: list[str]) -> None:
    labels = [label("enabled", each) for each in ("t/git", "t/web", "u/git")]
    history = History(labels)

    count = history.forget(name)

    assert [each.capability for each in history.labels] == left
    assert count == 3 - len(left)
    assert history.learnt == replay(each for each in labels if each.capability in left)


def test_progress_says_what_was_learnt_and_since_when() -> None:
    history = History(
        [
            label("enabled", at=10.0, project=HERE),
            label("called", "t/web", at=11.0),
            label("disabled", at=30.0),
        ]
    )

    git, web = sorted(history.progress(HERE), key=lambda each: each.capability)

    assert (git.enabled, git.disabled, git.called, git.since, git.last_at) == (1, 1, 0, 10.0, 30.0)
    assert git.offset == pytest.approx(history.learnt.capabilities["t/git"])
    assert git.project_offset == learning.STEP_UP
    assert (web.called, web.project_offset) == (1, 0.0)


class Teaching(RuleBasedStateMachine):
    """Any history of labels: bounded, replayable, and reversible."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        self.before: list[tuple[tuple[RoutingLabel, ...], Learnt]] = []

    @rule(new=LABELS)
    def teach(self, new: RoutingLabel) -> None:
        state = (self.history.labels, self.history.learnt)
        if self.history.add(new) and self.history.labels == (*state[0], new):
            self.before.append(state)
        else:
            # A label that was one too many, or pushed others out: those are gone for good.
            self.before.clear()

    @precondition(lambda self: self.before)
    @rule()
    def undo(self) -> None:
        self.history.undo()

        assert (self.history.labels, self.history.learnt) == self.before.pop()

    @rule(name=st.sampled_from(["git", "t/web", "none"]))
    def forget(self, name: str) -> None:
        if self.history.forget(name):
            self.before.clear()

    @rule()
    def restart(self) -> None:
        self.history = History(self.history.labels)

    @invariant()
    def replay_gives_the_same(self) -> None:
        assert replay(self.history.labels) == self.history.learnt

    @invariant()
    def bounds_hold(self) -> None:
        assert len(self.history.labels) <= MOST_LABELS
        for name in ("t/git", "t/web", "u/git"):
            for project in ("", HERE):
                assert LOWEST <= self.history.learnt.offset(name, project) <= HIGHEST


TestTeaching = Teaching.TestCase
