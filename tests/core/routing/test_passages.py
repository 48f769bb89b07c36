"""The parts of a message that are compared: all of a short one, and passages of a long one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.routing.passages import (
    LONGEST_COMPARED,
    LONGEST_PASSAGE,
    MOST_CHARACTERS,
    MOST_PASSAGES,
    Passages,
    passages_of,
)

STORY = (
    "It has been one of those mornings. The cat was sick, the boiler man came and pronounced, and "
    "then an email from the archive: they have found the manifest!\n\n"
    "Only they've sent it as a workbook with eleven sheets. It is in research/hull/. "
    "Would you turn it into plain text, with the columns kept? I shall do the hunting myself; it "
    "is the only pleasure left in historical fiction, that and the footnotes."
)


def test_a_short_message_is_compared_as_a_whole() -> None:
    got = passages_of("show the history. Then stop")

    assert got == Passages("show the history. Then stop")
    assert (got.each, got.text) == ((got.ends,), got.ends)


def test_a_long_message_is_compared_by_its_ends_and_by_each_sentence() -> None:
    got = passages_of(STORY)

    assert got.others == (
        (
            "It has been one of those mornings. The cat was sick, the boiler man came and "
            "pronounced, and then an email from the archive:"
        ),
        "they have found the manifest! Only they've sent it as a workbook with eleven sheets.",
        "It is in research/hull/. Would you turn it into plain text, with the columns kept?",
        (
            "I shall do the hunting myself; it is the only pleasure left in historical fiction, "
            "that and the footnotes."
        ),
    )
    assert got.each == (got.ends, *got.others)
    assert [got.part(at) for at in (0, 2, 99)] == [got.ends, got.others[1], got.ends]


def test_a_short_last_sentence_is_a_passage_of_its_own() -> None:
    got = passages_of(f"{STORY} Thank you!").others

    assert got == (*passages_of(STORY).others, "Thank you!")


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        pytest.param("a" * 320, "a" * 320, id="as long as may be"),
        pytest.param(
            "start " * 30 + "middle " * 90 + "end " * 45,
            ("start " * 26).strip() + " " + ("end " * 39).strip() + " ",
            id="its beginning and end, cut between words",
        ),
        pytest.param("x" * 900, "x" * 160 + " " + "x" * 160, id="without words to cut between"),
    ],
)
def test_the_ends_of_a_message_are(text: str, ends: str) -> None:
    got = passages_of(text).ends

    assert got == ends


@given(
    st.text(
        st.sampled_from("ab. !\n?;:…x\u3042\ud800"),
        max_size=3 * MOST_CHARACTERS,
    ),
    st.integers(1, 40),
)
def test_the_parts_of_any_message_are_bounded(text: str, times: int) -> None:
    got = passages_of(text * times)

    assert len(got.others) <= MOST_PASSAGES
    assert all(0 < len(each) <= LONGEST_PASSAGE for each in got.others)
    assert len(got.ends) <= LONGEST_COMPARED + 1
    assert bool(got.others) == (len(text * times) > LONGEST_COMPARED and bool(text.strip()))


@given(st.lists(st.text("abc", min_size=1, max_size=9), max_size=150))
def test_every_word_of_a_message_within_the_limit_is_in_a_passage(words: list[str]) -> None:
    text = ". ".join(words)[:MOST_CHARACTERS]
    got = passages_of(text)

    if len(text) > LONGEST_COMPARED and len(got.others) < MOST_PASSAGES:
        assert got.text.split() == text.split()
