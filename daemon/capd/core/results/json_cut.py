"""Cuts a JSON value to a number of characters. The result is valid JSON of the same shape.

Lists keep their first items, objects their first members, and texts their beginning. Parts that fit
keep their bytes. Parts that are left out are never decoded: a list of 16 MB is split into its
items, and only some dozen of them are examined.

The room of a list or object goes to as many items as can get a fair share. These get equal shares,
but none gets more than it needs.

`KeptPlaces` has the places that must not be cut. `schema_fit` adds those that a schema requires.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from capd_protos.codec import JsonCodec

T = TypeVar("T")
Path = tuple[str | int, ...]

SHORT = 40
"""A value of at most this many characters, such as an id or a date, is not cut."""
_SHARES = 8
"""A list shows this many items, if it has them, before each item gets more room."""
_DEEPEST = 32
_TRIES = 12
_LIST: JsonCodec[list[msgspec.Raw]] = JsonCodec(list[msgspec.Raw])
_MEMBERS: JsonCodec[dict[str, msgspec.Raw]] = JsonCodec(dict[str, msgspec.Raw])
_TEXT: JsonCodec[str] = JsonCodec(str)
_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Omission:
    """A place in a cut JSON value at which something was left out."""

    path: Path
    what: str
    """What was left out: `items`, `members`, `characters` or `levels`."""
    kept: int
    """How many items, members, characters or levels were kept."""
    whole: int
    """How many there were before the cut."""


@dataclass(slots=True)
class KeptPlaces:
    """Places in a JSON value that must not be cut, each by its path."""

    whole: set[Path] = field(default_factory=set)
    full: set[Path] = field(default_factory=set)
    """Containers that keep every item; each item may still be cut."""


@dataclass(slots=True)
class Split:
    """A cache of a value's lists and objects that were already split into items, by path."""

    lists: dict[Path, list[msgspec.Raw]] = field(default_factory=dict)
    members: dict[Path, dict[str, msgspec.Raw]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CutJson:
    """A JSON value that was cut, and what was left out of it."""

    data: bytes
    omissions: Sequence[Omission]


def width(data: bytes | msgspec.Raw) -> int:
    """Return the number of characters, not bytes, of a piece of JSON."""
    text = bytes(data)
    return len(text) if text.isascii() else len(text.decode(errors="replace"))


def is_container(data: bytes) -> bool:
    """Tell whether bytes begin like a JSON object or list."""
    return data.lstrip(_SPACE)[:1] in (b"{", b"[")


def cut_json(
    data: bytes, room: int, kept: KeptPlaces | None = None, split: Split | None = None
) -> CutJson | None:
    """Return the JSON value `data` cut to at most `room` characters; None if that is impossible.

    `kept` are places that must not be cut. `split` is a cache for a value that is cut several
    times.

    Raises:
        MalformedError: `data` is not JSON.
    """
    scale = 1.0
    stripped = data.strip(_SPACE)
    split = split or Split()
    for _ in range(_TRIES):
        cut = _Cutting(kept or KeptPlaces(), split)
        out = cut.value(stripped, int(room * scale), ())
        if (over := width(out) / max(room, 1)) <= 1:
            return CutJson(out, cut.omissions)
        scale *= min(0.95 / over, 0.9)
    return None if kept else _emptied(stripped, room)


def _emptied(data: bytes, room: int) -> CutJson | None:
    """Return `{}` or `[]` for an object or a list; None for other values."""
    empty = {b"{": b"{}", b"[": b"[]"}.get(data[:1])
    if empty is None or room < len(empty):
        return None
    return CutJson(empty, [Omission((), "levels", 0, 1)])


class _Cutting:
    """One attempt to cut a JSON value to a number of characters."""

    def __init__(self, kept: KeptPlaces, split: Split) -> None:
        self.omissions: list[Omission] = []
        self._kept = kept
        self._lists, self._members = split.lists, split.members

    def value(self, data: bytes, room: int, path: Path) -> bytes:
        if len(data) <= max(room, SHORT) or path in self._kept.whole or width(data) <= room:
            return data
        match data[:1]:
            case b"{":
                return self._object(data, room, path)
            case b"[":
                return self._list(data, room, path)
            case b'"':
                return self._text(data, room, path)
            case _:
                return data

    def _list(self, data: bytes, room: int, path: Path) -> bytes:
        if len(path) >= _DEEPEST:
            return self._left_out(b"[]", path, "levels", 0, 1)
        if path not in self._lists:
            self._lists[path] = _LIST.decode(data)
        items = self._lists[path]
        fair = max((room - 2) // _SHARES, SHORT)
        values = self._fitting(
            (_dense(item) for item in items), lambda value: _need(value, fair) + 1, room, path
        )
        shares = _shares(values, room - 2 - len(values))
        parts = [
            self.value(value, share, (*path, index))
            for index, (value, share) in enumerate(zip(values, shares, strict=True))
        ]
        out = b"[" + b",".join(parts) + b"]"
        return self._left_out(out, path, "items", len(values), len(items))

    def _object(self, data: bytes, room: int, path: Path) -> bytes:
        if len(path) >= _DEEPEST:
            return self._left_out(b"{}", path, "levels", 0, 1)
        if path not in self._members:
            self._members[path] = _MEMBERS.decode(data)
        members = self._members[path]
        shown = self._fitting(
            ((key, msgspec.json.encode(key), _dense(value)) for key, value in members.items()),
            lambda each: width(each[1]) + 2 + _need(each[2], SHORT),
            room,
            path,
        )
        around = sum(width(name) + 2 for _, name, _ in shown)
        shares = _shares([value for _, _, value in shown], room - 2 - around)
        parts = [
            name + b":" + self.value(value, share, (*path, key))
            for (key, name, value), share in zip(shown, shares, strict=True)
        ]
        out = b"{" + b",".join(parts) + b"}"
        return self._left_out(out, path, "members", len(shown), len(members))

    def _fitting(
        self, each: Iterable[T], need: Callable[[T], int], room: int, path: Path
    ) -> list[T]:
        """Return the first parts whose `need` adds up to at most `room`.

        Return all parts if the place at `path` must keep all of them.
        """
        if path in self._kept.full:
            return list(each)
        used = 2
        found: list[T] = []
        for one in each:
            used += need(one)
            if used > room:
                break
            found.append(one)
        return found

    def _text(self, data: bytes, room: int, path: Path) -> bytes:
        text = _TEXT.decode(data)
        head = shortened(text, room - 2)
        kept = len(head)
        if kept == len(text):
            # It was too long only because it was written with escapes that JSON does not need.
            return msgspec.json.encode(text)
        out = msgspec.json.encode(f"{head}… [{len(text) - kept:,} more characters]")
        return self._left_out(out, path, "characters", kept, len(text))

    def _left_out(self, out: bytes, path: Path, what: str, kept: int, whole: int) -> bytes:
        if kept < whole:
            self.omissions.append(Omission(path, what, kept, whole))
        return out


def shortened(text: str, room: int) -> str:
    """Return the beginning of a text that fits into `room` characters of JSON with a note.

    The caller adds the note, which says how many characters are missing.
    """
    head = text[: max(room - len(f"… [{len(text):,} more characters]"), 0)]
    while head and (over := encoded_width(head) - (room - 30)) > 0:
        # An escape takes up to six characters, so removing a sixth of the excess is not too much.
        head = head[: len(head) - max(over // 6, 1)]
    return head


def encoded_width(text: str) -> int:
    """Return the number of characters of a text in JSON, without its quotes."""
    return width(msgspec.json.encode(text)) - 2


def _need(data: bytes, fair: int) -> int:
    """Return how many characters a value needs: its own, but at most `fair` if it can be cut.

    Only objects, lists and texts can be cut.
    """
    if data[:1] in (b"{", b"[", b'"'):
        return min(len(data), fair) if len(data) <= fair else min(width(data), fair)
    return len(data)


def _dense(value: msgspec.Raw) -> bytes:
    """Return a value without white space between its parts, if it is spread over several lines."""
    data = bytes(value)
    return msgspec.json.format(data, indent=-1) if b"\n" in data else data


def _shares(values: Sequence[bytes], room: int) -> list[int]:
    """Return each value's share of `room`: its own size, or the equal share if that is less."""
    widths = [width(value) for value in values]
    level = water_level(widths, room)
    return [min(each, level) for each in widths]


def water_level(widths: Sequence[int], room: int) -> int:
    """Return the largest limit for each of `widths` with which their sum is within `room`.

    Example: widths 10, 50, 90 in a room of 90 give 40, as 10 + 40 + 40 is 90.
    """
    left, count = room, len(widths)
    for each in sorted(widths):
        if each * count > left:
            return max(left // count, 0)
        left -= each
        count -= 1
    return max(widths, default=0)
