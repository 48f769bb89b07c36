"""What two texts share in letters: words, BM25 and character n-grams.

Routing and tool search use the same pieces:

    words(text)                 its words: identifiers split, lower case, no stop words, stems
    Bm25([words(d), ...])       .scores(words(query)) -> one float32 score a document
    Coverage([words(d), ...])   .shares(words(query)) -> how much of the query a document has
    Ngrams([text, ...])         .similarities(query)  -> one cosine in [0, 1] a text

Indexes are built once and never changed; asking touches only the postings of the query's own
terms, so ten thousand documents take well under a millisecond.
"""

import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float32]
    Indexes = npt.NDArray[np.int32]

_K1 = 1.2
_B = 0.75
_NGRAM = 4
_MOST_CHARACTERS = 4096
"""Of a longer text only the beginning is compared: a paste must not cost the turn its time."""

_SHORTEST_STEMMED = 4
_SHORTEST_STEM = 3

# A run of letters or digits; within it, `fooBar`, `HTTPServer` and `utf8` are split.
_RUN = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\WA-Z\d_]+|\d+|[A-Z]")

_STOP_TEXT = """
a about all also am an and any are as at be been but by can could did do does doing for from
get give going had has have having hello hey hi how i if in into is it its just let like make
may me might my need no not now of off ok okay on one or our out over please put s see should
so some t tell than that the their them then there these they thing this those to too up us
use using very want was we were what when where which while who why will with would yes you
your d ll m re ve im dont lets
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())


def words(text: str) -> list[str]:
    """Return the stems of a text's words in order: the parts of each identifier, and the whole."""
    folded = unicodedata.normalize("NFKC", text[:_MOST_CHARACTERS])
    found: list[str] = []
    for run in _RUN.findall(folded.replace("'", "").replace("’", "")):
        parts = _PART.findall(run)
        found.extend(parts)
        if len(parts) > 1:
            found.append(run)
    return [stem(word) for word in map(str.lower, found) if word not in STOP_WORDS]


def stem(word: str) -> str:
    """Return a word without the commonest English endings: `query` and `queries` become equal."""
    if len(word) < _SHORTEST_STEMMED or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        kept = word.removesuffix(ending)
        if kept != word and len(kept) >= _SHORTEST_STEM and any(c in "aeiouy" for c in kept):
            # `running` and `run`; `call` and `miss` keep their double letter.
            word = kept[:-1] if kept[-1] == kept[-2] and kept[-1] not in "lsz" else kept
            break
    if len(word) > _SHORTEST_STEM and word.endswith("e"):
        word = word[:-1]
    if len(word) > _SHORTEST_STEM and word.endswith("y"):
        word = word[:-1] + "i"
    return word


class _Postings:
    """Which documents contain a term, and with what weight."""

    def __init__(self, rows: Iterable[dict[str, float]]) -> None:
        # Arrays of machine numbers, row by row: ten thousand rows of Python objects take 100 MB.
        at: dict[str, array[int]] = {}
        weights: dict[str, array[float]] = {}
        self.size = 0
        for number, row in enumerate(rows):
            self.size = number + 1
            for term, weight in row.items():
                if term not in at:
                    at[term], weights[term] = array("i"), array("f")
                at[term].append(number)
                weights[term].append(weight)
        self._terms: dict[str, tuple[Indexes, Numbers]] = {}
        if not at:
            return
        import numpy as np  # noqa: PLC0415 - 0.1 s that a daemon without tools never pays

        self._terms = {
            term: (np.array(numbers, np.int32), np.array(weights[term], np.float32))
            for term, numbers in at.items()
        }

    def sums(self, wanted: Iterable[tuple[str, float]]) -> "Numbers":
        """Return for each document the sum of its weights for `wanted`, each times its factor."""
        import numpy as np  # noqa: PLC0415 - as above

        total = np.zeros(self.size, np.float32)
        for term, factor in wanted:
            found = self._terms.get(term)
            if found is not None:
                # Each document is in a posting once, so this indexed addition loses nothing.
                total[found[0]] += found[1] * np.float32(factor)
        return total


class Bm25:
    """Okapi BM25 over documents given as lists of terms (Robertson and Zaragoza 2009)."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        present = Counter(term for document in documents for term in set(document))
        total = len(documents)
        mean = sum(map(len, documents)) / total if total else 0.0
        self.idf = {
            term: math.log(1 + (total - number + 0.5) / (number + 0.5))
            for term, number in present.items()
        }
        self._postings = _Postings(self._row(document, mean) for document in documents)

    def _row(self, document: Sequence[str], mean: float) -> dict[str, float]:
        length = _K1 * (1 - _B + _B * len(document) / mean) if mean else _K1
        return {
            term: self.idf[term] * number * (_K1 + 1) / (number + length)
            for term, number in Counter(document).items()
        }

    def scores(self, query: Iterable[str]) -> "Numbers":
        """Return each document's score for the query's terms; a repeated term counts once."""
        return self._postings.sums((term, 1.0) for term in dict.fromkeys(query))


class Coverage:
    """The share of a query's words that a document has; rare words count more.

    `others` are texts that only determine how common words are.
    """

    def __init__(
        self, documents: Sequence[Sequence[str]], others: Sequence[Sequence[str]] = ()
    ) -> None:
        present = Counter(term for text in (*documents, *others) for term in set(text))
        total = len(documents) + len(others) + 1
        self._idf = {term: math.log(total / (number + 0.5)) for term, number in present.items()}
        # A word that is in no text counts as the rarest, so it fully counts as not covered.
        self._unseen = math.log(total / 0.5)
        self._postings = _Postings(
            [{term: self._idf[term] for term in dict.fromkeys(document)} for document in documents]
        )

    def shares(self, query: Iterable[str]) -> "Numbers":
        """Return for each document a share in [0, 1]; a repeated term counts once."""
        terms = list(dict.fromkeys(query))
        whole = sum(self._idf.get(term, self._unseen) for term in terms)
        covered = self._postings.sums((term, 1.0) for term in terms)
        return covered / whole if whole else covered


class Ngrams:
    """Character n-grams within words, weighted by rarity, compared by cosine; forgives typos."""

    def __init__(self, texts: Sequence[str]) -> None:
        present = Counter(gram for text in texts for gram in set(_ngrams(text)))
        self._idf = {gram: math.log(1 + len(texts) / number) for gram, number in present.items()}
        self._unseen = math.log(1 + len(texts))
        self._postings = _Postings(self._unit(Counter(_ngrams(text))) for text in texts)

    def similarities(self, query: str) -> "Numbers":
        """Return each text's cosine with the query."""
        return self._postings.sums(self._unit(Counter(_ngrams(query))).items())

    def _unit(self, counts: Counter[str]) -> dict[str, float]:
        weighted = {
            gram: (1 + math.log(number)) * self._idf.get(gram, self._unseen)
            for gram, number in counts.items()
        }
        norm = math.sqrt(sum(weight * weight for weight in weighted.values()))
        return {gram: weight / norm for gram, weight in weighted.items()} if norm else {}


def _ngrams(text: str) -> list[str]:
    grams: list[str] = []
    for word in _RUN.findall(unicodedata.normalize("NFKC", text[:_MOST_CHARACTERS]).lower()):
        if word not in STOP_WORDS:
            padded = f" {word} "
            grams.extend(padded[at : at + _NGRAM] for at in range(max(1, len(padded) - _NGRAM + 1)))
    return grams
