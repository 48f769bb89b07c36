"""Decides by a message's words while the model is not ready.

`sure` is for a user's message: it returns a capability only if the message contains a whole trigger
of it and of no other. `fitting` ranks capabilities for a person or a model that chooses from a
list.
"""

from collections.abc import Sequence
from functools import lru_cache

from capd.core.lexical import Bm25, words
from capd.core.routing.manner import SIGNS, signs
from capd_protos.types import CapabilityId, CapabilitySpec, Score

FEWEST_WORDS = 2
"""The fewest words of a trigger that decides alone. Many people mention one word without wanting
its capability."""
MOST_PHRASES = 4096
"""Triggers that are compared with a message, which is awaited: with more nothing is sure."""
_AGAINST = frozenset({"about_a_word", "general_question", "invention", "machine_output"})
HALF = 6.0
"""The BM25 sum that counts half, as for the evidence of routing."""


def sure(text: str, capabilities: Sequence[CapabilitySpec]) -> CapabilityId | None:
    """Return the only capability of which the message contains a whole trigger, if there is one."""
    found = signs(text)
    if any(value >= 1.0 for name, value in zip(SIGNS, found, strict=True) if name in _AGAINST):
        return None
    if sum(len(each.triggers) + len(each.extra_triggers) for each in capabilities) > MOST_PHRASES:
        return None
    message = _joined(words(text))
    meant = [
        each.id
        for each in capabilities
        if any(_contains(message, phrase) for phrase in (*each.triggers, *each.extra_triggers))
    ]
    return meant[0] if len(meant) == 1 else None


def fitting(text: str, capabilities: Sequence[CapabilitySpec]) -> list[Score]:
    """Return the capabilities that share words with `text`, best first, from 0 to 1."""
    if not capabilities:
        return []
    documents = [
        words(" ".join((*each.triggers, *each.extra_triggers, each.description, str(each.id.name))))
        for each in capabilities
    ]
    sums = Bm25(documents).scores(words(text))
    ranked = [
        Score(each.id, float(total / (total + HALF)))
        for each, total in zip(capabilities, sums, strict=True)
        if total > 0
    ]
    return sorted(ranked, key=lambda score: -score.score)


def _contains(message: str, phrase: str) -> bool:
    wanted = _wanted(phrase)
    return wanted != "" and wanted in message


@lru_cache(maxsize=MOST_PHRASES)
def _wanted(phrase: str) -> str:
    """Return what a message has to hold; empty where the phrase is too short to decide."""
    found = words(phrase)
    return _joined(found) if len(found) >= FEWEST_WORDS else ""


def _joined(found: Sequence[str]) -> str:
    return f" {' '.join(found)} "
