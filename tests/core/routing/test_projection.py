"""The learnt map of vectors."""

import numpy as np
import pytest

from capd.core.routing.projection import BadProjectionError, Projection

DIMENSIONS, RANK = 6, 2


def projection() -> Projection:
    random = np.random.default_rng(0)
    return Projection(
        random.normal(size=(DIMENSIONS, RANK)).astype(np.float32),
        random.normal(size=(RANK, DIMENSIONS)).astype(np.float32),
        random.normal(size=DIMENSIONS).astype(np.float32),
    )


def rows(count: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    found = np.random.default_rng(1).normal(size=(count, DIMENSIONS))
    unit: np.ndarray[tuple[int, int], np.dtype[np.float32]] = (
        found / np.linalg.norm(found, axis=1, keepdims=True)
    ).astype(np.float32)
    return unit


def test_a_row_as_it_is_gives_the_cosine_of_the_projected_row() -> None:
    one, message, phrases = projection(), rows(1)[0], rows(5)

    got = phrases @ one.images(message) / one.lengths(phrases)

    assert got == pytest.approx(one.projected(phrases) @ one.projected(message), abs=1e-5)
    assert np.linalg.norm(one.projected(phrases), axis=1) == pytest.approx(1, abs=1e-5)


def test_a_row_of_zeros_stays_one() -> None:
    assert not projection().projected(np.zeros((2, DIMENSIONS), np.float32)).any()


def test_it_is_read_as_it_was_written() -> None:
    written = projection().to_bytes()

    got = Projection.from_bytes(written, DIMENSIONS)

    assert got.to_bytes() == written
    assert got.up == pytest.approx(projection().up, abs=1e-2)
    assert got.down.shape == (DIMENSIONS, RANK)


@pytest.mark.parametrize("data", [b"1", b"12", projection().to_bytes()[:-2]])
def test_another_size_is_refused(data: bytes) -> None:
    with pytest.raises(BadProjectionError, match="for 6 numbers"):
        Projection.from_bytes(data, DIMENSIONS)
