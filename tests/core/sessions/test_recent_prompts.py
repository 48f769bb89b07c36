"""Two hooks of one prompt count once; two prompts count twice."""

import pytest

from capd.core.sessions.recent_prompts import TOGETHER, RecentPrompts

WORDS = "what changed?"


@pytest.mark.parametrize(
    ("first", "second", "after", "is_again"),
    [
        pytest.param("", "", 0.0, True, id="two hooks of a client that names no prompt"),
        pytest.param("", "", TOGETHER, True, id="on a slow machine"),
        pytest.param("", "", TOGETHER + 0.1, False, id="the user says it again"),
        pytest.param("t-1", "t-1", 60.0, True, id="two hooks of a prompt with a name"),
        pytest.param("t-1", "t-2", 0.0, False, id="two prompts with names"),
        pytest.param("t-1", "", 0.1, True, id="one hook of two knows the name"),
        pytest.param("t-1", "", 60.0, False, id="a later prompt without a name"),
    ],
)
def test_the_same_words_are_the_same_prompt(
    first: str, second: str, after: float, is_again: bool
) -> None:
    heard = RecentPrompts()
    heard.is_again(WORDS, first, 100.0)

    got = heard.is_again(WORDS, second, 100.0 + after)

    assert got is is_again


def test_other_words_are_another_prompt() -> None:
    heard = RecentPrompts()
    heard.is_again(WORDS, "", 100.0)

    assert not heard.is_again("and before that?", "", 100.0)


def test_only_the_last_prompts_are_kept() -> None:
    heard = RecentPrompts()
    heard.is_again(WORDS, "t-1", 100.0)
    for number in range(4):
        heard.is_again(f"{WORDS} {number}", "", 100.0)

    assert not heard.is_again(WORDS, "t-1", 100.0)
