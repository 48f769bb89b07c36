"""Text for a terminal: escaped, wrapped, and coloured if the user wants colour.

Standard library only, so that a command which prints a few lines starts at once.
"""

import os
import sys
import textwrap

WIDTH_OF_FILES = 200
"""Columns without a terminal: lines in a file are not broken at 80."""
_NARROWEST = 40
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def printable(text: object, *, keep_lines: bool = False) -> str:
    """Return `text` with escapes in place of all characters that are not printable.

    These are control characters, marks of writing direction, and invisible characters. With
    `keep_lines`, line breaks and tabs stay.
    """
    kept = "\n\t" if keep_lines else ""
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in str(text)
    )


def has_colour() -> bool:
    """Tell whether standard output is a terminal with colours, and `NO_COLOR` is not set."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not is_plain


def styled(text: str, style: str, *, is_coloured: bool) -> str:
    """Return `text` in a style (`bold`, `dim` or a colour); unchanged without `is_coloured`."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if is_coloured else text


def width() -> int:
    """Return the columns that a line of prose may have: `limited_width`, otherwise 200."""
    return limited_width() or WIDTH_OF_FILES


def limited_width() -> int | None:
    """Return the columns that a line may have, at least 40; None if there is no limit.

    `COLUMNS` sets it, otherwise the terminal. A pipe or a file has no limit.
    """
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked):
        return max(_NARROWEST, int(asked))
    if not sys.stdout.isatty():
        return None
    # A terminal that does not know its width reports 0.
    return max(_NARROWEST, os.get_terminal_size(sys.stdout.fileno()).columns or 80)


def wrapped(text: str, columns: int, *, first: str = "", further: str = "") -> list[str]:
    """Return `text` as lines of at most `columns` columns.

    The first line begins with `first`, and the others with `further`. A longer word gets a line of
    its own.
    """
    lines = textwrap.wrap(
        printable(text),
        columns,
        initial_indent=first,
        subsequent_indent=further,
        break_on_hyphens=False,
        # A person may copy a path or a command, so it is not broken, even if it is too long for the
        # line.
        break_long_words=False,
    )
    return lines or [first.rstrip()]


def many(count: int | None, noun: str) -> str:
    """Return `1 tool` or `3 tools`; empty if the count is not known."""
    return "" if count is None else f"{count} {noun}" + ("" if count == 1 else "s")


def duration(value: object) -> str:
    """Return a number of seconds in its two largest units: `1 h 5 min`; `?` if it is no number."""
    if not isinstance(value, int | float):
        return "?"
    seconds = int(value)
    for size, unit, lesser, lesser_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // lesser} {lesser_unit}"
    return f"{max(seconds, 0)} s"


def size(value: object) -> str:
    """Return a number of bytes in MiB: `12 MiB`."""
    return f"{value / (1 << 20):.0f} MiB" if isinstance(value, int | float) else "? MiB"
