"""Ranks servers of a registry for a text: by words, and by meaning if there are vectors.

Words alone rank by BM25 over name, title and description, times the share of the query's words that
a server has, so that a server with all of them precedes one that repeats a single word. Vectors add
their cosine. A server that its publisher calls deprecated comes after equal ones.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from capd.core.lexical import Bm25, Coverage, words
from capd.core.mcp_registry.summaries import Summary

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float32]

CANDIDATES = 256
"""Of the best by words, whose meaning is compared."""
_NAME_WEIGHT = 2
_MEANING = 1.0
_LEAST_COSINE = 0.3
_DEPRECATED = 0.7
_COMMON = frozenset({"mcp", "server", "io", "github", "com", "ai", "tool"})
"""Words that hundreds of names have, and that tell nothing apart."""

Meaning = Callable[[Sequence[int]], "Numbers"]
"""Return the cosine of the query with each of the servers, by their places."""


def text_of(summary: Summary) -> str:
    """Return the text of a server that is embedded."""
    name = re.sub(r"[-_.]+", " ", summary.name.partition("/")[2])
    return f"{summary.title or name}: {summary.description}"


def ranked(
    text: str, summaries: Sequence[Summary], most: int, meaning: Meaning | None = None
) -> list[tuple[Summary, float]]:
    """Return the best servers for a text, with their scores."""
    import numpy as np  # noqa: PLC0415 - 60 ms that only a search pays

    if not summaries:
        return []
    exact = text.strip().casefold()
    documents = [_words(each) for each in summaries]
    query = [each for each in words(text) if each not in _COMMON] or words(text)
    sums = Bm25(documents).scores(query)
    shares = Coverage(documents).shares(query)
    top = float(sums.max()) or 1.0
    scores = (sums / np.float32(top)) * (np.float32(0.25) + np.float32(0.75) * shares)
    chosen = np.argsort(-scores, kind="stable")[:CANDIDATES]
    if meaning is not None:
        cosines = meaning([int(each) for each in chosen])
        near = np.where(cosines >= _LEAST_COSINE, cosines, 0).astype(np.float32)
        scores = scores.copy()
        scores[chosen] += np.float32(_MEANING) * near
    found = []
    for at in map(int, chosen):
        each, score = summaries[at], float(scores[at])
        if each.status == "deprecated":
            score *= _DEPRECATED
        if each.name.casefold() == exact:
            score += len(summaries)
        if score > 0:
            found.append((each, score))
    found.sort(key=lambda one: (-one[1], one[0].name))
    return found[:most]


def _words(summary: Summary) -> list[str]:
    namespace, _, name = summary.name.partition("/")
    named = [each for each in words(name) if each not in _COMMON]
    publisher = [each for each in words(namespace) if each not in _COMMON]
    return [
        *(named * _NAME_WEIGHT),
        *publisher,
        *words(summary.title),
        *words(summary.description),
    ]
