"""What followed a decision, and how a user can get another one."""

from typing import get_args

import pytest

from capd.core.routing.remedies import CapabilityFacts, consequence, followed, remedies
from capd_protos.ledger import ActivationNote, DecisionNote
from capd_protos.types import DecisionReason, SessionKey

ONE, TWO = SessionKey("one"), SessionKey("two")
GIT, FILES = "starter/git", "starter/files"
TOP = [(GIT, 0.41), (FILES, 0.38)]
KNOWN = {
    GIT: CapabilityFacts(("what changed", "who wrote this")),
    FILES: CapabilityFacts(),
    "starter/mail": CapabilityFacts(("send a mail",), ("MAIL_TOKEN", "MAIL_USER")),
}

# A hook's own are answered at once, and are no decision that is recorded.
NOTED = [each for each in get_args(DecisionReason) if each not in {"", "repeated", "unfinished"}]


def decided(outcome: str, reason: str = "", **more: object) -> DecisionNote:
    name = GIT if outcome == "activate" else ""
    made = {"top": TOP, "ms": 1.0, "name": name, **more}
    return DecisionNote(
        at=10.0,
        session=ONE,
        fingerprint="f",
        outcome=outcome,
        reason=reason,
        **made,  # type: ignore[arg-type]  # members of every kind
    )


def became(
    action: str, why: str = "turn", *, at: float = 11.0, name: str = GIT, session: SessionKey = ONE
) -> ActivationNote:
    return ActivationNote(at, session, name, action, why)


def test_what_follows_a_decision_is_of_its_session_and_capability_until_it_is_on_again() -> None:
    on, evicted = became("on"), became("evicted", "room for starter/mail", at=12.0)
    others = [
        became("on", at=9.0),
        became("on", session=TWO),
        became("failed", name=FILES),
        became("on", "person", at=13.0),
        became("off", "person", at=14.0),
    ]

    came = followed(decided("activate"), [evicted, *others, on])

    assert came == (on, evicted)


def test_what_abstained_is_followed_by_nothing() -> None:
    assert followed(decided("abstain", "below_margin"), [became("on")]) == ()


@pytest.mark.parametrize(
    ("came", "text"),
    [
        ([], ""),
        ([became("on")], "it was switched on"),
        ([became("failed", "no git here")], "it could not be switched on: no git here"),
        (
            [became("on"), became("evicted", "room for a/b")],
            "it was switched on, and is off again: room for a/b",
        ),
    ],
)
def test_what_came_of_a_decision_is_told(came: list[ActivationNote], text: str) -> None:
    assert consequence(came) == text


@pytest.mark.parametrize(
    ("note", "came", "lines"),
    [
        (decided("activate"), [became("on")], []),
        (decided("activate"), [], []),
        (
            decided("activate"),
            [became("failed", "x")],
            ["to try again: capd enable starter/git --session one"],
        ),
        (
            decided("activate", name="starter/mail"),
            [became("failed", "x")],
            [
                "it needs MAIL_TOKEN: capd secret set MAIL_TOKEN",
                "it needs MAIL_USER: capd secret set MAIL_USER",
                "then: capd enable starter/mail --session one",
            ],
        ),
        (
            decided("abstain", "below_threshold"),
            [],
            [
                "if starter/git was meant: capd enable starter/git --session one",
                "or say one of its triggers, such as 'what changed'",
            ],
        ),
        (
            decided("suggest", "below_margin", left_out={"missing_secrets": 1, "domain": 4}),
            [],
            [
                "if starter/git was meant: capd enable starter/git --session one",
                "or say one of its triggers, such as 'what changed'",
                "if starter/files was meant: capd enable starter/files --session one",
                (
                    "starter/mail was left out for want of MAIL_TOKEN, MAIL_USER: "
                    "capd secret set MAIL_TOKEN"
                ),
                "4 are for other domains than this session's: see `domain` in config.toml",
            ],
        ),
        (decided("abstain", "already_active"), [], []),
        (
            decided("abstain", "model_not_ready", top=[]),
            [],
            ["capd status says how the model is; once it is ready, say it again"],
        ),
        (
            decided("abstain", "no_candidates", top=[]),
            [],
            ["capd caps says of each capability why it is not used"],
        ),
        (
            decided("abstain", "too_short", top=[]),
            [],
            ["capd enable NAME --session one switches one on by hand; capd caps has the names"],
        ),
    ],
)
def test_each_outcome_has_its_way_out(
    note: DecisionNote, came: list[ActivationNote], lines: list[str]
) -> None:
    assert remedies(note, came, KNOWN, is_live=True) == lines


def test_no_command_names_a_session_that_is_over() -> None:
    lines = remedies(decided("abstain", "below_threshold"), [], KNOWN, is_live=False)

    assert lines[0] == "if starter/git was meant: capd enable starter/git"


@pytest.mark.parametrize("reason", NOTED)
def test_every_reason_but_one_has_a_way_out_though_nothing_is_known(reason: str) -> None:
    lines = remedies(decided("abstain", reason), [], {}, is_live=True)

    assert bool(lines) == (reason != "already_active")
