"""The shell's globs, matched in bounded time, because strangers may write patterns and texts.

The syntax is that of `fnmatch.fnmatchcase`: `*`, `?`, `[seq]`, `[!seq]`. That function compiles a
regular expression for each pattern, which takes half a millisecond and several kilobytes; ten
thousand patterns of a cloned project blocked the event loop for seconds. Here a pattern without `?`
and `[` is matched with a few text searches. All others, and sets of patterns, become an automaton
whose states are the bits of one number: each character of the text takes two operations on that
number, whatever the patterns are, without backtracking.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_MOST_KEPT = 4096
"""Number of cached compiled patterns; each takes a few hundred bytes."""

Match = Callable[[str], bool]
Takes = Callable[[str], bool]


def matches(text: str, pattern: str) -> bool:
    """Tell whether `pattern` matches the whole of `text`. Case matters."""
    return compiled(pattern)(text)


@lru_cache(maxsize=_MOST_KEPT)
def compiled(pattern: str) -> Match:
    """Return a function that tells whether a text matches `pattern`."""
    if "?" in pattern or "[" in pattern:
        found = GlobSet([pattern]).matching
        return lambda text: bool(found(text))
    if "*" not in pattern:
        return pattern.__eq__
    return _Parts(pattern).matches


class _Parts:
    """A pattern whose only special characters are `*`, as the texts between the stars."""

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
            # The first match is as good as any later one, because it leaves the most text for the
            # rest.
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


class GlobSet:
    """Several glob patterns, matched together: a text takes two operations for each character.

    Bit `n` of a state means that element `n` is the next to match. An element matches one
    character; the elements are those of all patterns, one pattern after another.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._starts = self._stays = 0
        self._ends: list[int] = []
        takers: dict[str, list[int]] = {}
        """For each ASCII character, the places of the elements that name and accept it."""
        refusers: dict[str, list[int]] = {}
        """For each ASCII character, the places of the elements that refuse it, such as `[!a]`."""
        most: list[int] = []
        """The places of all elements that accept every character but those that they name."""
        self._others: list[tuple[int, Takes]] = []
        """The elements `[...]`, which may accept characters outside of ASCII as well."""
        at = 0
        for pattern in patterns:
            self._starts |= 1 << at
            for element in _elements(pattern):
                if element is None:
                    self._stays |= 1 << at
                    continue
                if isinstance(element, str):
                    takers.setdefault(element, []).append(at)
                else:
                    for character in element.named:
                        by = refusers if element.is_other else takers
                        by.setdefault(character, []).append(at)
                    if element.is_other:
                        most.append(at)
                    self._others.append((at, element.takes))
                at += 1
            self._ends.append(at)
            at += 1
        size = at // 8 + 1
        self._most = _mask(most, size)
        self._masks = {
            each: (self._most & ~_mask(refusers.get(each, ()), size))
            | _mask(takers.get(each, ()), size)
            for each in takers.keys() | refusers.keys()
        }
        self._size = size
        self._end = _mask(self._ends, size)

    def matching(self, text: str) -> tuple[int, ...]:
        """Return the indexes of the patterns that match `text`, in ascending order."""
        states, stays, masks = self._starts, self._stays, self._masks
        for character in text:
            mask = masks.get(character)
            if mask is None:
                # Nearly all names are ASCII. The mask of any other character is computed each time,
                # and not stored.
                mask = self._most if character.isascii() else self._mask_of(character)
            states = ((states & mask) << 1) | (states & stays)
            if not states:
                return ()
        if not states & self._end:
            return ()
        return tuple(number for number, end in enumerate(self._ends) if states >> end & 1)

    def _mask_of(self, character: str) -> int:
        return _mask([at for at, takes in self._others if takes(character)], self._size)


def _mask(places: Iterable[int], size: int) -> int:
    """Return a mask of `size` bytes in which the bits at `places` are set."""
    bits = bytearray(size)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(bits, "little")


class _Set(NamedTuple):
    """An element of a pattern that accepts one of several characters, from `[...]`."""

    named: Iterable[str]
    """The ASCII characters that are accepted; with `is_other`, those that are not."""
    takes: Takes
    is_other: bool = False


def _elements(pattern: str) -> Iterator[str | _Set | None]:
    """Yield an element for each character that the pattern matches; None stands for `*`."""
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "*":
            yield None
        elif character == "?":
            yield _ANY
        elif character != "[":
            yield _Set("", character.__eq__) if not character.isascii() else character
        else:
            start = at + 1
            # A `]` in the first place is an ordinary character.
            first = start + (2 if pattern[start : start + 1] == "!" else 1)
            close = pattern.find("]", first)
            if close < 0:
                yield character
            else:
                yield _set(pattern[start:close])
                at = close
        at += 1


def _set(written: str) -> _Set:
    """Return the element for `[written]`."""
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

    known = singles.union(
        *(map(chr, range(ord(low), min(ord(high), 127) + 1)) for low, high in ranges)
    )
    return _Set(filter(str.isascii, known), takes, is_other)


_ANY = _Set((), lambda _: True, is_other=True)
