"""How a message is put: each sign on phrases of its own, and none on plain requests."""

import pytest

from capd.core.routing.manner import SIGNS, signs


@pytest.mark.parametrize(
    ("sign", "text"),
    [
        ("about_a_word", "why is the mongoose called a mongoose"),
        ("about_a_word", "what does the acronym YAML stand for"),
        ("about_a_word", "who invented the spreadsheet"),
        ("about_a_word", "how do you pronounce linux"),
        ("general_question", "what is a pod"),
        ("general_question", "explain how containers differ from machines"),
        ("general_question", "the difference between rebase and merge"),
        ("invention", "write a limerick about a lonely server"),
        ("machine_output", "TypeError: undefined is not a function"),
        ("machine_output", "npm WARN deprecated left-pad"),
        ("unspecific", "tell jokes"),
    ],
)
def test_a_sign_is_seen_in(sign: str, text: str) -> None:
    got: dict[str, float] = dict(zip(SIGNS, signs(text), strict=True))

    assert got[sign] == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "list the open pull requests of our repository",
        "restart the pod that crashed in staging",
        "add the meeting with Tom on Friday to my calendar",
        "query the users table for rows of last week",
        "which of the containers on this host use most memory",
    ],
)
def test_a_plain_request_shows_no_sign_but_for_how_specific_it_is(text: str) -> None:
    got = signs(text)

    assert got[:-1] == (0.0, 0.0, 0.0, 0.0)
    assert got[-1] < 1.0


def test_a_message_without_words_has_signs_too() -> None:
    got = signs("")

    assert got == (0.0, 0.0, 0.0, 0.0, 1.0)


def test_a_long_paste_is_looked_at_in_little_time() -> None:
    text = ("a/b" * 2000 + " ") * 5

    got = signs(text)

    assert len(got) == len(SIGNS)
