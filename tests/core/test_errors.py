"""The errors inside exception groups."""

from capd.core.errors import leaves


def test_leaves_are_found_at_every_depth_in_order() -> None:
    one, two, three = ValueError("1"), KeyError("2"), OSError("3")
    group = BaseExceptionGroup("a", [one, BaseExceptionGroup("b", [two]), three])

    got = list(leaves(group))

    assert got == [one, two, three]
