"""Priors: evidence for a capability from the project's files and from earlier use.

A prior multiplies a capability's probability by a factor. The sum over all capabilities stays the
same, and so does the probability of "none". So a prior only decides between capabilities that fit
the message.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence

from capd.core.globs import matches
from capd_protos.types import CapabilityId, CapabilitySpec, Score

PRIORS = ("files", "session", "project")
"""All priors. A profile gives them weights; one without a weight has no effect."""

ON = ("files",)
"""The priors that are on by default."""

MOST_PLACES = 256
MOST_USED = 16


class Use:
    """The capabilities that were on most recently, by session and by project."""

    def __init__(self) -> None:
        self._places: OrderedDict[str, OrderedDict[CapabilityId, None]] = OrderedDict()

    def note(self, place: str, id_: CapabilityId) -> None:
        """Remember that `id_` was on in `place`, a session or a project."""
        used = self._places.setdefault(place, OrderedDict())
        self._places.move_to_end(place)
        used[id_] = None
        used.move_to_end(id_)
        while len(used) > MOST_USED:
            used.popitem(last=False)
        while len(self._places) > MOST_PLACES:
            self._places.popitem(last=False)

    def everywhere(self) -> frozenset[CapabilityId]:
        """Return the capabilities that were recently on in any session or project."""
        return frozenset(id_ for used in self._places.values() for id_ in used)

    def of(self, place: str) -> frozenset[CapabilityId]:
        """Return the capabilities that were on in `place`."""
        return frozenset(self._places.get(place, ()))


def spoken_for(
    capabilities: Iterable[CapabilitySpec], listing: Collection[str]
) -> frozenset[CapabilityId]:
    """Return the capabilities whose `files` have a pattern that matches a name in `listing`.

    `listing` are the names in a project's root (a folder's ends with `/`), and `.env:KEY` for each
    key of its `.env`.
    """
    return frozenset(
        each.id
        for each in capabilities
        if any(matches(name, pattern) for pattern in each.files for name in listing)
    )


def shifted(
    ranked: Sequence[Score],
    favoured: Mapping[str, Collection[CapabilityId]],
    weights: Mapping[str, float],
) -> list[Score]:
    """Return the scores with the priors applied, best first; their sum stays the same.

    A prior is a rule, for example: capabilities that were used before are more likely. `favoured`
    has the capabilities that each prior makes more likely, `weights` the weight of each prior.
    """
    favoured = {name: ids for name, ids in favoured.items() if ids}
    if not favoured:
        return list(ranked)
    factors = [
        math.exp(sum(weights.get(name, 0.0) for name, ids in favoured.items() if score.id in ids))
        for score in ranked
    ]
    if all(factor == 1.0 for factor in factors):
        return list(ranked)
    before = sum(score.score for score in ranked)
    after = sum(score.score * factor for score, factor in zip(ranked, factors, strict=True))
    if not after > 0:
        return list(ranked)
    moved = [
        Score(score.id, score.score * factor * before / after)
        for score, factor in zip(ranked, factors, strict=True)
    ]
    return sorted(moved, key=lambda score: -score.score)
