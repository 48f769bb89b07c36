"""Calibration recovers the weights that generated the data, deterministically."""

import numpy as np
import pytest

from capd.core.routing.calibration import TuningSet, fitted, meaning, named, probabilities
from capd.core.routing.evidence import CAPABILITY_EVIDENCE, NONE_EVIDENCE

COUNT = len(CAPABILITY_EVIDENCE) + len(NONE_EVIDENCE)


def made(seed: int, rows: int = 3000, capabilities: int = 6) -> tuple[TuningSet, np.ndarray]:
    """Return a set drawn from known weights."""
    random = np.random.default_rng(seed)
    capability = random.normal(size=(rows, capabilities, len(CAPABILITY_EVIDENCE)))
    none = random.normal(size=(rows, len(NONE_EVIDENCE)))
    none[:, 0] = 1.0
    truth = random.normal(size=COUNT)
    blank = TuningSet(capability, none, np.zeros((rows, capabilities + 1), bool))
    drawn = probabilities(blank, truth).cumsum(axis=1) > random.random((rows, 1))
    accepted = np.zeros((rows, capabilities + 1), bool)
    accepted[np.arange(rows), drawn.argmax(axis=1)] = True
    return TuningSet(capability, none, accepted), truth


@pytest.mark.parametrize("seed", [1, 2])
def test_known_weights_are_found_again(seed: int) -> None:
    one, truth = made(seed)

    got = fitted([one], 1e-6)

    # The share of those that want nothing is set, so the bias is not the one that drew them.
    slopes = [at for at in range(COUNT) if at != len(CAPABILITY_EVIDENCE)]
    assert np.corrcoef(got[slopes], truth[slopes])[0, 1] > 0.97


def test_the_same_data_give_the_same_weights() -> None:
    got = [named(fitted([made(3)[0]])) for _ in range(2)]

    assert got[0] == got[1]


def test_a_set_counts_by_its_importance_and_not_by_its_size() -> None:
    one, _ = made(4, rows=300)
    rows = np.tile(np.arange(len(one.accepted)), 2)
    twice = TuningSet(one.capabilities[rows], one.none[rows], one.accepted[rows])
    other, _ = made(5, rows=300)

    got = [fitted([each, other]) for each in (one, twice)]

    assert got[0] == pytest.approx(got[1], abs=1e-3)


def test_a_stronger_penalty_makes_smaller_weights() -> None:
    one, _ = made(6)

    got = [np.abs(fitted([one], penalty)).sum() for penalty in (1e-4, 1.0)]

    assert got[1] < got[0] / 2


def test_rows_that_want_nothing_have_their_share_however_few_they_are() -> None:
    one, _ = made(7)
    few = one.only(np.arange(len(one.accepted)) < 100)

    got = few.row_weights[few.accepted[:, -1]].sum()

    assert got == pytest.approx(0.4)


def with_vectors(one: TuningSet) -> TuningSet:
    """Return the set with three more numbers per message; the first tells what it wants."""
    random = np.random.default_rng(7)
    vectors = random.normal(size=(len(one.none), 3))
    vectors[:, 0] += 3 * one.accepted[:, -1]
    return TuningSet(one.capabilities, np.hstack([one.none, vectors]), one.accepted)


def test_the_weights_of_the_vector_are_found_and_kept_apart_from_the_named_ones() -> None:
    one = with_vectors(made(8)[0])

    got = fitted([one])

    assert len(named(got)) == COUNT
    first, *rest = meaning(got)
    assert first > 10 * max(map(abs, rest))


def test_without_vectors_there_are_no_weights_of_one() -> None:
    got = fitted([made(9, rows=300)[0]])

    assert meaning(got) == ()


def test_where_the_search_begins_decides_nothing() -> None:
    one, truth = made(10)

    got = [fitted([one], start=start) for start in (None, truth)]

    assert got[0] == pytest.approx(got[1], abs=1e-2)
