"""`capd acp` splits its input into lines however the bytes arrive; it loses and joins none."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd_client.acp import proxy

LINES = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=12)


def pieces(text: bytes) -> list[tuple[bytes, bool]]:
    readable, writable = os.pipe()
    try:
        os.write(writable, text)
        os.close(writable)
        return list(proxy._pieces(readable))
    finally:
        os.close(readable)


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """Read little at a time, and take much for a long line."""
    patch = pytest.MonkeyPatch()
    patch.setattr(proxy, "_READ_BYTES", 7)
    patch.setattr(proxy, "_LINE_LIMIT_BYTES", 12)
    yield
    patch.undo()


@given(lines=LINES, is_ended=st.booleans())
def test_what_goes_in_comes_out_and_each_short_line_is_one_piece(
    lines: list[bytes], *, is_ended: bool
) -> None:
    text = b"\n".join(lines) + b"\n" * is_ended

    found = pieces(text)

    assert b"".join(piece for piece, _ in found) == text
    whole = [piece.removesuffix(b"\n") for piece, is_line in found if is_line]
    *expected, last = text.split(b"\n")
    expected += [last] if last else []
    assert [line for line in whole if len(line) <= 5] == [
        line for line in expected if len(line) <= 5
    ]
    assert all(piece.count(b"\n") <= 1 for piece, _ in found)


def test_a_line_that_is_too_long_is_passed_on_in_pieces_and_not_read() -> None:
    found = pieces(b"short\n" + b"x" * 40 + b"\nshort\n")

    assert [piece for piece, is_line in found if is_line] == [b"short\n", b"short\n"]
    assert b"".join(piece for piece, is_line in found if not is_line) == b"x" * 40 + b"\n"
