"""Tables: one line per row, fitted to the terminal's width, complete in a pipe."""

import pytest

from capd_client.columns import cell_width, table_lines
from capd_client.tables import say

TITLES = ("server", "state", "pid", "membership", "error")
ROWS = [
    ("git", "ready", 4711, "sweep", ""),
    ("browser", "failed", "", "", "the program `npx` is not on the daemon's PATH; install Node.js"),
]


def test_a_wide_table_shows_everything() -> None:
    assert table_lines(TITLES, ROWS, columns=None) == [
        " server   state    pid  membership  error",
        " git      ready   4711  sweep",
        f" browser  failed                    {ROWS[1][-1]}",
    ]


def test_at_60_columns_a_text_is_cut_and_no_line_is_longer() -> None:
    assert table_lines(TITLES, ROWS, columns=60) == [
        " server   state    pid  membership  error",
        " git      ready   4711  sweep",
        " browser  failed                    the program `npx` is no…",
    ]


def test_where_cutting_is_not_enough_the_column_that_tells_least_is_left_out() -> None:
    assert table_lines(TITLES, ROWS, columns=42) == [
        " server   state    pid  error",
        " git      ready   4711",
        " browser  failed        the program `np…",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_names_stay_whole(columns: int) -> None:
    rows = [("a-server-with-a-long-name", "ready", 1, "namespace", "x" * 300)] * 3

    lines = table_lines(TITLES, rows, columns=columns)

    assert max(map(cell_width, lines)) <= columns
    assert all("a-server-with-a-long-name" in line for line in lines[1:])


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    assert table_lines(("name", "missing"), [("git", ""), ("time", None)], columns=80) == [
        " name",
        " git",
        " time",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert table_lines(("name", "for"), [("日本", "語を読む"), ("git", "log")], columns=80) == [
        " name  for",
        " 日本  語を読む",
        " git   log",
    ]


def test_states_have_colours_and_what_a_server_says_steers_no_terminal() -> None:
    rows = [("\x1b[2Jgit", "ready", 1, "", ""), ("b", "failed", 2, "", "")]

    lines = table_lines(TITLES, rows, columns=80, is_coloured=True)

    assert lines[1] == " \\x1b[2Jgit  \x1b[32mready\x1b[0m     1"
    assert "\x1b[31mfailed\x1b[0m" in lines[2]


def test_no_row_is_said_in_a_word() -> None:
    assert table_lines(TITLES, [], columns=80) == ["  none"]


def test_a_long_sentence_is_broken_between_words_on_a_terminal_and_not_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "  why: " + "reasons and more " * 5
    monkeypatch.delenv("COLUMNS", raising=False)
    say(text.rstrip())
    monkeypatch.setenv("COLUMNS", "60")
    say(text.rstrip())

    whole, *broken = capsys.readouterr().out.splitlines()

    assert whole == text.rstrip()
    assert broken == [
        "  why: reasons and more reasons and more reasons and more",
        "    reasons and more reasons and more",
    ]
