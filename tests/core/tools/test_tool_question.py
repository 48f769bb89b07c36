"""The queries that the tool search accepts."""

import pytest

from capd.core.tools.tool_question import BadQuestionError, Ranking, Selection, question


@pytest.mark.parametrize(
    ("query", "limit", "expected"),
    [
        ("  send a mail ", 5, Ranking("send a mail", 5)),
        ("x", 1, Ranking("x", 1)),
        ("x", 25, Ranking("x", 25)),
        ("selection:a", 5, Ranking("selection:a", 5)),
        ("select: b, a,b ,,a", 5, Selection(("b", "a"))),
        ("+Mail send it", 5, Ranking("Mail send it", 5, ("mail",))),
        ("read +pdf and +PDF", 5, Ranking("read pdf and PDF", 5, ("pdf",))),
        ("c++ a+b +1 +", 5, Ranking("c++ a+b +1 +", 5)),
    ],
)
def test_a_question_is_read(query: str, limit: int, expected: Ranking | Selection) -> None:
    got = question(query, limit)

    assert got == expected


@pytest.mark.parametrize(
    ("query", "limit", "reason"),
    [
        ("", 5, "`query` is empty"),
        (" \n\t", 5, "`query` is empty"),
        ("x", 0, "from 1 to 25"),
        ("x", 26, "from 1 to 25"),
        ("x", -3, "from 1 to 25"),
        ("select:", 5, "names no tool"),
        ("select: , ,", 5, "names no tool"),
    ],
)
def test_a_question_that_leads_nowhere_is_refused(query: str, limit: int, reason: str) -> None:
    with pytest.raises(BadQuestionError, match=reason):
        question(query, limit)
