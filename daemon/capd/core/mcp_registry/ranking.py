"""Ranks servers of a registry for a text: by words, and by meaning if there are vectors.

The score by words is BM25 over name, title and description, scaled by the share of the query's
words that a server has. So a server with all words precedes one that repeats a single word. With
vectors, the cosine is added. The score of a deprecated server is lowered.
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
"""How many servers, those that fit best by words, are compared by meaning and can be returned."""
_NAME_WEIGHT = 2
_MEANING = 1.0
_LEAST_COSINE = 0.3
_DEPRECATED = 0.7
_COMMON = frozenset({"mcp", "server", "io", "github", "com", "ai", "tool"})
"""Words that are ignored because hundreds of servers have them in their names."""

Meaning = Callable[[Sequence[int]], "Numbers"]
"""A function that returns the cosine of the query with each of the servers at the given indexes."""


def text_of(summary: Summary) -> str:
    """Return the text of a server that is embedded, so that queries can be compared with it."""
    name = re.sub(r"[-_.]+", " ", summary.name.partition("/")[2])
    return f"{summary.title or name}: {summary.description}"


def ranked(
    text: str, summaries: Sequence[Summary], most: int, meaning: Meaning | None = None
) -> list[tuple[Summary, float]]:
    """Return at most `most` servers for a text with their scores, the best first.

    `meaning` compares by vectors; None to use words alone. A server with `text` as its exact name
    comes first.
    """
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
