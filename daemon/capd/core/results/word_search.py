"""Finds the lines of a text, or the items of a JSON value, that contain all words of a query.

In JSON these are the innermost values that contain all words, each with its path. In a text they
are lines, each with its number and its offset. Case is ignored.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from capd.core.results.json_cut import Path, cut_json, is_container
from capd.core.results.summary import json_path
from capd_protos.codec import JsonCodec, MalformedError

_LIST: JsonCodec[list[msgspec.Raw]] = JsonCodec(list[msgspec.Raw])
_MEMBERS: JsonCodec[dict[str, msgspec.Raw]] = JsonCodec(dict[str, msgspec.Raw])
_SHOWN = 600
"""The most characters of one hit that are shown."""
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class WordMatches:
    """The hits of a search that fit into its answer, and the number of all hits."""

    shown: list[str]
    count: int
    what: str
    """`lines` or `JSON items`."""


def search(text: str, query: str, room: int) -> WordMatches:
    """Return the hits of `query` in `text`, as many as fit into `room` characters."""
    words = query.lower().split()
    data = text.strip().encode()
    if is_container(data):
        try:
            found = _items(data, [_needle(word) for word in words], ())
            return _collected((_item(path, value) for path, value in found), room, "JSON items")
        except MalformedError:
            pass
    return _collected(_lines(text, words), room, "lines")


def _collected(hits: Iterator[str], room: int, what: str) -> WordMatches:
    shown: list[str] = []
    count = 0
    for hit in hits:
        count += 1
        room -= len(hit) + 1
        if room >= 0:
            shown.append(hit)
    return WordMatches(shown, count, what)


def _lines(text: str, words: list[str]) -> Iterator[str]:
    offset = 0
    for number, line in enumerate(text.split("\n"), start=1):
        lowered = line.lower()
        if all(word in lowered for word in words):
            yield f"line {number}, offset {offset}: {_around(line, lowered, words[0])}"
        offset += len(line) + 1


def _around(line: str, lowered: str, word: str) -> str:
    if len(line) <= _SHOWN:
        return line
    start = max(min(lowered.find(word), len(line)) - _SHOWN // 3, 0)
    before = "…" if start else ""
    after = "…" if start + _SHOWN < len(line) else ""
    return f"{before}{line[start : start + _SHOWN]}{after}"


def _needle(word: str) -> tuple[bytes, ...]:
    """Return the bytes that stand for a word in JSON: as it is, and with escapes."""
    plain = msgspec.json.encode(word)[1:-1]
    spelled = "".join(
        each if each.isascii() else "".join(f"\\u{unit:04x}" for unit in _units(each))
        for each in plain.decode()
    )
    return (plain, spelled.encode()) if spelled.encode() != plain else (plain,)


def _units(character: str) -> list[int]:
    data = character.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def _has(data: bytes, needles: list[tuple[bytes, ...]]) -> bool:
    lowered = data.lower() if data.isascii() else data.decode(errors="replace").lower().encode()
    return all(any(form in lowered for form in needle) for needle in needles)


def _items(
    data: bytes, needles: list[tuple[bytes, ...]], path: Path
) -> Iterator[tuple[Path, bytes]]:
    """Yield the innermost JSON values that contain all words, each with its path.

    `needles` has, for each word, the bytes that stand for it. The values are objects, lists of
    scalars, and texts.
    """
    if not _has(data, needles):
        return
    is_found = False
    for step, value in _children(data, path):
        for hit in _items(value, needles, (*path, step)):
            is_found = True
            yield hit
    if not is_found:
        yield path, data


def _children(data: bytes, path: Path) -> Iterator[tuple[str | int, bytes]]:
    """Yield the parts of a value to search by themselves: objects, lists, and texts in lists.

    Other scalars are shown with the object or list that they are in.
    """
    if len(path) >= _DEEPEST:
        return
    if data[:1] == b"[":
        for index, item in enumerate(_LIST.decode(data)):
            value = bytes(item)
            if is_container(value) or not path or value[:1] == b'"':
                yield index, value
    elif data[:1] == b"{":
        for key, member in _MEMBERS.decode(data).items():
            value = bytes(member)
            if is_container(value):
                yield key, value


def _item(path: Path, value: bytes) -> str:
    cut = cut_json(value, _SHOWN)
    shown = (cut.data if cut is not None else value[:_SHOWN]).decode(errors="ignore")
    if "\n" in shown:
        shown = msgspec.json.format(shown, indent=-1)
    return f"{json_path(path)}: {shown}"
