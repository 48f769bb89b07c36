"""The line of a key in a TOML text, for messages to a person.

The standard library's parser gives no positions. So a text that it has parsed is scanned once more,
line by line: headers of tables and beginnings of keys. Something that only looks like a key, inside
a text of several lines, can lead to a wrong line number and to nothing worse. The work is linear in
the text's length: no expression here can match one text in two ways.
"""

import tomllib
from collections.abc import Iterator, Sequence

from capd.core.lazy_patterns import lazy_pattern

LONGEST_LINE = 1000
"""The most characters of a line that are read. A key after them is not found."""
_MOST_STEPS = 16
"""The most levels of a key that are read. capd has no key with more levels."""

_WORD = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\]|\\.)*\"|'[^']*')"
_PATH = rf"{_WORD}(?:[ \t]*\.[ \t]*{_WORD})*"
_HEADER = lazy_pattern(rf"[ \t]*\[\[?[ \t]*({_PATH})[ \t]*\]\]?[ \t]*(?:#.*)?")
_KEY = lazy_pattern(rf"[ \t]*({_PATH})[ \t]*=")
_STEP = lazy_pattern(_WORD)
_AT_LINE = lazy_pattern(r"at line (\d+)")

Steps = tuple[str, ...]


class KeyLines:
    """The line numbers of the keys and tables in one TOML text."""

    def __init__(self, text: str) -> None:
        self._first: dict[Steps, int] = {}
        """The first line that sets each key or begins each table."""
        self._last: dict[Steps, int] = {}
        """The last line that sets each key or begins each table."""
        for number, found in _keys(text):
            self._first.setdefault(found, number)
            self._last[found] = number

    def line_of(self, path: Sequence[str]) -> int:
        """Return the line, from 1, that sets the key at `path`; else that of its table, else 0."""
        wanted = tuple(path)
        if wanted in self._first:
            return self._first[wanted]
        return max((self._last.get(wanted[:n], 0) for n in range(len(wanted) + 1)), default=0)


def line_of(text: str, path: Sequence[str]) -> int:
    """Return the line, from 1, that sets the key at `path`; else that of its table, else 0."""
    return KeyLines(text).line_of(path)


def line_of_error(error: Exception) -> int:
    """Return the line that `error`, from the TOML parser, names; 0 if it names none."""
    at = _AT_LINE.search(str(error))
    return int(at[1]) if at else 0


def _keys(text: str) -> Iterator[tuple[int, Steps]]:
    table: Steps = ()
    for number, whole in enumerate(text.splitlines(), 1):
        line = whole[:LONGEST_LINE]
        header = _HEADER.fullmatch(line)
        if header is not None:
            table = _steps(header[1])
            yield number, table
            continue
        key = _KEY.match(line)
        if key is not None:
            yield number, (*table, *_steps(key[1]))


def _steps(path: str) -> Steps:
    """Return the names in the path of a table or a key, such as `a."b.c"`."""
    return tuple(_plain(step) for step in _STEP.findall(path)[:_MOST_STEPS])


def _plain(step: str) -> str:
    if step.startswith("'"):
        return step[1:-1]
    if not step.startswith('"') or "\\" not in step:
        return step.strip('"')
    try:
        return str(tomllib.loads(f"x = {step}")["x"])
    except ValueError:
        return step
