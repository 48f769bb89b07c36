"""Which triggers a message has word for word.

Somebody who writes a trigger expects that it is heard, however low the message scores: a message
with a whole trigger in it, or with five words in a row of one, is at least suggested. A message
that is a trigger and nothing else switches its capability on (`core.routing.deciding`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from capd_protos.types import CapabilityId, CapabilitySpec

RUN = 5
"""Words in a row of a trigger that are enough."""
LEAST_WHOLE = 2
"""Words of a trigger that counts within a longer message: one word is said in passing."""

_Index = dict[int, "CapabilityId | tuple[CapabilityId, ...]"]
"""Capabilities by the hash of some words; most words belong to one."""

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Said:
    """What a message has of triggers, each in the order of the catalog."""

    whole: tuple[CapabilityId, ...] = ()
    """Capabilities of which a trigger is the whole message."""
    within: tuple[CapabilityId, ...] = ()
    """Those of which a trigger, or a run of one, is in it."""


class Phrases:
    """The triggers of a catalog by the runs of words that they have."""

    def __init__(self, capabilities: Sequence[CapabilitySpec]) -> None:
        # By 64 bits of the words: as tuples of words 50,000 triggers take 60 MB.
        self._whole: _Index = {}
        self._runs: _Index = {}
        for each in capabilities:
            for trigger in (*each.triggers, *each.extra_triggers):
                terms = _terms(trigger)
                if not terms:
                    continue
                _add(self._whole, terms, each.id)
                if LEAST_WHOLE <= len(terms) < RUN:
                    _add(self._runs, terms, each.id)
                for at in range(len(terms) - RUN + 1):
                    _add(self._runs, terms[at : at + RUN], each.id)

    def said(self, text: str) -> Said:
        """Return what `text` has of triggers."""
        terms = _terms(text)
        within: dict[CapabilityId, None] = {}
        for at in range(len(terms)):
            for length in range(LEAST_WHOLE, RUN + 1):
                within.update(dict.fromkeys(_found(self._runs, terms[at : at + length])))
        return Said(_found(self._whole, terms), tuple(within))


def _add(known: _Index, terms: tuple[str, ...], id_: CapabilityId) -> None:
    key = hash(terms)
    there = known.get(key)
    if there is None:
        known[key] = id_
    elif isinstance(there, tuple):
        if id_ not in there:
            known[key] = (*there, id_)
    elif there != id_:
        known[key] = (there, id_)


def _found(known: _Index, terms: tuple[str, ...]) -> tuple[CapabilityId, ...]:
    there = known.get(hash(terms), ())
    return there if isinstance(there, tuple) else (there,)


def _terms(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower().replace("'", "").replace("’", "")))
