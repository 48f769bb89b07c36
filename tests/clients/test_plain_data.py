"""Changes of data at a path, with which edited texts must agree."""

from typing import Any

import pytest

from capd_client.install.plain_data import found, is_same, is_there, with_value, without

DATA: dict[str, Any] = {"a": [1, 2], "b": {"c": None}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("a", 0), {"a": [2], "b": {"c": None}}),
        (("b", "c"), {"a": [1, 2], "b": {}}),
        (("x",), DATA),
        (("a", 7), DATA),
        (("a", "x"), DATA),
    ],
)
def test_what_is_taken_out_is_gone_and_what_is_not_there_is_not(
    path: tuple[str | int, ...], expected: Any
) -> None:
    assert without(DATA, path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("b", "c", "d"), {"a": [1, 2], "b": {"c": {"d": 0}}}),
        (("a", 1), {"a": [1, 0], "b": {"c": None}}),
        ((), 0),
    ],
)
def test_a_value_is_put_where_nothing_or_something_is(
    path: tuple[str | int, ...], expected: Any
) -> None:
    assert with_value(DATA, path, 0) == expected


def test_null_is_there_and_found_as_nothing() -> None:
    assert (is_there(DATA, ("b", "c")), found(DATA, ("b", "c"))) == (True, None)


@pytest.mark.parametrize(("one", "other"), [(1, True), (None, {}), (1, 1.0), ("1", 1)])
def test_what_a_client_tells_apart_is_not_the_same(one: Any, other: Any) -> None:
    assert not is_same(one, other)
