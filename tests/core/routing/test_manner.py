"""Signs of how a message is phrased: each in its own examples, none in plain requests."""

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
        ("refusal", "don't bother with the wiki"),
        ("refusal", "never mind, leave that"),
        ("settled", "the upgrade is postponed to Monday"),
        ("settled", "For your information: the audit is done."),
        ("bare_settled", "the ticket was closed by the vendor"),
        ("complaint", "our wiki is a mess, find the page on refunds"),
        ("bare_complaint", "our wiki is a mess"),
        ("reported", "Anna says the forecast is wrong"),
        ("bare_reported", "my uncle likes spreadsheets"),
        ("bare_statement", "the release went out on Friday"),
        ("request", "please post it in the channel"),
        ("request", "how many seats do we have"),
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

    found = dict(zip(SIGNS, got, strict=True))
    assert found.pop("unspecific") < 1.0
    # A question without a mark, and one with a relative clause, may look like a statement.
    weak = {"request", "statement", "bare_statement"}
    assert {name for name, value in found.items() if value} <= weak


def test_a_message_without_words_has_signs_too() -> None:
    got = signs("")

    assert got == tuple(float(name == "unspecific") for name in SIGNS)


def test_a_long_paste_is_looked_at_in_little_time() -> None:
    text = ("a/b" * 2000 + " ") * 5

    got = signs(text)

    assert len(got) == len(SIGNS)


def test_a_complaint_that_asks_for_something_is_no_bare_one() -> None:
    got = dict(zip(SIGNS, signs("the build is broken again, find out why"), strict=True))

    assert (got["complaint"], got["request"], got["bare_complaint"]) == (1.0, 1.0, 0.0)
