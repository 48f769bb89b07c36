"""What routing learns from use on this machine: a bounded offset for each capability.

    what follows a message                                    label      the offset goes
    a person switches on what the message did not             enabled    up
    a person switches off what the message switched on        disabled   down
    the model calls a tool of what the message switched on,   called     up, less far
      or of what was suggested

A label contains no text: it has the message's fingerprint, the capability, the score that routing
gave it, and the project as a hash. An offset is added to a capability's logit, so it changes how
easily the capability reaches the threshold. It is the sum of three parts: one for all capabilities
(how this person writes), one for the capability, and one for the capability in the project. The sum
is between `LOWEST` and `HIGHEST`, so no history makes a message activate a capability with a score
below `lowest_activated` (docs/routing.md, "Learning from use").

The offsets are computed from the saved labels (`replay`), so removing a label undoes its effect.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from capd_protos.types import LearntEntry, RoutingLabel, Score

HIGHEST = 0.5
"""The largest offset. `lowest_activated` says below which score no message activates anything."""
LOWEST = -2.0
MOST_OF_A_PART = 0.3
"""The largest value of each of the three parts of an offset."""
MOST_BY_CALLS = 0.15
"""The largest value to which calls alone raise a capability's parts: the one for all projects, and
the one for a project. A server's text may have led the model to a call, so calls raise the part for
all capabilities to 0 at most."""
STEP_UP = 0.15
"""Each time a capability was wanted, this is added to its own part of the offset, and to its part
in the project. This value and the next two were tuned with `bench/routing_learning.py`, on messages
of other writers than those in the tables that it prints."""
STEP_DOWN = 0.15
"""If a capability is switched off, this value times its score is subtracted from its part for all
projects. Its part in the project becomes 0."""
STEP_OF_ALL = 0.1
"""How fast the part for all capabilities changes. After a call it rises by this value times the
score, after switching off it falls by as much, and after switching on it rises by this value times
(1 - score)."""
PLAUSIBLE = 0.02
"""If a person switches on a capability to which the message gave a lower score, the part for all
capabilities does not change: the message was not about this capability."""

MOST_LABELS = 500
MOST_OF_ONE = 40
"""The most labels of one capability, so that the most used one does not push out the others."""
LONGEST_KEPT = 180 * 86400.0
"""Seconds for which a label is kept."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """The offsets that routing has learnt: for all capabilities, for each, and by project.

    An offset raises or lowers how easily a capability is switched on.
    """

    shared: float = 0.0
    capabilities: Mapping[str, float] = field(default_factory=dict)
    projects: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The offsets by the hash of the project's path and the capability."""

    def offset(self, capability: str, project: str = "") -> float:
        """Return what is added to a capability's logit in a project, from `LOWEST` to `HIGHEST`."""
        own = self.capabilities.get(capability, 0.0)
        here = self.projects.get((project, capability), 0.0) if project else 0.0
        return min(HIGHEST, max(LOWEST, self.shared + own + here))

    def wanted_in(self, project: str) -> frozenset[str]:
        """Return the capabilities, as `tap/name`, that routing has learnt to favour in a project.

        What it has learnt in all projects together does not count.
        """
        return frozenset(
            id_ for (where, id_), here in self.projects.items() if where == project and here > 0
        )


NOTHING = Learnt()


def project_mark(path: str) -> str:
    """Return the mark of a project in labels: 16 hex digits of the SHA-256 of its path."""
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:16] if path else ""


def lowest_activated(threshold: float) -> float:
    """Return the lowest score with which learning can let a message activate a capability.

    `threshold` is the score that is needed without learning. The limit on the sum of all scores
    (`activate_at` of the profile) moves in the same way.
    """
    return threshold / (threshold + (1 - threshold) * math.exp(HIGHEST))


def shifted(ranked: Sequence[Score], learnt: Learnt, project: str) -> list[Score]:
    """Return the scores with the learnt offsets of a project applied, best first.

    The probability that a lowered capability loses goes to "none", so no other capability rises.
    """
    if learnt == NOTHING:
        return list(ranked)
    factors = [math.exp(learnt.offset(str(each.id), project)) for each in ranked]
    gained = sum(
        each.score * max(0.0, factor - 1) for each, factor in zip(ranked, factors, strict=True)
    )
    moved = [
        Score(each.id, each.score * factor / (1 + gained))
        for each, factor in zip(ranked, factors, strict=True)
    ]
    return sorted(moved, key=lambda each: -each.score)


