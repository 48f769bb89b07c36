"""Counts a text's tokens without a tokenizer, as the sum of pieces that were counted before.

A tokenizer of the o200k family makes no token across certain positions: before a space that follows
a character, and where a letter or digit is followed by anything else. A text that is cut at these
positions has exactly as many tokens as its pieces together, and thousands of texts have only a few
thousand different pieces. A piece that was never counted counts as its number of bytes, and a usual
word as the most tokens that it can have. Every token has at least one byte, so the sum may be too
large but is never too small.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from capd.core.index.usual_words import JOINTS, USUAL_WORDS
from capd.core.lazy_patterns import lazy_pattern

# Token counts of capd's own words in texts for models. With them a first turn has room for names
# even if nothing was counted yet, or if nothing can be counted.
FRAMES: dict[str, int] = {
    "Installed": 1,
    " (verb": 2,
    ":": 1,
    " capabilities": 1,
    "):\nuse": 2,
    ",": 1,
    " off": 1,
    ".": 1,
    " DO": 1,
    " USE": 1,
    "_WHEN": 2,
    '"': 1,
    " or": 1,
    '".': 1,
    " NEXT": 1,
    " capability": 1,
    ' {"action': 2,
    '":"enable': 2,
    '","name': 2,
    '"}': 1,
    " COST": 1,
    " tool": 1,
    " tokens": 1,
    " tools": 1,
    ";": 1,
    " another": 1,
    " of": 1,
    "_capability": 2,
    " capd": 2,
    "capd": 2,
    " mcp": 2,
    "__capd": 3,
    "__capability": 3,
    "_capd": 2,
    "-capability": 2,
    " switched": 1,
    " on": 1,
    " for": 1,
    " this": 1,
    " message": 1,
    " its": 1,
    " are": 1,
    " listed": 1,
    " now": 1,
    " and": 1,
    " more": 1,
    " Call": 1,
    " with": 1,
    " name": 1,
    "=...:": 3,
    "_tool": 1,
    "_call": 1,
    "Tools": 1,
    " that": 1,
    " fit": 1,
    " by": 1,
    "(name": 1,
    "=...):": 3,
    ":\n-": 2,
    ".\n-": 2,
    "\n-": 2,
    "…\n-": 2,
    ".\nTools": 2,
    "\nTools": 2,
}


_SEAM = lazy_pattern(r"(?<=\S)(?= )|(?<=[^\W_])(?=[\W_])")


_CUT = "…"


class TokenCosts:
    """The known token counts of pieces of text, and from them the counts of whole texts."""

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        self._known = known if known is not None else {}

    def of(self, text: str) -> int:
        """Return an upper bound of the tokens of `text`. It is exact if all pieces were counted."""
        known = self._known
        return sum(known.get(piece) or _bound(piece) for piece in pieces(text))

    def unknown(self, texts: Iterable[str]) -> list[str]:
        """Return the pieces of `texts` that were never counted, each once."""
        found = (piece for text in texts for piece in pieces(text))
        return list(dict.fromkeys(piece for piece in found if piece not in self._known))

    def cut(self, text: str, room: int) -> str:
        """Return as many whole words of `text` as fit into `room` tokens; empty if none fits.

        If words are left out, the result ends in `…`.
        """
        if self.of(text) <= room:
            return text
        kept = ""
        for word in text.split():
            longer = f"{kept} {word}" if kept else word
            if self.of(longer + _CUT) > room:
                break
            kept = longer
        return kept.rstrip(",;:-") + _CUT if kept else ""


def pieces(text: str) -> Iterator[str]:
    """Yield the pieces of a text, each of which can be counted by itself.

    A tokenizer makes no token across two pieces.
    """
    start = 0
    for seam in _SEAM.finditer(text):
        at = seam.start()
        # A clitic or an accent belongs to the letter before it. A character that Python's version
        # of Unicode does not know may be a letter to the tokenizer.
        is_joined = text[at] == "'" or unicodedata.category(text[at]) in {"Mn", "Mc", "Me", "Cn"}
        if not is_joined:
            yield text[start:at]
            start = at
    if start < len(text):
        yield text[start:]


def one_line(text: str) -> str:
    """Return a text on one line, without control characters."""
    # A catalog has thousands of texts, nearly all of them printable. Without this check, the loop
    # took half the time of a refresh.
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


def _bound(piece: str) -> int:
    most = FRAMES.get(piece) or usual_bound(piece)
    return most or len(piece.encode(errors="replace"))


def usual_bound(piece: str) -> int | None:
    """Return the most tokens that a piece of text can have; None if its word is not a usual one."""
    for joint in JOINTS:
        if piece.startswith(joint):
            most = USUAL_WORDS.get(piece[len(joint) :])
            return most + 1 if most else None
    return USUAL_WORDS.get(piece.removeprefix(" "))
