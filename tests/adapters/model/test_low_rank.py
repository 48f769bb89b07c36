"""The low-rank changes of the model that an input turns on."""

import functools

import numpy as np
import numpy.typing as npt
import pytest

from capd.adapters.model import low_rank
from capd.adapters.model.low_rank import RANK, SIZE_BYTES, changed_maps, changes_in, with_switch
from capd.adapters.model.minilm import MiniLM, _installed_model, routing_adapter

TEXTS = ["git", "take a screenshot of the login page", "The tests were green yesterday. " * 12]
Halves = list[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]


def halves(scale: float = 0.02) -> Halves:
    """Return the two matrices of each changed map."""
    random = np.random.default_rng(1)
    return [
        (
            random.normal(0, scale, (size_in, RANK)).astype(np.float32),
            random.normal(0, scale, (RANK, size_out)).astype(np.float32),
        )
        for *_, size_in, size_out in changed_maps()
    ]


def packed(matrices: Halves) -> bytes:
    return b"".join(each.astype("<f2").tobytes() for pair in matrices for each in pair)


@functools.cache
def vectors(adapter: bytes, *, is_changed: bool) -> npt.NDArray[np.float32]:
    return MiniLM(adapter=adapter).embed(TEXTS, is_changed=is_changed)


@pytest.mark.real
def test_with_the_switch_off_the_vectors_are_those_of_the_model() -> None:
    np.testing.assert_array_equal(
        vectors(packed(halves()), is_changed=False), vectors(b"", is_changed=False)
    )


@pytest.mark.real
def test_with_the_switch_on_each_text_has_another_vector_of_length_one() -> None:
    changed = vectors(packed(halves()), is_changed=True)

    assert (np.abs(np.linalg.norm(changed, axis=1) - 1) < 1e-5).all()
    assert ((changed * vectors(b"", is_changed=False)).sum(axis=1) < 0.999).all()


@pytest.mark.real
def test_only_the_product_of_the_two_matrices_counts() -> None:
    stretched = [(4 * down, up * np.float32(0.25)) for down, up in halves()]

    np.testing.assert_allclose(
        vectors(packed(stretched), is_changed=True),
        vectors(packed(halves()), is_changed=True),
        atol=1e-5,
    )


@pytest.mark.real
def test_each_map_changes_the_vectors() -> None:
    none = vectors(b"", is_changed=False)
    alone = []
    for at in range(len(list(changed_maps()))):
        only = [
            (down, up if number == at else 0 * up) for number, (down, up) in enumerate(halves(0.1))
        ]
        alone.append(vectors(packed(only), is_changed=True))

    assert [at for at, each in enumerate(alone) if np.allclose(each, none, atol=1e-4)] == []
    differ = [
        np.abs(one - other).max() > 1e-4 for one in alone for other in alone if one is not other
    ]
    assert all(differ)


@pytest.mark.real
def test_what_ships_changes_the_vectors_and_fits_the_model() -> None:
    adapter = routing_adapter()

    assert len(adapter) == SIZE_BYTES
    shipped = MiniLM()
    np.testing.assert_array_equal(
        shipped.embed(TEXTS, is_changed=True), vectors(adapter, is_changed=True)
    )
    assert ((shipped.embed(TEXTS) * shipped.embed(TEXTS, is_changed=True)).sum(axis=1) < 0.99).all()


def test_changes_are_read_in_the_order_of_the_maps() -> None:
    matrices = halves()

    read = changes_in(packed(matrices))

    assert [(each.layer, each.part) for each in read] == [each[:2] for each in changed_maps()]
    for each, (down, up) in zip(read, matrices, strict=True):
        assert (each.down, each.up) == (down.astype("<f2").tobytes(), up.astype("<f2").tobytes())


@pytest.mark.parametrize("size", [0, 1, SIZE_BYTES - 2, SIZE_BYTES + 2])
def test_an_adapter_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"an adapter has {SIZE_BYTES} bytes, and not {size}"):
        changes_in(bytes(size))


@pytest.mark.real
def test_a_model_without_one_of_the_maps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _installed_model().read_bytes()
    monkeypatch.setattr(low_rank, "CHANGED_LAYERS", (3, 4, 6))

    with pytest.raises(ValueError, match=r"adds inner\.encoder\.layer\.6\..* to no product"):
        with_switch(model, packed(halves()))
