"""A decision explained in words, with the numbers that decided it."""

from typing import get_args

import pytest

from capd.core.routing.explanation import explained
from capd_protos.ledger import DecisionNote
from capd_protos.types import DecisionReason, SessionKey

TOP = [("starter/git", 0.41), ("starter/files", 0.38)]

# A hook's own are answered at once, and are no decision that is recorded.
NOTED = [each for each in get_args(DecisionReason) if each not in {"", "repeated", "unfinished"}]


def note(
    outcome: str, reason: str = "", top: list[tuple[str, float]] | None = None
) -> DecisionNote:
    return DecisionNote(
        0.0, SessionKey("s"), "f", outcome, reason, "", TOP if top is None else top, 1
    )


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (
            note("activate", top=[("starter/git", 0.91), ("starter/files", 0.2)]),
            "starter/git scored 0.91, which reaches the threshold 0.45, and the next one 0.20",
        ),
        (
            note("abstain", "below_threshold"),
            "the best, starter/git, scored 0.41, under the threshold 0.45",
        ),
        (
            note("abstain", "below_threshold", [("starter/git", 0.6), ("starter/files", 0.1)]),
            "starter/git scored 0.60, but the message may want nothing at all",
        ),
        (
            note("abstain", "below_margin"),
            (
                "starter/git scored 0.41 and starter/files 0.38: less than 0.08 apart, so neither "
                "is clearly meant"
            ),
        ),
        (
            note("abstain", "missing_secrets"),
            "it would have been starter/git, which lacks a key; nothing takes its place",
        ),
        (
            note("suggest", "near_tie"),
            (
                "starter/git scored 0.41, and nothing says that it is meant and none like it; "
                "the best were suggested to the model instead"
            ),
        ),
        (
            note("activate", "whole_trigger"),
            "the message is a trigger of , word for word",
        ),
        (
            note("suggest", "below_threshold"),
            (
                "the best, starter/git, scored 0.41, under the threshold 0.45; the best were "
                "suggested to the model instead"
            ),
        ),
        (
            note("abstain", "too_short", []),
            "fewer than 8 characters are left of it after cleaning",
        ),
        (note("abstain", "judged", []), "judged"),
        (note("abstain", "", []), "no reason was recorded"),
    ],
)
def test_a_decision_is_told_with_the_numbers_that_decided(
    decision: DecisionNote, text: str
) -> None:
    assert explained(decision, 0.45, 0.08) == text


def test_a_note_with_its_own_numbers_is_told_by_them() -> None:
    made = DecisionNote(
        *(0.0, SessionKey("s"), "f", "abstain", "below_threshold", "", TOP, 1.0),
        threshold=0.6,
        margin=0.1,
    )

    assert explained(made, 0.45, 0.08).endswith("under the threshold 0.60")


@pytest.mark.parametrize("reason", NOTED)
def test_every_reason_has_words(reason: str) -> None:
    text = explained(note("abstain", reason), 0.45, 0.08)

    assert text != reason
