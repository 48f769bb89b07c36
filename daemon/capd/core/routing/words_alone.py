"""Routes by a message's words alone, while the embedding model is not ready.

`sure` is for a user's message: it returns a capability only if the message contains a whole trigger
of exactly one capability. `fitting` ranks capabilities for somebody who chooses from a list.
"""

from collections.abc import Sequence
from functools import lru_cache

from capd.core.lexical import Bm25, words
from capd.core.routing.phrases import written_triggers
from capd_protos.types import CapabilityId, CapabilitySpec, Score

FEWEST_WORDS = 2
"""A trigger of fewer words does not decide: people mention single words without wanting a tool."""
MOST_PHRASES = 4096
"""If the catalog has more triggers, `sure` returns nothing: comparing them would take too long."""
_AGAINST = frozenset({"about_a_word", "general_question", "invention", "machine_output"})
HALF = 6.0
"""The BM25 sum that gives a score of 0.5, as in `core.routing.evidence`."""


def sure(text: str, capabilities: Sequence[CapabilitySpec]) -> CapabilityId | None:
    """Return the capability of which `text` contains a whole trigger, if there is exactly one.

    Otherwise the result is None. Triggers that a server gave itself do not count. The result is
    also None if the wording says that no tool is wanted, as in "what does git stand for".
    """
    count = 0
    for each in capabilities:
        count += len(each.triggers) + len(each.extra_triggers)
        # Counting all triggers of a large catalog would take as long as everything else.
        if count > MOST_PHRASES:
            return None
    from capd.core.routing.manner import SIGNS, signs  # noqa: PLC0415 - 7 ms without turns

    found = signs(text)
    if any(value >= 1.0 for name, value in zip(SIGNS, found, strict=True) if name in _AGAINST):
        return None
    message = _joined(words(text))
    named = [
        each.id
        for each in capabilities
        if any(_contains(message, phrase) for phrase in written_triggers(each))
    ]
    return named[0] if len(named) == 1 else None


def fitting(text: str, capabilities: Sequence[CapabilitySpec]) -> list[Score]:
    """Return the capabilities that share words with `text`, best first, with scores in (0, 1)."""
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
    """Return the words of a trigger that a message must contain; empty if the trigger is short."""
    found = words(phrase)
    return _joined(found) if len(found) >= FEWEST_WORDS else ""


def _joined(found: Sequence[str]) -> str:
    return f" {' '.join(found)} "
