"""A tap's `vectors.bin` is untrusted: every part is checked before it is used."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.taps.tap_vectors import (
    MOST_ENTRIES,
    TapVectorsError,
    largest_bytes,
    read_vectors,
    spoken_for,
    written_vectors,
)

KEY = "model"
DIMENSIONS = 4
ONE = np.array([1, 0, 0, 0], np.float32)
TWO = np.array([0, 0.6, 0.8, 0], np.float32)
WHOLE = written_vectors({"one": ONE, "two": TWO}, KEY, DIMENSIONS)


def changed(at: int, value: bytes) -> bytes:
    return WHOLE[:at] + value + WHOLE[at + len(value) :]


def test_vectors_are_found_by_the_texts_that_they_were_written_for() -> None:
    found = read_vectors(WHOLE, KEY, DIMENSIONS).of(["two", "another", "one"])

    assert np.allclose(found["one"], ONE)
    assert np.allclose(found["two"], TWO, atol=1e-3)
    assert set(found) == {"one", "two"}


def test_the_same_vectors_give_the_same_bytes_in_whatever_order() -> None:
    assert written_vectors({"two": TWO, "one": ONE}, KEY, DIMENSIONS) == WHOLE


def test_a_tap_without_phrases_has_a_file_without_vectors() -> None:
    empty = written_vectors({}, KEY, DIMENSIONS)

    assert read_vectors(empty, KEY, DIMENSIONS).of(["one"]) == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is cut short"),
        (WHOLE[:40], "it is cut short"),
        (changed(0, b"somebody"), "it is no file of vectors"),
        (changed(8, struct.pack("<I", 9)), "its format is 9"),
        (changed(24, b"\0" * 32), "another model made it"),
        (changed(12, struct.pack("<I", 5)), "another model made it"),
        (changed(16, struct.pack("<I", 2**32 - 1)), "4,294,967,295 vectors, and at most 100,000"),
        (
            changed(16, struct.pack("<I", 3)),
            "it says that it has 3 vectors, and has another length",
        ),
        (WHOLE + b"\0", "has another length"),
        (WHOLE[:-1], "has another length"),
        (changed(len(WHOLE) - 8, struct.pack("<e", np.nan)), "their length is not 1"),
        (changed(len(WHOLE) - 8, struct.pack("<e", np.inf)), "their length is not 1"),
        (changed(len(WHOLE) - 8, b"\0" * 8), "their length is not 1"),
    ],
)
def test_a_damaged_file_is_one_finding_that_says_what_happens_now(data: bytes, said: str) -> None:
    with pytest.raises(TapVectorsError) as refused:
        read_vectors(data, KEY, DIMENSIONS)

    assert said in str(refused.value)
    assert str(refused.value).startswith("left out, so its phrases are embedded here: ")
    assert str(refused.value).endswith("; `capd tap build` writes it anew")


@settings(deadline=None)
@given(content=st.binary(max_size=200))
def test_no_other_content_is_taken_for_vectors(content: bytes) -> None:
    with pytest.raises(TapVectorsError):
        read_vectors(content, KEY, DIMENSIONS)


def test_the_largest_file_that_is_read_has_the_most_entries() -> None:
    assert largest_bytes(384) < MOST_ENTRIES * (16 + 384 * 2) + 100


def test_a_tap_speaks_for_no_text_that_another_tap_has_unless_it_came_with_capd() -> None:
    texts = [
        ("mine", ["both", "own", "as capd"]),
        ("theirs", ["both", "their own"]),
        ("starter", ["as capd"]),
    ]

    assert spoken_for(texts, {"starter"}) == {
        "mine": ["own"],
        "theirs": ["their own"],
        "starter": ["as capd"],
    }
