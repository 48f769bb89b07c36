"""Cleaning of messages: the published strip rule exactly, and capd's own rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.routing.cleaning import clean, is_system_content, is_too_short

HOSTILE = [
    pytest.param("<a" * 100_000, id="openings that never end"),
    pytest.param("<a>" * 66_000, id="tags that nothing closes"),
    pytest.param("<a>" * 30_000 + "</a>" * 25_000, id="more openings than closes"),
    pytest.param("<a>" * 50_000 + "x</a>", id="one close at the end"),
    pytest.param("".join(f"<a{n}>" for n in range(25_000)), id="another name each"),
    pytest.param(
        "".join(f"</a{n}>" for n in range(10_000)) + "".join(f"<a{n}>" for n in range(10_000)),
        id="closes before openings",
    ),
    pytest.param(
        "".join(f"<a{n}><a{n}></a{n}>" for n in range(8_000)), id="unbalanced, another name each"
    ),
    pytest.param("`" * 200_000, id="one line of backticks"),
    pytest.param("```\n" * 50_000, id="lines of fences"),
    pytest.param("```x" * 50_000, id="fences in one line"),
    pytest.param("at " + "(" * 200_000, id="a frame without a place"),
    pytest.param("at " + "(: " * 66_000, id="many words that begin like a place"),
    pytest.param('File "' + '",' * 100_000, id="a frame without a line"),
    pytest.param("Traceback (most recent call last):\n" + " " * 200_000, id="a blank traceback"),
    pytest.param(" " * 200_000 + "\n" * 100, id="spaces"),
]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        pytest.param("<log>boom</log> fix it", " fix it", id="a block"),
        pytest.param('<log level="x">a</log>b', "b", id="with attributes"),
        pytest.param("<a><a>x</a>y</a>z", "z", id="nested in itself"),
        pytest.param("<a><a>x</a></a>1<a>y</a>2", "12", id="two blocks"),
        pytest.param("<a><b>x</b></a>y", "y", id="nested in another"),
        pytest.param("<a><ab>x</a>y</ab>", "y</ab>", id="a longer name is another one"),
        pytest.param("<a><ab>x</a>1</a>2", "1</a>2", id="a longer name opens nothing"),
        pytest.param("<a><a>x</a>y", "y", id="unbalanced: to the last close"),
        pytest.param("x</a>y<a>z", "x</a>y<a>z", id="a close before its opening"),
        pytest.param("<Log>x</log>", "<Log>x</log>", id="case counts"),
        pytest.param("Vec<String> is slow", "Vec<String> is slow", id="a type"),
        pytest.param("a < b and c > d", "a < b and c > d", id="comparisons"),
        pytest.param("<br/>text<img>", "<br/>text<img>", id="tags without an end"),
        pytest.param("a\n```py\n<b>x\n```\nb</b>", "a\n\nb</b>", id="a fence before its tags"),
        pytest.param("a\n~~~\nx\n~~~\nb", "a\n\nb", id="tildes"),
        pytest.param("a\n````\n```\nx\n```\n````\nb", "a\n\nb", id="a fence in a longer one"),
        pytest.param("a\n```\nx\n`````\nb", "a\n\nb", id="closed by a longer one"),
        pytest.param("a\n```\nx\nb", "a\n", id="never closed"),
        pytest.param("```ls``` fails\nwhy?", "```ls``` fails\nwhy?", id="inline code"),
        pytest.param("run `x` and ``y``", "run `x` and ``y``", id="short inline code"),
        pytest.param("~~~ `x`\nx\n~~~\nb", "\nb", id="tildes take backticks"),
        pytest.param("text ```\nx", "text ```\nx", id="not at the start of a line"),
        pytest.param(
            'why?\nTraceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
            "    x()\nValueError: no\nplease",
            "why?\nplease",
            id="a Python traceback",
        ),
        pytest.param(
            "why?\nTypeError: x is not a function\n    at f (/a/b.js:10:5)\n    at c.js:1:2\nhm",
            "why?\nTypeError: x is not a function\nhm",
            id="a JavaScript trace",
        ),
        pytest.param("\tat com.foo.Bar.run(Bar.java:12) ~[x.jar:1.0]\nhm", "hm", id="a Java frame"),
        pytest.param(
            "2026-11-22 10:00:01 x\n[2026-11-22T10:00] y\n10:00:00 z\n[ERROR] a\nINFO: b\nhm",
            "hm",
            id="log lines",
        ),
        pytest.param(
            "meet at 10:30\nat noon (maybe: 5)\n",
            "meet at 10:30\nat noon (maybe: 5)\n",
            id="times in words",
        ),
        pytest.param("Error in my build", "Error in my build", id="a word like a level"),
        pytest.param("INFORMATION please", "INFORMATION please", id="a longer word"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_cleaning_leaves(text: str, cleaned: str) -> None:
    got = clean(text)

    assert got == cleaned


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_paste_is_cleaned_within_the_test_s_time(text: str) -> None:
    assert len(clean(text)) <= len(text)


tagged = st.lists(
    st.sampled_from(
        ["<a>", "</a>", "<b x>", "</b>", "<", ">", "a", " ", "<ab", "</ab>", "/", "\n"]
    ),
    max_size=20,
).map("".join)


@given(st.text() | tagged | st.text("`~<>/a:(\n 0-9\ud800", max_size=60))
@settings(deadline=None)
def test_cleaning_never_fails_and_never_invents_text(text: str) -> None:
    left = iter(text)

    result = clean(text)

    assert all(character in left for character in result), "not a subsequence"


@pytest.mark.parametrize(
    ("text", "is_system"),
    [
        ("<system-reminder>x</system-reminder>", True),
        ("  \n<system-note>", True),
        ("<instructions>", True),
        ('<skill name="x">', True),
        ("<command-name>/x", True),
        ("<local-command-stdout>", True),
        ("<tool_result>", True),
        ("<continuation>", True),
        ("[Request interrupted by user]", True),
        ("This session is being continued from a previous conversation that ran out", True),
        ("<skill>", False),
        ("why does <system-reminder> appear?", False),
        ("<log>x</log> help me", False),
        ("", False),
    ],
)
def test_a_programs_words_are_told_from_the_users(text: str, *, is_system: bool) -> None:
    assert is_system_content(text) is is_system


@pytest.mark.parametrize(
    ("text", "is_short"),
    [
        ("", True),
        ("1234567", True),
        ("1 2 3\t4\n5 6 7", True),
        ("12345678", False),
        ("1 2345678", False),
    ],
)
def test_fewer_than_eight_characters_that_are_not_spaces_are_too_short(
    text: str, *, is_short: bool
) -> None:
    assert is_too_short(text) is is_short
