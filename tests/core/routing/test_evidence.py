"""Evidence for each capability, and the probabilities computed from it."""

import numpy as np
import pytest

from capd.core.routing import evidence
from capd.core.routing.evidence import (
    CAPABILITY_EVIDENCE,
    LARGEST_PHRASE_Z,
    LEARNT_EVIDENCE,
    LEARNT_NONE_EVIDENCE,
    NONE_EVIDENCE,
    SMALLEST_DEVIATION,
    Background,
    Described,
    Evidence,
    EvidenceIndex,
    evidence_names,
)
from capd.core.routing.projection import Projection
from capd.core.routing.scorers import described_all
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec, TapName

DIMENSIONS = 8
NAMES: list[str] = [*CAPABILITY_EVIDENCE, *NONE_EVIDENCE]
WEIGHTS = dict.fromkeys(NAMES, 0.0)


def id_of(name: str) -> CapabilityId:
    return CapabilityId(TapName("tap"), CapabilityName(name))


def axis(number: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    row = np.zeros(DIMENSIONS, np.float32)
    row[number] = 1.0
    return row


def described(name: str, number: int, *triggers: str, text: str = "") -> Described:
    rows = np.stack([axis(number)] * len(triggers)) if triggers else np.zeros((0, 0), np.float32)
    return Described(id_of(name), triggers, text, rows, axis(number) if text else None)


GIT = described("git", 0, "git history", "git diff")
MAIL = described("mail", 1, "send mail", text="Electronic mail.")


def background(*numbers: int) -> Background:
    return Background(
        tuple(f"nothing {number}" for number in numbers),
        np.stack([axis(number) for number in numbers]),
    )


BACKGROUND = background(5, 6, 7)


def test_the_evidence_of_a_message_has_a_row_a_capability_and_a_number_a_name() -> None:
    got = EvidenceIndex([GIT, MAIL], BACKGROUND).found("git history", axis(0))

    assert got.capabilities.shape == (2, len(CAPABILITY_EVIDENCE))
    assert got.none.shape == (len(NONE_EVIDENCE),)
    first = dict(zip(CAPABILITY_EVIDENCE, got.capabilities[0], strict=True))
    assert 0 < first.pop("bm25") < 1
    assert first == pytest.approx(
        {
            "triggers": 1.0,
            "triggers_z": 12.0,
            "ngrams": 1.0,
            "description_z": 0.0,
            "nearest": 1.0,
            "phrases": 1.0 / SMALLEST_DEVIATION,
            "phrases_z": LARGEST_PHRASE_Z,
            "coverage": 1.0,
        },
        abs=1e-5,
    )
    assert got.capabilities[1].tolist() == pytest.approx([0.0] * len(CAPABILITY_EVIDENCE), abs=1e-5)


def test_a_background_message_stays_where_only_a_server_itself_repeats_it() -> None:
    # The last of its triggers is the server's own: it must not have messages of thanks ignored.
    rows = np.stack([axis(1), axis(5)])
    thankful = Described(MAIL.id, ("send mail", "thanks"), "", rows, None, unclaiming=1)
    claiming = Described(MAIL.id, ("send mail", "thanks"), "", rows, None)

    got = [
        EvidenceIndex([GIT, each], BACKGROUND).found("thanks", axis(5)).none[2]
        for each in (thankful, claiming)
    ]

    assert got == pytest.approx([1.0, 0.0])


def test_the_triggers_that_a_server_gave_itself_come_last_and_claim_nothing() -> None:
    own = ("thanks", "write a note", "not embedded yet")
    spec = CapabilitySpec(
        id_of("notes"),
        "",
        triggers=("use notes",),
        extra_triggers=("thanks", "look up", *own[1:]),
        tool_triggers=own,
    )
    vectors = {text: axis(at) for at, text in enumerate(("use notes", "look up", *own[:2]))}

    (found,) = described_all([spec], vectors)

    assert found.triggers == ("use notes", "look up", *own)
    assert (len(found.trigger_vectors), found.unclaiming) == (4, 2)


def test_a_background_message_that_a_trigger_repeats_is_none_for_that_catalogue() -> None:
    messages = background(0, 5)

    got = [
        EvidenceIndex([each], messages).found("anything", axis(0)).none[1] for each in (GIT, MAIL)
    ]

    assert got == pytest.approx([0.0, 0.5])


def test_a_catalogue_that_claims_the_whole_background_can_still_be_asked() -> None:
    got = EvidenceIndex([GIT], background(0)).found("git", axis(0))

    assert got.capabilities[0][1] == pytest.approx(min(12.0, 1.0 / SMALLEST_DEVIATION))


def test_what_has_no_triggers_is_found_by_its_description() -> None:
    bare = described("bare", 2, text="Paints pictures.")

    got = EvidenceIndex([GIT, bare], BACKGROUND).found("paints pictures", axis(2))

    assert got.capabilities[1][0] == pytest.approx(1.0)


def test_nothing_at_all_can_be_asked() -> None:
    got = Evidence([], BACKGROUND, WEIGHTS).ranked("git", axis(0), frozenset())

    assert got == []


def test_scores_are_probabilities_that_leave_room_for_none() -> None:
    scorer = Evidence([MAIL, GIT], BACKGROUND, {**WEIGHTS, "triggers": 2.0, "bias": 1.0})

    got = scorer.ranked("git", axis(0), {GIT.id, MAIL.id})

    total = np.exp(2.0) + np.exp(0.0) + np.exp(1.0)
    assert [score.id for score in got] == [GIT.id, MAIL.id]
    assert [score.score for score in got] == pytest.approx(
        [np.exp(2.0) / total, np.exp(0.0) / total]
    )


def test_the_more_parts_a_message_has_the_more_may_speak_for_none() -> None:
    scorer = Evidence([GIT], BACKGROUND, {**WEIGHTS, "triggers": 2.0, "parts": 1.0})

    got = [scorer.ranked("git", axis(0), {GIT.id}, parts)[0].score for parts in (1, 4)]

    raised = np.exp(2.0)
    assert got == pytest.approx([raised / (raised + 1.0), raised / (raised + 4.0)])


@pytest.mark.parametrize(
    ("most_exact", "parts", "expected"),
    [
        (evidence.MOST_EXACT, "----", [0, 1, 2, 3]),
        (evidence.MOST_EXACT, "-----++-+", [0, 1, 5, 6, 8]),
        (1, "---", [0, 1, 2]),
        (1, "--+-+", [0, 2, 4]),
    ],
)
def test_the_ends_and_the_parts_nearest_to_a_trigger_may_decide(
    monkeypatch: pytest.MonkeyPatch, most_exact: int, parts: str, expected: list[int]
) -> None:
    monkeypatch.setattr(evidence, "MOST_EXACT", most_exact)
    index = EvidenceIndex([GIT, MAIL], BACKGROUND)
    vectors = [axis(0 if part == "+" else 4) for part in parts]

    got = index.found_in_parts(["git"] * len(parts), vectors)

    assert [at for at, _ in got] == expected
    for at, found in got:
        alone = index.found("git", vectors[at], len(parts))
        assert np.allclose(found.capabilities, alone.capabilities, atol=1e-6)
        assert np.allclose(found.none, alone.none, atol=1e-6)


def test_parts_are_chosen_in_a_catalogue_without_phrases() -> None:
    got = EvidenceIndex([], BACKGROUND).found_in_parts(["x"] * 9, [axis(4)] * 9)

    assert [at for at, _ in got] == [0, 1, 2, 3, 4]


def test_what_is_not_among_those_asked_for_takes_no_share() -> None:
    scorer = Evidence([MAIL, GIT], BACKGROUND, {**WEIGHTS, "triggers": 2.0})

    got = scorer.ranked("git", axis(0), {MAIL.id})

    assert [score.id for score in got] == [MAIL.id]
    assert got[0].score == pytest.approx(0.5)


def test_how_others_stand_says_nothing_of_those_that_are_asked_for() -> None:
    weights = {**WEIGHTS, "best_nearest": 5.0}
    both = Evidence([MAIL, GIT], BACKGROUND, weights)
    alone = Evidence([MAIL], BACKGROUND, weights)

    got = [each.ranked("git", axis(0), {MAIL.id})[0].score for each in (both, alone)]

    assert got[0] == pytest.approx(got[1])


@pytest.mark.parametrize(("number", "none"), [(0, 3.0), (1, -2.0), (2, 0.0)])
def test_what_a_message_means_speaks_for_none_or_against_it(number: int, none: float) -> None:
    meaning = (3.0, -2.0, *[0.0] * (DIMENSIONS - 2))
    scorer = Evidence([MAIL], BACKGROUND, WEIGHTS, meaning=meaning)

    got = scorer.ranked("anything", axis(number), {MAIL.id})

    assert [score.score for score in got] == [pytest.approx(1 / (1 + np.exp(none)))]


def test_a_projection_that_turns_nothing_says_the_same_again() -> None:
    nothing = Projection(
        np.ones((DIMENSIONS, 2), np.float32),
        np.zeros((2, DIMENSIONS), np.float32),
        np.zeros(DIMENSIONS, np.float32),
    )
    bare = described("bare", 2, text="paints pictures")
    index = EvidenceIndex([GIT, MAIL, bare], BACKGROUND, projection=nothing)
    message = (0.8 * axis(0) + 0.6 * axis(1)).astype(np.float32)

    got = index.found("git history", message)

    for_capabilities, for_none = evidence_names(has_projection=True)
    columns = dict(zip(for_capabilities, got.capabilities.T, strict=True))
    for name in LEARNT_EVIDENCE:
        plain = columns[name.removeprefix("learnt_")]
        assert columns[name] == pytest.approx(plain, abs=1e-4), name
    none = dict(zip(for_none, got.none.tolist(), strict=True))
    for name in LEARNT_NONE_EVIDENCE:
        plain = none.get(name.removeprefix("learnt_"), 0.0)
        assert none[name] == pytest.approx(plain, abs=1e-4), name


def test_among_some_capabilities_the_projection_says_what_it_says_of_these_alone() -> None:
    random = np.random.default_rng(4)
    projection = Projection(
        random.normal(size=(DIMENSIONS, 2)).astype(np.float32),
        random.normal(size=(2, DIMENSIONS)).astype(np.float32),
        random.normal(size=DIMENSIONS).astype(np.float32),
    )
    both = EvidenceIndex([GIT, MAIL], BACKGROUND, projection=projection)

    got = both.found("git history", axis(0)).among(np.array([1]))

    _, for_none = evidence_names(has_projection=True)
    none = dict(zip(for_none, got.none.tolist(), strict=True))
    columns = dict(
        zip(evidence_names(has_projection=True)[0], got.capabilities[0].tolist(), strict=True)
    )
    assert got.none.shape == (len(for_none),)
    assert none["learnt_best_nearest"] == columns["learnt_nearest"]
    assert none["learnt_lead"] == 0
