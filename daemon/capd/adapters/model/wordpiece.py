"""BERT's uncased tokenizer: a text becomes the numbers of its word pieces.

The steps are those of BERT (https://github.com/google-research/bert, tokenization.py). A text is
cleaned, lower-cased, stripped of accents, and cut at white space, punctuation and Chinese
characters. Each word is split greedily, the longest known piece first. The tests compare the result
with that of the package `tokenizers`, which would add six other packages and 30 MB.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache

from capd.core.lazy_patterns import lazy_pattern

LONGEST_WORD = 100
"""The most characters of a word that is split; a longer word is unknown as a whole."""
_KEPT_WORDS = 20_000

_SPECIAL = lazy_pattern(r"(\[(?:UNK|SEP|CLS|PAD|MASK)\])")
"""A marker that is written in a text counts as that marker, as in the `tokenizers` package."""
_CHINESE = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)
_KEPT_CONTROL = "\t\n\r"


class WordPieces:
    """Tokenizes by one vocabulary. Any thread may use it."""

    def __init__(self, numbers: Mapping[str, int], most: int) -> None:
        """Create a tokenizer with the vocabulary `numbers`: the number of each word piece.

        A text gets at most `most` pieces, two markers included.
        """
        self._numbers = numbers
        self._most = most
        self._unknown = numbers["[UNK]"]
        self._first, self._last = numbers["[CLS]"], numbers["[SEP]"]
        self._word = lru_cache(_KEPT_WORDS)(self._taken_apart)

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the word pieces in `text`, with a marker at each end."""
        room = self._most - 2
        found: list[int] = []
        for word in _words(text):
            found += (self._numbers[word],) if word in _MARKERS else self._word(word)
            if len(found) >= room:
                break
        return [self._first, *found[:room], self._last]

    def _taken_apart(self, word: str) -> tuple[int, ...]:
        if len(word) > LONGEST_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                number = self._numbers.get(prefix + word[start:end])
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(pieces)


_MARKERS = frozenset({"[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]"})


def _words(text: str) -> Iterator[str]:
    for at, part in enumerate(_SPECIAL.split(text)):
        if at % 2:
            yield part
        else:
            yield from _folded(part).split()


def _folded(text: str) -> str:
    """Return `text` in lower case without accents, with spaces around each separate token."""
    spaced = "".join(map(_cleaned, text))
    bare = "".join(c for c in unicodedata.normalize("NFD", spaced) if not _is_accent(c))
    # Each character by itself, because `str.lower` of a word changes a final sigma.
    return "".join(map(_isolated, bare))


@lru_cache(_KEPT_WORDS)
def _cleaned(character: str) -> str:
    if character in "\x00\ufffd" or (
        character not in _KEPT_CONTROL and unicodedata.category(character) in {"Cc", "Cf", "Co"}
    ):
        return ""
    if character.isspace():
        return " "
    number = ord(character)
    is_chinese = any(first <= number <= last for first, last in _CHINESE)
    return f" {character} " if is_chinese else character


@lru_cache(_KEPT_WORDS)
def _is_accent(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


@lru_cache(_KEPT_WORDS)
def _isolated(character: str) -> str:
    lower = character.lower()
    is_ascii_sign = character.isascii() and not character.isalnum() and character > " "
    if is_ascii_sign or unicodedata.category(character).startswith("P"):
        return f" {lower} "
    return lower
