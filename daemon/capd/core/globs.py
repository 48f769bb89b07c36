"""The shell's globs, matched in a time that the lengths bound: strangers write both sides.

The same as `fnmatch.fnmatchcase`: `*`, `?`, `[seq]`, `[!seq]`. That compiles an expression for each
pattern, half a millisecond and several kilobytes, and ten thousand patterns of a cloned project
held the event loop for seconds. Here a pattern without `?` and `[` is a few searches of texts.
Another one is a set of states, which are the bits of one number: each character of the text costs
two operations on it, whatever the pattern is, and nothing ever goes back.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache

_MOST_KEPT = 4096
"""Compiled patterns; each is a few hundred bytes."""

Match = Callable[[str], bool]


def matches(text: str, pattern: str) -> bool:
    """Tell whether `text` as a whole is what `pattern` means; case counts."""
    return compiled(pattern)(text)


def any_matches(text: str, patterns: Iterable[str]) -> bool:
    """Tell whether one of `patterns` means `text`."""
    return any(compiled(pattern)(text) for pattern in patterns)


@lru_cache(maxsize=_MOST_KEPT)
def compiled(pattern: str) -> Match:
    """Return what tells whether a text is what `pattern` means."""
    if "?" in pattern or "[" in pattern:
        return _States(pattern).matches
    if "*" not in pattern:
        return pattern.__eq__
    return _Parts(pattern).matches


class _Parts:
    """A pattern whose only glob is `*`: its texts, in their order."""

    __slots__ = ("_first", "_inner", "_last", "_least")

    def __init__(self, pattern: str) -> None:
        first, *inner, last = pattern.split("*")
        self._first, self._last = first, last
        self._inner = [part for part in inner if part]
        self._least = sum(map(len, (first, last, *self._inner)))

    def matches(self, text: str) -> bool:
        if (
            len(text) < self._least
            or not text.startswith(self._first)
            or not text.endswith(self._last)
        ):
            return False
        at, end = len(self._first), len(text) - len(self._last)
        for part in self._inner:
            # The first place is as good as any later one: what follows has the more room.
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


class _States:
    """Any pattern: bit `n` of a state stands for `n` of its elements being matched."""

    __slots__ = ("_elements", "_end", "_masks", "_stays")

    def __init__(self, pattern: str) -> None:
        self._elements: list[Match] = []
        self._stays = 0
        """The states in which a `*` takes in whatever comes."""
        at = 0
        while at < len(pattern):
            if pattern[at] == "*":
                self._stays |= 1 << len(self._elements)
                at += 1
                continue
            element, at = _element(pattern, at)
            self._elements.append(element)
        self._end = 1 << len(self._elements)
        self._masks: dict[str, int] = {}

    def matches(self, text: str) -> bool:
        states, stays, masks = 1, self._stays, self._masks
        for character in text:
            mask = masks.get(character)
            if mask is None:
                mask = self._mask(character)
            states = ((states & mask) << 1) | (states & stays)
            if not states:
                return False
        return bool(states & self._end)

    def _mask(self, character: str) -> int:
        """Return the elements that take `character`."""
        mask = sum(1 << n for n, takes in enumerate(self._elements) if takes(character))
        # Names are ASCII; whatever else there is costs its look each time, and no memory.
        if character.isascii():
            self._masks[character] = mask
        return mask


def _element(pattern: str, at: int) -> tuple[Match, int]:
    """Return what takes one character, and where the next element begins."""
    character = pattern[at]
    if character == "?":
        return _takes_any, at + 1
    if character != "[":
        return character.__eq__, at + 1
    start = at + 1
    # A `]` that stands first is one of the characters.
    close = pattern.find("]", start + (2 if pattern[start : start + 1] == "!" else 1))
    if close < 0:
        return "[".__eq__, at + 1
    return _set(pattern[start:close]), close + 1


def _takes_any(_: str) -> bool:
    return True


def _set(written: str) -> Match:
    """Return what takes the characters of `[written]`."""
    is_other = written.startswith("!")
    singles: set[str] = set()
    ranges: list[tuple[str, str]] = []
    rest = written[is_other:]
    at = 0
    while at < len(rest):
        if rest[at + 1 : at + 2] == "-" and at + 2 < len(rest):
            ranges.append((rest[at], rest[at + 2]))
            at += 3
        else:
            singles.add(rest[at])
            at += 1

    def takes(character: str) -> bool:
        is_in = character in singles or any(low <= character <= high for low, high in ranges)
        return is_in is not is_other

    return takes
