"""Compares texts by their letters: words, BM25 and character n-grams.

Routing and tool search use the same pieces:

    words(text)                 its words: identifiers split, lower case, no stop words, stems
    Bm25([words(d), ...])       .scores(words(query)) -> one float32 score a document
    Coverage([words(d), ...])   .shares(words(query)) -> how much of the query a document has
    Ngrams([text, ...])         .similarities(query)  -> one cosine in [0, 1] a text

Indexes are built once and never changed; a query reads only the postings of its own terms, so ten
thousand documents take well under a millisecond.
"""

import math
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from capd.core.lazy_patterns import lazy_pattern

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float32]
    Indexes = npt.NDArray[np.int32]

_K1 = 1.2
_B = 0.75
_NGRAM = 4
LONGEST = 4096
"""How many characters of a text are compared: a long paste must not use up the turn's time."""

_MOST_STEMS = 4096
"""Number of stems that are cached: a catalog's texts repeat the same words."""
_MOST_WORDS = 4096
"""Number of words whose n-grams are kept while an index is built."""
_SHORTEST_STEMMED = 4
_SHORTEST_STEM = 3

# A run of letters or digits; within it, `fooBar`, `HTTPServer` and `utf8` are split.
_RUN = lazy_pattern(r"[^\W_]+")
_PART = lazy_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[^\WA-Z\d_]+|\d+|[A-Z]")

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
    """Return the stems of a text's words in order.

    An identifier gives its parts and itself as a whole.
    """
    folded = unicodedata.normalize("NFKC", text[:LONGEST])
    found: list[str] = []
    for run in _RUN.findall(folded.replace("'", "").replace("’", "")):
        if run.islower() and run.isalpha() and run.isascii():
            # Nearly all runs have a single part.
            found.append(run)
            continue
        parts = _PART.findall(run)
        found.extend(parts)
        if len(parts) > 1:
            found.append(run)
    return [stem(word) for word in map(str.lower, found) if word not in STOP_WORDS]


@lru_cache(maxsize=_MOST_STEMS)
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
    """Which documents contain a term, and with what weight.

    The numbers are in arrays, sorted by term. A term is kept as 64 bits of its hash, and found by
    bisection. Python objects would take 20 times the memory: 60 MB for the n-grams of ten thousand
    capabilities.
    """

    def __init__(self, documents: Iterable[list[int]]) -> None:
        """Build the postings; each document is given as the hashes of its terms."""
        keys = array("q")
        lengths = array("i")
        for document in documents:
            keys.fromlist(document)
            lengths.append(len(document))
        self.size = len(lengths)
        self.is_empty = not keys
        if self.is_empty:
            return
        import numpy as np  # noqa: PLC0415 - 0.1 s that a daemon without tools never pays

        number_of = np.repeat(np.arange(self.size, dtype=np.int32), lengths)
        key_of = np.frombuffer(keys, np.int64)
        # Stable, so within a term the order of the documents stays.
        order = np.argsort(key_of, kind="stable")
        number_of, key_of = number_of[order], key_of[order]
        is_other_term = np.diff(key_of, prepend=key_of[:1] - 1) != 0
        is_first = is_other_term | (np.diff(number_of, prepend=-1) != 0)
        entries = np.flatnonzero(is_first)
        self.counts: Indexes = np.diff(entries, append=len(order)).astype(np.int32)
        """For each posting, how often its term is in its document."""
        self.numbers: Indexes = number_of[entries]
        starts = np.flatnonzero(is_other_term[entries])
        self._keys = key_of[entries[starts]]
        self._starts = np.append(starts, len(entries)).astype(np.int32)
        self.present: list[int] = np.diff(self._starts).tolist()
        """How many documents have each term."""
        self._weights = np.zeros(0, np.float32)

    def weigh(self, weights: "npt.NDArray[np.float64]") -> None:
        """Store the weight of each posting, and drop the data that weights are computed from."""
        import numpy as np  # noqa: PLC0415 - as above

        self._weights = weights.astype(np.float32)
        del self.counts, self.present

    def of_entries(self, values: Sequence[float]) -> "npt.NDArray[np.float64]":
        """Return `values`, one for each term, with each repeated for all postings of its term."""
        import numpy as np  # noqa: PLC0415 - as above

        return np.repeat(np.array(values, np.float64), np.diff(self._starts))

    def columns(self, terms: Sequence[str]) -> list[int]:
        """Return the number that each of `terms` has here; -1 for a term that no document has."""
        if self.is_empty or not terms:
            return [-1] * len(terms)
        import numpy as np  # noqa: PLC0415 - as above

        wanted = np.fromiter(map(hash, terms), np.int64, len(terms))
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        columns: list[int] = np.where(self._keys[at] == wanted, at, -1).tolist()
        return columns

    def sums(self, wanted: Iterable[tuple[int, float]]) -> "Numbers":
        """Return for each document the sum of its weights for the wanted terms.

        `wanted` pairs the number of a term with a factor, by which the weights are multiplied.
        """
        import numpy as np  # noqa: PLC0415 - as above

        total = np.zeros(self.size, np.float32)
        for column, factor in wanted:
            if column >= 0:
                its = slice(self._starts[column], self._starts[column + 1])
                # A term has one posting for each document, so this indexed addition loses nothing.
                total[self.numbers[its]] += self._weights[its] * np.float32(factor)
        return total