def after(learnt: Learnt, label: RoutingLabel) -> Learnt:
    """Return the offsets after one more label, which says that a decision was right or wrong."""
    id_, shared = label.capability, learnt.shared
    own = learnt.capabilities.get(id_, 0.0)
    here = learnt.projects.get((label.project, id_), 0.0)
    match label.act:
        case "enabled":
            own = max(own, min(MOST_OF_A_PART, own + STEP_UP))
            here = max(here, min(MOST_OF_A_PART, here + STEP_UP))
            if label.score >= PLAUSIBLE:
                shared = min(MOST_OF_A_PART, shared + STEP_OF_ALL * (1 - label.score))
        case "called":
            own = max(own, min(MOST_BY_CALLS, own + STEP_UP))
            here = max(here, min(MOST_BY_CALLS, here + STEP_UP))
            # The decision was right, so an offset that corrections had lowered rises again.
            shared = max(shared, min(0.0, shared + STEP_OF_ALL * label.score))
        case "disabled":
            own = max(LOWEST, own - STEP_DOWN * label.score)
            here = 0.0
            shared = max(-MOST_OF_A_PART, shared - STEP_OF_ALL * label.score)
    projects = {**learnt.projects, (label.project, id_): here} if label.project else learnt.projects
    return Learnt(shared, {**learnt.capabilities, id_: own}, projects)


def replay(labels: Iterable[RoutingLabel]) -> Learnt:
    """Return the offsets that result from labels in order of time.

    A label says that a decision was right or wrong.
    """
    learnt = NOTHING
    for label in labels:
        learnt = after(learnt, label)
    return learnt


class History:
    """The labels of this machine, limited in number and age, and the offsets that they give."""

    def __init__(self, labels: Iterable[RoutingLabel] = ()) -> None:
        self._labels: list[RoutingLabel] = []
        self.learnt = NOTHING
        self._keep(labels)

    @property
    def labels(self) -> tuple[RoutingLabel, ...]:
        """The labels, oldest first: everything that has to be saved."""
        return tuple(self._labels)

    def add(self, label: RoutingLabel) -> bool:
        """Add a label; return whether it counts.

        It does not count if the same message has given the same label before, if the score is not
        within 0 to 1, or if the limits on labels leave no room for it.
        """
        if not 0 <= label.score <= 1 or self._has(label):
            return False
        if self._is_crowded(label):
            self._keep((*self._labels, label))
            return any(each is label for each in self._labels)
        self._labels.append(label)
        self.learnt = after(self.learnt, label)
        return True

    def forget(self, capability: str = "") -> int:
        """Remove the labels of a capability (`name` or `tap/name`), or all; return their number."""
        kept = [
            each
            for each in self._labels
            if capability
            and capability not in {each.capability, each.capability.rpartition("/")[2]}
        ]
        taken = len(self._labels) - len(kept)
        self._keep(kept)
        return taken

    def undo(self) -> RoutingLabel | None:
        """Remove the newest label and return it; None if there is none."""
        if not self._labels:
            return None
        last = self._labels[-1]
        self._keep(self._labels[:-1])
        return last

    def progress(self, project: str) -> list[LearntEntry]:
        """Return what was learnt about each capability, the largest offset, up or down, first.

        `project` is the hash of a project's path (`project_mark`).
        """
        by_name: dict[str, list[RoutingLabel]] = {}
        for each in self._labels:
            by_name.setdefault(each.capability, []).append(each)
        found = [
            LearntEntry(
                name,
                round(self.learnt.capabilities.get(name, 0.0), 4),
                round(self.learnt.projects.get((project, name), 0.0), 4),
                sum(each.act == "enabled" for each in labels),
                sum(each.act == "disabled" for each in labels),
                sum(each.act == "called" for each in labels),
                min(each.at for each in labels),
                max(each.at for each in labels),
            )
            for name, labels in by_name.items()
        ]
        return sorted(found, key=lambda each: (-abs(each.offset), each.capability))

    def _has(self, label: RoutingLabel) -> bool:
        key = (label.fingerprint, label.capability)
        return bool(label.fingerprint) and any(
            (each.fingerprint, each.capability) == key and each.act == label.act
            for each in self._labels
        )

    def _is_crowded(self, label: RoutingLabel) -> bool:
        of_one = sum(each.capability == label.capability for each in self._labels)
        times = [label.at, *(each.at for each in self._labels)]
        return (
            len(self._labels) >= MOST_LABELS
            or of_one >= MOST_OF_ONE
            or min(times) < max(times) - LONGEST_KEPT
        )

    def _keep(self, labels: Iterable[RoutingLabel]) -> None:
        """Keep those of `labels` that are within the limits, and compute the offsets from them."""
        kept = [each for each in labels if 0 <= each.score <= 1]
        newest = max((each.at for each in kept), default=0.0)
        kept = [each for each in kept if each.at >= newest - LONGEST_KEPT]
        of_one: dict[str, int] = {}
        recent: list[RoutingLabel] = []
        for each in reversed(kept):
            of_one[each.capability] = of_one.get(each.capability, 0) + 1
            if of_one[each.capability] <= MOST_OF_ONE:
                recent.append(each)
        recent.reverse()
        excess = len(recent) - MOST_LABELS
        if excess > 0:
            # Labels of calls are dropped first: what a person did says more.
            calls = (at for at, each in enumerate(recent) if each.act == "called")
            rest = (at for at, each in enumerate(recent) if each.act != "called")
            dropped = {at for at, _ in zip(chain(calls, rest), range(excess), strict=False)}
            recent = [each for at, each in enumerate(recent) if at not in dropped]
        self._labels = recent
        self.learnt = replay(recent)
