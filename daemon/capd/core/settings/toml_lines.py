"""Where a key stands in a TOML text, so that a person is sent to the line.

The standard library's parser gives no positions. A text that it has read is read once more here,
line by line: headers of tables and beginnings of keys, each parsed by itself. What only looks
like a key within a text of several lines can lead to a wrong line, and to nothing worse.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

_HEADER = re.compile(r"\s*(\[\[?[^\[\]]*\]\]?)\s*(?:#.*)?")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_.\s-]|\"[^\"]*\"|'[^']*')+?)\s*=")
_AT_LINE = re.compile(r"at line (\d+)")


def line_of(text: str, path: Sequence[str]) -> int:
    """Return the line, from 1, where the key at `path` is set; else its table's, else 0."""
    wanted = tuple(path)
    table_line = 0
    for number, found in _keys(text):
        if found == wanted:
            return number
        if wanted[: len(found)] == found:
            table_line = number
    return table_line


def line_of_error(error: Exception) -> int:
    """Return the line that the parser names, 0 where it names none."""
    at = _AT_LINE.search(str(error))
    return int(at[1]) if at else 0


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(line)
        if header is not None:
            table = _path(header[1])
            yield number, table
            continue
        key = _KEY.match(line)
        if key is not None:
            yield number, (*table, *_path(f"{key[1]} = 0"))


def _path(line: str) -> tuple[str, ...]:
    """Return the keys that a header, or the left side of a setting, leads through."""
    try:
        inner: Any = tomllib.loads(line)
    except (ValueError, RecursionError):
        return ()
    found: list[str] = []
    while isinstance(inner, dict) and inner:
        key, inner = next(iter(inner.items()))
        found.append(key)
        if isinstance(inner, list) and inner:
            inner = inner[0]
    return tuple(found)
