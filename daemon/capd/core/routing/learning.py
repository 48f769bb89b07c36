"""What routing learns from use on this machine: a bounded offset for each capability.

    what follows a message                                    label      the offset goes
    a person switches on what the message did not             enabled    up
    a person switches off what the message switched on        disabled   down
    the model calls a tool of what the message switched on,   called     up, less far
      or of what was suggested

A label has no text: the message's fingerprint, the capability, the score that routing gave it, and
the project as a hash. An offset is added to a capability's logit, so it changes how easily the
capability reaches the threshold. It is the sum of three parts: one for all capabilities (how this
person writes), one for the capability, and one for the capability in the project. The sum is
limited to `LOWEST` and `HIGHEST`. So whatever the history, a message never activates a capability
with a score under `lowest_activated` (docs/routing.md, "Learning from use").

Everything that is learnt is `replayed(labels)`, so removing a label undoes it.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from capd_protos.types import LearntEntry, RoutingLabel, Score

HIGHEST = 0.5
"""Of an offset in all. With a threshold of .65 no message is activated under a score of .53."""
LOWEST = -2.0
MOST_OF_A_PART = 0.3
"""Of the part for all, that for a capability, and that for one in a project, upwards."""
MOST_BY_CALLS = 0.15
"""As far as calls alone lift the last two. What a model calls, a server's words may have led it to:
a call brings the part for all back to zero at most."""
STEP_UP = 0.15
"""For each time that a capability was wanted, for itself and in its project. This and the next two
are from `bench/routing_learning.py`, by writers that its tables leave out."""
STEP_DOWN = 0.15
"""Times the score of what was switched off."""
STEP_OF_ALL = 0.1
"""Times how far the score was from what was right."""
PLAUSIBLE = 0.02
"""Score under which a message does not speak of a capability."""

MOST_LABELS = 500
MOST_OF_ONE = 40
"""Labels of one capability: what is used most must not push out the rest."""
LONGEST_KEPT = 180 * 86400.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """The offsets that result from labels."""

    shared: float = 0.0
    capabilities: Mapping[str, float] = field(default_factory=dict)
    projects: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By project and capability."""

    def offset(self, capability: str, project: str = "") -> float:
        """Return the offset that is added to a capability's logit in a project, within limits."""
        own = self.capabilities.get(capability, 0.0)
        here = self.projects.get((project, capability), 0.0) if project else 0.0
        return min(HIGHEST, max(LOWEST, self.shared + own + here))

    def wanted_in(self, project: str) -> frozenset[str]:
        """Return the capabilities that were wanted in a project."""
        return frozenset(
            id_ for (where, id_), here in self.projects.items() if where == project and here > 0
        )


NOTHING = Learnt()


def project_mark(path: str) -> str:
    """Return the project's mark in labels: 16 hex digits of the SHA-256 of its path."""
    return hashlib.sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:16] if path else ""


def lowest_activated(threshold: float) -> float:
    """Return the score below which no history lets a message reach `threshold`."""
    return threshold / (threshold + (1 - threshold) * math.exp(HIGHEST))


def shifted(ranked: Sequence[Score], learnt: Learnt, project: str) -> list[Score]:
    """Return `ranked` with the offsets of `project` applied, best first.

    Probability that a capability loses goes to "none", so lowering one raises no other.
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
    """Return the offsets after one more label."""
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
            # What was switched on was right, so the bar for all need not go up as far.
            shared = max(shared, min(0.0, shared + STEP_OF_ALL * label.score))
        case "disabled":
            own = max(LOWEST, own - STEP_DOWN * label.score)
            here = 0.0
            shared = max(-MOST_OF_A_PART, shared - STEP_OF_ALL * label.score)
    projects = {**learnt.projects, (label.project, id_): here} if label.project else learnt.projects
    return Learnt(shared, {**learnt.capabilities, id_: own}, projects)


def replayed(labels: Iterable[RoutingLabel]) -> Learnt:
    """Return the offsets that result from labels, oldest first."""
    learnt = NOTHING
    for label in labels:
        learnt = after(learnt, label)
    return learnt


class History:
    """The labels of one machine, oldest first, limited in number and age, and their result."""

    def __init__(self, labels: Iterable[RoutingLabel] = ()) -> None:
        self._labels: list[RoutingLabel] = []
        self.learnt = NOTHING
        self._keep(labels)

    @property
    def labels(self) -> tuple[RoutingLabel, ...]:
        """Everything that has to be saved."""
        return tuple(self._labels)

    def add(self, label: RoutingLabel) -> bool:
        """Add a label; return whether it counts: a message teaches once about a capability."""
        if not 0 <= label.score <= 1 or self._has(label):
            return False
        if self._is_crowded(label):
            self._keep((*self._labels, label))
            return any(each is label for each in self._labels)
        self._labels.append(label)
        self.learnt = after(self.learnt, label)
        return True

    def forget(self, capability: str = "") -> int:
        """Remove the labels of `name` or `tap/name`, or all labels; return how many there were."""
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
        """Return what each capability has learnt, the largest offset first.

        `project` is a `project_mark`.
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
        """Keep what of `labels` is within the bounds, and learn from nothing else."""
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
            # What a person did outlasts what a model called.
            calls = (at for at, each in enumerate(recent) if each.act == "called")
            rest = (at for at, each in enumerate(recent) if each.act != "called")
            dropped = {at for at, _ in zip(chain(calls, rest), range(excess), strict=False)}
            recent = [each for at, each in enumerate(recent) if at not in dropped]
        self._labels = recent
        self.learnt = replayed(recent)
