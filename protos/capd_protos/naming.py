"""Finds the name that a person or a model means, by one rule for every kind of name.

    as it stands ─> whatever its case ─> hyphen = underscore = space ─> without accents
                 ─> singular or plural ─> its beginning ─> nothing: near names are offered

The first step at which any name fits decides. If several fit at that step, they are offered, and
none is chosen. The daemon and the command line share this rule, so it is here.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

SHORTEST_BEGINNING = 2
"""The fewest characters that can stand for a name as its beginning. One may be a typing error."""
OFFERED = 5
"""How many names are offered if several fit."""
_GAP = re.compile(r"[\s_\-‐-―]+")
_SIBILANTS = ("ses", "xes", "zes", "ches", "shes")
_NO_PLURALS = ("ss", "us", "is")
_SPELLINGS = 3
"""How many of the spellings in `NameTable._indexes` keep each word: those for case, separators and
accents. The last one turns a plural into the singular."""


@dataclass(frozen=True, slots=True)
class Named:
    """A search result: exactly one name fits what a person wrote."""

    name: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """A search result: no name fits, or several do. `near` lists names to choose from."""

    near: tuple[str, ...] = ()
    is_ambiguous: bool = False


class NameTable:
    """All names of one kind, such as every capability."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)

    def find(self, wanted: str, *, is_call: bool = False) -> Named | Unclear:
        """Return the name that `wanted` means; `Unclear` if none fits, or several do.

        With `is_call`, only another spelling of the same words fits: a call of `delete_row` must
        reach neither `delete_rows` nor `delete_row_and_all`.
        """
        asked = wanted.strip()
        if asked in self._names:
            return Named(asked)
        for spelling, by_key in self._indexes[: _SPELLINGS if is_call else None]:
            # A name of nothing but punctuation has an empty spelling, which would match others.
            found = by_key.get(key, ()) if (key := spelling(asked)) else ()
            if found:
                return _only(found)
        if not is_call and (found := self._beginning_with(plain(asked))):
            return _only(found)
        return Unclear(tuple(near_names(asked, self._names)))

    @cached_property
    def _indexes(self) -> "list[tuple[Callable[[str], str], dict[str, list[str]]]]":
        spellings = (_folded, slug, plain, singular)
        return [(spelling, _by(spelling, self._names)) for spelling in spellings]

    def _beginning_with(self, start: str) -> list[str]:
        if len(start) < SHORTEST_BEGINNING:
            return []
        by_plain = self._indexes[2][1]
        return [name for key, names in by_plain.items() if key.startswith(start) for name in names]


def slug(name: str) -> str:
    """Return a name in lower case, with one kind of separator between its words."""
    return _GAP.sub("-", _folded(name)).strip("-")


def plain(name: str) -> str:
    """Return `slug(name)` without accents."""
    parted = unicodedata.normalize("NFD", slug(name))
    bare = "".join(each for each in parted if unicodedata.category(each) != "Mn")
    return unicodedata.normalize("NFC", bare)


def singular(name: str) -> str:
    """Return `plain(name)` with its last word in the singular, by the rules of English."""
    word = plain(name)
    if word.endswith("ies") and len(word) > len("ties"):
        return word.removesuffix("ies") + "y"
    if word.endswith(_SIBILANTS):
        # `databases` and `boxes` both lose `es`. `database` loses its `e` below, so that it is
        # equal to its plural, as `box` is.
        return word.removesuffix("s").removesuffix("e")
    if word.endswith("s") and not word.endswith(_NO_PLURALS):
        return word.removesuffix("s").removesuffix("e")
    return word.removesuffix("e")


def near_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return at most `limit` of the `known` names that `name` may mean, nearest first."""
    import difflib  # noqa: PLC0415 - only for mistakes

    by_folded = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    containing = [k for k in sorted(by_folded) if folded and (folded in k or k in folded)]
    close = difflib.get_close_matches(folded, sorted(by_folded), n=limit, cutoff=0.6)
    ordered = dict.fromkeys([*close, *containing])
    return [by_folded[key] for key in list(ordered)[:limit]]


def offer(found: Unclear) -> str:
    """Return words that offer the near names in `found`; empty if there are none."""
    if not found.near:
        return ""
    if found.is_ambiguous:
        return f"it may be one of {', '.join(found.near)}"
    return f"near names: {', '.join(found.near)}"


def advice(found: Unclear) -> str:
    """Return `offer(found)` with a capital and a full stop; empty if there are no near names."""
    words = offer(found)
    return f"{words[0].upper()}{words[1:]}." if words else ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _by(spelling: "Callable[[str], str]", names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(spelling(name), []).append(name)
    return found


def _only(found: list[str]) -> Named | Unclear:
    if len(found) == 1:
        return Named(found[0])
    return Unclear(tuple(sorted(found)[:OFFERED]), is_ambiguous=True)
