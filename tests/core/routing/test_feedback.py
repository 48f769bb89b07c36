"""Which actions after a message become labels, and which do not."""

import pytest

from capd.core.routing.feedback import MESSAGES_UNTIL_KEPT, Feedback
from capd_protos.types import CapabilityId, CapabilityName, Decision, RoutingLabel, Score, TapName


def id_of(name: str) -> CapabilityId:
    return CapabilityId(TapName("t"), CapabilityName(name))


GIT, WEB, TIME = id_of("git"), id_of("web"), id_of("time")
TOP = (Score(GIT, 0.7), Score(WEB, 0.2))
ON = Decision("activate", id=GIT, top=TOP, fingerprint="on")
NAMED = Decision("suggest", "below_threshold", top=TOP, fingerprint="named", suggested=(GIT, WEB))
SILENT = Decision("abstain", "below_threshold", top=TOP, fingerprint="silent")
ALREADY = Decision("abstain", "already_active", id=GIT, top=TOP, fingerprint="already")


def after(*decisions: Decision) -> Feedback:
    feedback = Feedback()
    for each in decisions:
        feedback.on_decided(each)
    return feedback


@pytest.mark.parametrize(
    ("decisions", "id_", "score", "fingerprint"),
    [
        ([SILENT], WEB, 0.2, "silent"),
        ([NAMED], GIT, 0.7, "named"),
        ([ON], WEB, 0.2, "on"),
        ([SILENT], TIME, 0.0, "silent"),
        ([], GIT, 0.0, ""),
    ],
)
def test_what_a_person_switches_on_after_a_message_is_a_label(
    decisions: list[Decision], id_: CapabilityId, score: float, fingerprint: str
) -> None:
    got = after(*decisions).on_enabled(id_, "p", 5.0)

    assert got == RoutingLabel(5.0, str(id_), "enabled", score, fingerprint, "p")


def test_switching_on_what_the_message_switched_on_is_no_label() -> None:
    assert after(ON).on_enabled(GIT, "p", 5.0) is None


def test_switching_off_what_a_message_switched_on_is_a_label_once() -> None:
    feedback = after(ON, SILENT)

    first, again = (feedback.on_disabled(GIT, "p", 5.0) for _ in range(2))

    assert first == RoutingLabel(5.0, "t/git", "disabled", 0.7, "on", "p")
    assert again is None


@pytest.mark.parametrize(
    "decisions", [[], [SILENT], [NAMED], [ALREADY], [ON, *[SILENT] * MESSAGES_UNTIL_KEPT]]
)
def test_switching_off_anything_else_teaches_nothing(decisions: list[Decision]) -> None:
    assert after(*decisions).on_disabled(GIT, "p", 5.0) is None


def test_what_was_called_is_no_mistake_when_it_is_switched_off() -> None:
    feedback = after(ON)
    feedback.on_called(GIT, "p", 4.0)

    assert feedback.on_disabled(GIT, "p", 5.0) is None


@pytest.mark.parametrize(
    ("decision", "id_", "score"),
    [(ON, GIT, 0.7), (NAMED, WEB, 0.2), (ALREADY, GIT, 0.7)],
)
def test_the_first_call_of_what_the_message_brought_or_named_is_a_label(
    decision: Decision, id_: CapabilityId, score: float
) -> None:
    feedback = after(decision)

    first, again = (feedback.on_called(id_, "p", 5.0) for _ in range(2))

    assert first == RoutingLabel(5.0, str(id_), "called", score, decision.fingerprint, "p")
    assert again is None


@pytest.mark.parametrize(
    ("decisions", "id_"), [([], GIT), ([SILENT], GIT), ([ON], WEB), ([ON, SILENT], GIT)]
)
def test_a_call_of_anything_else_teaches_nothing(
    decisions: list[Decision], id_: CapabilityId
) -> None:
    assert after(*decisions).on_called(id_, "p", 5.0) is None
