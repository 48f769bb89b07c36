"""The speech act of each sentence of a message: an order, a question, a report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.routing.sentences import (
    LONGEST_READ,
    MOST_SENTENCES,
    SENTENCE_SIGNS,
    act,
    sentence_signs,
    sentences,
)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("which of the seats are taken", "asks"),
        ("so could you count the seats", "asks"),
        ("the seats are taken, right?", "asks"),
        ("ok now count the seats", "orders"),
        ("Please hang up", "tells"),
        ("post is slow today", "tells"),
        ("post the minutes", "orders"),
        ("I'd like a list of the seats", "needs"),
        ("we're looking for the bill of May", "needs"),
        ("our seats are a mess", "tells"),
    ],
)
def test_a_sentence_does_one_thing(sentence: str, expected: str) -> None:
    assert act(sentence) == expected


def test_a_message_is_read_sentence_by_sentence() -> None:
    text = "The hall was full. We sold the seats twice – can you find a bigger one, please sort it"

    assert sentences(text) == [
        "The hall was full.",
        "We sold the seats twice",
        "can you find a bigger one",
        "please sort it",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The hall was full. Count the seats",
            {"any_orders", "first_tells", "last_orders", "past_of_others"},
        ),
        (
            "can you give me the bill?",
            {"any_asks", "first_asks", "last_asks", "to_you"},
        ),
        (
            "we lost the key, so we need a new one",
            {"any_needs", "first_tells", "last_needs", "past_of_mine"},
        ),
        (
            "tomorrow will be worth it",
            {"first_tells", "last_tells", "future", "opinion"},
        ),
    ],
)
def test_the_signs_of(text: str, expected: set[str]) -> None:
    got: dict[str, float] = dict(zip(SENTENCE_SIGNS, sentence_signs(text), strict=True))

    got.pop("share_telling")
    assert {name for name, value in got.items() if value == 1.0} == expected


def test_half_of_two_sentences_tell() -> None:
    got = dict(zip(SENTENCE_SIGNS, sentence_signs("The hall is full. Count it"), strict=True))

    assert got["share_telling"] == 0.5


@given(st.text(max_size=300))
def test_any_text_has_every_sign_between_0_and_1(text: str) -> None:
    got = sentence_signs(text)

    assert len(got) == len(SENTENCE_SIGNS)
    assert all(0.0 <= value <= 1.0 for value in got)


@pytest.mark.parametrize(
    "piece", ["so, ", "um ", "a ", "- ", ". ", "has ", "i 'll ", "we  ", ", can ", "\n", "  "]
)
def test_only_the_beginning_of_a_huge_message_is_read(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))

    assert sentence_signs(text) == sentence_signs(text[:LONGEST_READ])
    assert len(sentences(text)) <= MOST_SENTENCES