class Bm25:
    """Okapi BM25 over documents given as lists of terms (Robertson and Zaragoza 2009)."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self._postings = postings = _Postings(map(_hashes, documents))
        if postings.is_empty:
            return
        import numpy as np  # noqa: PLC0415 - as above

        total = len(documents)
        words_of = np.array([len(document) for document in documents], np.float64)
        lengths = _K1 * (1 - _B + _B * words_of / (sum(map(len, documents)) / total))
        idf = postings.of_entries(
            _of_each(postings.present, lambda n: math.log(1 + (total - n + 0.5) / (n + 0.5)))
        )
        counts = postings.counts
        postings.weigh(idf * counts * (_K1 + 1) / (counts + lengths[postings.numbers]))

    def scores(self, query: Iterable[str]) -> "Numbers":
        """Return each document's score for the query's terms; a repeated term counts once."""
        columns = self._postings.columns(list(dict.fromkeys(query)))
        return self._postings.sums((column, 1.0) for column in columns)


class Coverage:
    """The share of a query's words that a document has; rare words count more.

    `others` are texts that only determine how common words are.
    """

    def __init__(
        self, documents: Sequence[Sequence[str]], others: Sequence[Sequence[str]] = ()
    ) -> None:
        # The others come after the documents, so that their share is cut off at the end.
        self._postings = postings = _Postings(map(_hashes, (*documents, *others)))
        self._size = len(documents)
        total = postings.size + 1
        # A word that is in no text counts as the rarest, so it fully counts as not covered.
        self._unseen = math.log(total / 0.5)
        self._idf: array[float] = array("d")
        if not postings.is_empty:
            self._idf.extend(_of_each(postings.present, lambda n: math.log(total / (n + 0.5))))
            postings.weigh(postings.of_entries(self._idf))

    def shares(self, query: Iterable[str]) -> "Numbers":
        """Return, for each document, its share from 0 to 1; a repeated term counts once."""
        columns = self._postings.columns(list(dict.fromkeys(query)))
        whole = sum(self._unseen if at < 0 else self._idf[at] for at in columns)
        covered = self._postings.sums((column, 1.0) for column in columns)[: self._size]
        return covered / whole if whole else covered


class Ngrams:
    """Compares texts by the cosine of their character n-grams, weighted by rarity; forgives typos.

    An n-gram lies within one word.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._postings = postings = _Postings(_ngram_hashes(texts))
        self._unseen = math.log(1 + len(texts))
        self._idf: array[float] = array("d")
        if postings.is_empty:
            return
        import numpy as np  # noqa: PLC0415 - as above

        self._idf.extend(_of_each(postings.present, lambda n: math.log(1 + len(texts) / n)))
        weighted = (1 + np.log(postings.counts)) * postings.of_entries(self._idf)
        norms = np.sqrt(np.bincount(postings.numbers, weighted * weighted, len(texts)))
        postings.weigh(weighted / norms[postings.numbers])

    def similarities(self, query: str) -> "Numbers":
        """Return each text's cosine with the query."""
        counts = Counter(_ngrams(query))
        columns = self._postings.columns(list(counts))
        weighted = [
            (1 + math.log(number)) * (self._unseen if at < 0 else self._idf[at])
            for at, number in zip(columns, counts.values(), strict=True)
        ]
        norm = math.sqrt(sum(weight * weight for weight in weighted))
        return self._postings.sums(
            (at, weight / norm) for at, weight in zip(columns, weighted, strict=True) if norm
        )


def _of_each(present: Sequence[int], weight: Callable[[int], float]) -> list[float]:
    """Return the weight of each term.

    `present` has, for each term, the number of texts with it, from which `weight` computes the
    term's weight.
    """
    known = {number: weight(number) for number in set(present)}
    return [known[number] for number in present]


def _hashes(terms: Iterable[str]) -> list[int]:
    return list(map(hash, terms))


def _ngrams(text: str) -> list[str]:
    return [gram for word in _ngram_words(text) for gram in _ngrams_of(word)]


def _ngram_hashes(texts: Iterable[str]) -> Iterator[list[int]]:
    """Yield the hashes of each text's n-grams. The hashes of a repeated word are cached."""
    known: dict[str, list[int]] = {}
    for text in texts:
        found: list[int] = []
        for word in _ngram_words(text):
            hashes = known.get(word)
            if hashes is None:
                hashes = _hashes(_ngrams_of(word))
                if len(known) < _MOST_WORDS:
                    known[word] = hashes
            found += hashes
        yield found


def _ngram_words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text[:LONGEST]).lower()
    return [word for word in _RUN.findall(folded) if word not in STOP_WORDS]


def _ngrams_of(word: str) -> list[str]:
    padded = f" {word} "
    return [padded[at : at + _NGRAM] for at in range(max(1, len(padded) - _NGRAM + 1))]
