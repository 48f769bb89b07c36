"""Finds triggers that a message contains word for word.

A person who writes a trigger expects it to work, however low the message scores. So if a message
contains a trigger of two to four words, or five words in a row of a longer one, its capability is
at least suggested. A message that is a trigger as a whole usually switches the trigger's capability
on (`core.routing.deciding`). Triggers that a server gave itself (`core.taps.tool_triggers`) do not
count: a server with the trigger "run tests" would be suggested in every conversation.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import CapabilityId, CapabilitySpec

RUN = 5
"""A message with this many words in a row of a longer trigger counts as containing the trigger."""
LEAST_WHOLE = 2
"""A trigger of fewer words does not count within a longer message: people mention single words
without wanting a tool."""

_WORD = lazy_pattern(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class ContainedTriggers:
    """The capabilities whose triggers a message contains word for word, in catalog order."""

    whole: tuple[CapabilityId, ...] = ()
    """Those with a trigger that is the whole message."""
    within: tuple[CapabilityId, ...] = ()
    """Those with a trigger of two to four words in the message, or with a longer trigger of which
    the message has five words in a row."""


def written_triggers(capability: CapabilitySpec) -> tuple[str, ...]:
    """Return a capability's triggers, except those that its servers gave themselves."""
    if not capability.tool_triggers:
        return (*capability.triggers, *capability.extra_triggers)
    of_tools = frozenset(capability.tool_triggers)
    written = (each for each in capability.extra_triggers if each not in of_tools)
    return (*capability.triggers, *written)


class Phrases:
    """The triggers of a catalog that people wrote, to be found in messages word for word."""

    def __init__(self, capabilities: Sequence[CapabilitySpec]) -> None:
        self._ids = tuple(each.id for each in capabilities)
        whole, runs = _Keys(), _Keys()
        for number, each in enumerate(capabilities):
            for trigger in written_triggers(each):
                terms = _terms(trigger)
                if not terms:
                    continue
                whole.add(terms, number)
                if LEAST_WHOLE <= len(terms) < RUN:
                    runs.add(terms, number)
                for at in range(len(terms) - RUN + 1):
                    runs.add(terms[at : at + RUN], number)
        self._whole, self._runs = _Sorted(whole), _Sorted(runs)

    def find(self, text: str) -> ContainedTriggers:
        """Return the capabilities whose triggers `text` contains word for word."""
        terms = _terms(text)
        runs = [
            terms[at : at + length]
            for at in range(len(terms))
            for length in range(LEAST_WHOLE, RUN + 1)
        ]
        whole, within = self._whole.found([terms]), self._runs.found(runs)
        return ContainedTriggers(
            *(tuple(self._ids[number] for number in each) for each in (whole, within))
        )


class _Keys:
    """Hashes of runs of words, 64 bits each, and the index of each run's capability."""

    def __init__(self) -> None:
        self.hashes = array("q")
        self.numbers = array("i")

    def add(self, terms: tuple[str, ...], number: int) -> None:
        self.hashes.append(hash(terms))
        self.numbers.append(number)


class _Sorted:
    """Sorted hashes of runs of words, to find the capabilities that have a run.

    50,000 triggers take 4 MB; a dictionary would take 60 MB.
    """

    def __init__(self, keys: _Keys) -> None:
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

        hashes = np.frombuffer(keys.hashes, np.int64) if keys.hashes else np.zeros(0, np.int64)
        # A stable sort keeps capabilities with the same words in the order of the catalog.
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._numbers = np.array(keys.numbers, np.int32)[order]

    def found(self, runs: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
        """Return the indexes of the capabilities that have one of the runs of words, each once."""
        import numpy as np  # noqa: PLC0415 - as above

        wanted = np.array([hash(run) for run in runs], np.int64)
        starts = np.searchsorted(self._hashes, wanted, "left").tolist()
        ends = np.searchsorted(self._hashes, wanted, "right").tolist()
        found: dict[int, None] = {}
        for start, end in zip(starts, ends, strict=True):
            if start < end:
                found.update(dict.fromkeys(self._numbers[start:end].tolist()))
        return tuple(found)


def _terms(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower().replace("'", "").replace("’", "")))
