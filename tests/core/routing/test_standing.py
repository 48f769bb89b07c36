"""By how much the best capabilities exceed the others."""

import numpy as np
import pytest

from capd.core.routing.evidence import CAPABILITY_EVIDENCE
from capd.core.routing.manner import SIGNS, signs
from capd.core.routing.sentences import SENTENCE_SIGNS, sentence_signs
from capd.core.routing.standing import STANDING, standing


def columns(**given: list[float]) -> dict[str, np.ndarray]:
    count = len(next(iter(given.values())))
    return {name: np.array(given.get(name, [0.0] * count)) for name in CAPABILITY_EVIDENCE}


def shown(text: str, **given: list[float]) -> dict[str, float]:
    found = standing(columns(**given), (*signs(text), *sentence_signs(text)))
    return dict(zip(STANDING, found, strict=True))


def test_the_best_of_each_evidence_counts_and_the_lead_of_the_first() -> None:
    got = shown("", triggers=[0.5, 0.8, 0.2], nearest=[0.7, 0.9, 0.1], bm25=[0.4, 0.1, 0.0])

    assert got["best_nearest"] == 0.9
    assert got["best_nearest_squared"] == pytest.approx(0.81)
    assert got["best_bm25"] == 0.4
    assert got["lead"] == pytest.approx(0.3)
    assert got["above_mean"] == pytest.approx(0.3)


def test_two_capabilities_that_are_as_near_have_no_lead() -> None:
    assert shown("", triggers=[0.8, 0.8])["lead"] == 0.0


def test_a_single_capability_has_no_lead() -> None:
    assert shown("", triggers=[0.8])["lead"] == 0.0


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        ("restart the pod", {"request", "first_orders"}),
        ("is the hall full?", {"request", "last_asks"}),
        ("the hall is full", {"share_telling", "last_tells"}),
    ],
)
def test_how_near_the_best_is_counts_with_what_the_message_does(text: str, gates: set[str]) -> None:
    got = shown(text, nearest=[0.5, 0.6])

    assert {name for name in STANDING if "_if_" in name and got[name]} == {
        f"best_nearest_if_{gate}" for gate in gates
    }
    assert all(got[f"best_nearest_if_{gate}"] == 0.6 for gate in gates)


def test_no_capabilities_have_no_standing() -> None:
    message_signs = [1.0] * len((*SIGNS, *SENTENCE_SIGNS))

    got = standing(columns(triggers=[]), message_signs)

    assert got == (0.0,) * len(STANDING)
