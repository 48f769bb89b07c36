"""Stored and compared with fewer bits, vectors decide as they do whole.

The messages are the development sets of this repository; the catalog is the tap that comes with
capd, with its overlays.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from capd.adapters.routing_files import background_messages, background_vectors, read_profile
from capd.adapters.tap_files import read_tap, starter_place, tap_vectors
from capd.core.routing import deciding, evidence, gates
from capd.core.routing.deciding import Circumstances, Comparison
from capd.core.routing.passages import Passages, passages_of
from capd.core.routing.scorers import texts_of
from capd.evaluation import datasets
from capd.evaluation.datasets import Selection
from capd.tap_build import embedded
from capd_protos.types import CapabilitySpec, Decision

pytestmark = pytest.mark.whole

Vectors = npt.NDArray[np.float32]
ROOT = Path(__file__).parents[2]
SETS = [ROOT / "bench" / "routing" / f"{name}.jsonl" for name in ("starter", "near_ties")]
PROFILE = read_profile()


@pytest.fixture(scope="module")
def capabilities() -> tuple[CapabilitySpec, ...]:
    overlays = [ROOT / "taps" / "overlays" / "starter"]
    return datasets.tap(ROOT / "taps" / "starter", overlays=overlays)


@pytest.fixture(scope="module")
def messages() -> dict[Passages, list[Vectors]]:
    found = [passages_of(row.text) for row in Selection().rows(SETS)]
    vectors = embedded(list(dict.fromkeys(text for each in found for text in each.each)), {})
    return {each: [vectors[text] for text in each.each] for each in found}


@pytest.fixture(scope="module")
def exact(capabilities: tuple[CapabilitySpec, ...]) -> dict[str, Vectors]:
    texts = [text for each in capabilities for text in texts_of(each)]
    return embedded(list(dict.fromkeys([*texts, *background_messages()])), {})


def compared(
    capabilities: tuple[CapabilitySpec, ...], vectors: Mapping[str, Vectors]
) -> Comparison:
    return deciding.comparison(PROFILE, capabilities, vectors, background_messages())


def decisions(
    made: Comparison,
    capabilities: tuple[CapabilitySpec, ...],
    messages: Mapping[Passages, list[Vectors]],
) -> dict[Passages, tuple[object, ...]]:
    """Return what is done for each message, without the scores."""
    known = Circumstances(gates.Eligible(capabilities, {}))
    decided: dict[Passages, Decision] = {
        message: deciding.decided(message, vectors, made, PROFILE, known)
        for message, vectors in messages.items()
    }
    return {each: (d.outcome, d.reason, d.id, d.suggested) for each, d in decided.items()}


def test_the_vectors_that_a_tap_ships_decide_as_the_models_own_do(
    capabilities: tuple[CapabilitySpec, ...],
    messages: dict[Passages, list[Vectors]],
    exact: dict[str, Vectors],
) -> None:
    tap = tap_vectors(read_tap(starter_place()))
    assert tap is not None
    shipped = {**background_vectors(), **tap.of(exact)}

    stored = decisions(compared(capabilities, shipped), capabilities, messages)

    assert stored == decisions(compared(capabilities, exact), capabilities, messages)


def test_phrases_that_are_compared_in_eight_bits_first_decide_as_if_they_never_were(
    capabilities: tuple[CapabilitySpec, ...],
    messages: dict[Passages, list[Vectors]],
    exact: dict[str, Vectors],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = decisions(compared(capabilities, exact), capabilities, messages)
    # Less than there are capabilities, so that their descriptions are compared in eight bits too.
    monkeypatch.setattr(evidence, "MOST_EXACT", len(capabilities) // 2)
    monkeypatch.setattr(evidence, "NEAR_BY_MEANING", 5)
    monkeypatch.setattr(evidence, "NEAR_BY_WORDS", 3)
    # In a large catalog fewer parts of a long message are compared, whatever the bits.
    monkeypatch.setattr(evidence, "MOST_PARTS_OF_LARGE", evidence.MOST_PARTS)

    coarse = decisions(compared(capabilities, exact), capabilities, messages)

    assert coarse == whole
