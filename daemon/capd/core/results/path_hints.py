"""Paths and URLs in a text: what a model asks for next, when it does not see the text itself.

A hand-written scan from slash to slash: a regular expression for whole paths looks at each
character of a long word once for every one before it, and took nine seconds for 19 MB.
"""

import re
from collections.abc import Iterator, Sequence

LONGEST = 300
"""Longer ones are data, or of no use when cut."""
# Matched backwards: searched for from the front, it is looked for at every character.
_BEFORE = re.compile(r"[^\s\"'`<>()\[\]{}|,;=\\\x00-\x1f\x7f]*")
_AFTER = re.compile(r"[^\s\"'`<>()\[\]{}|,;\\\x00-\x1f\x7f]*")
_NAMED = re.compile(r"[^\W\d_]{2}")
_MOST_LOOKS = 10_000
"""Slashes that are looked at: text of nothing else would take seconds."""
_MOST_FOUND = 1_000
_TRAILING = ".:!?*"


def hints(text: str) -> list[str]:
    """Return the first paths and URLs in a text, each once."""
    found: dict[str, None] = {}
    for hint in _candidates(text):
        found[hint] = None
        if len(found) == _MOST_FOUND:
            break
    return list(found)


def unseen(found: Sequence[str], shown: str, room: int) -> list[str]:
    """Return those that `shown` does not have, as many as have room."""
    seen = set(hints(shown))
    kept: list[str] = []
    for hint in found:
        if hint in seen:
            continue
        room -= len(hint) + 3
        if room < 0:
            break
        kept.append(hint)
    return kept


def _candidates(text: str) -> Iterator[str]:
    at = 0
    for _ in range(_MOST_LOOKS):
        at = text.find("/", at)
        if at < 0:
            return
        start = at - _length(_BEFORE, text[max(at - LONGEST, 0) : at][::-1], 0)
        if text[start - 1 : start] == "\\" and text[start : start + 1] in "nrt":
            # In JSON the end of a line before it.
            start += 1
        end = at + _length(_AFTER, text, at)
        word = text[start : min(end, start + LONGEST + 1)].rstrip(_TRAILING)
        if _is_hint(word):
            yield word
        at = max(end, at + 1)


def _length(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() - at if found is not None else 0


def _is_hint(word: str) -> bool:
    """Tell a path from a date, a fraction, a closing tag, or base64."""
    if len(word) > LONGEST or not _NAMED.search(word):
        return False
    if "://" in word:
        return not word.startswith(":")
    if word.startswith("//") or word.endswith("/>"):
        return False
    is_rooted = word.startswith(("/", "~/", "./", "../"))
    # In prose a slash stands between two words; a path has more, or ends in a file's name.
    name = word.rstrip("/").rpartition("/")[2]
    return is_rooted or word.count("/") > 1 or "." in name[1:]
