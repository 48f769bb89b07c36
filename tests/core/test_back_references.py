"""A part can call its owner without keeping it alive."""

import gc
import sys
from weakref import ref

import pytest

from capd.core.back_references import weakly


class Owner:
    """The owner that parts call."""

    def added(self, one: int, *, other: int) -> int:
        return one + other


def test_a_method_is_called_with_what_it_is_given() -> None:
    owner = Owner()

    got = weakly(owner.added)(1, other=2)

    assert got == 3


def test_a_part_keeps_its_owner_neither_alive_nor_in_a_cycle() -> None:
    owner = Owner()
    part = weakly(owner.added)
    alive = ref(owner)
    gc.disable()
    try:
        del owner

        assert alive() is None
    finally:
        gc.enable()
    with pytest.raises(ReferenceError):
        part(1, other=2)


def test_a_further_part_of_one_owner_costs_less_than_a_hundred_bytes() -> None:
    owner = Owner()
    first, second = weakly(owner.added), weakly(owner.added)

    shared = {id(each) for each in gc.get_referents(first)}

    assert {id(each) for each in gc.get_referents(second)} == shared
    assert sys.getsizeof(second) < 100
