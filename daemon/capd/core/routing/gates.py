"""The checks from a message to a decision: *activate*, *suggest* or *abstain*.

They come in this order, and each abstention carries its reason (docs/design/routing.md):

    disabled, system_content, too_short   the message never reaches the model
    model_not_ready                       the model is not loaded; no message waits for it
    no_candidates                         no capability is compared; the decision counts, by
                                          reason, how many were left out
    below_threshold, below_margin         no clear winner: *suggest*, if some are plausible
    near_tie                              siblings that cannot be told apart: suggest
    already_active                        the winner is on: it counts as used
    missing_secrets, missing_program, domain
                                          the winner cannot be switched on here, and is named

The profile's scorer scores the capabilities (`core.routing.scorers`). Active capabilities compete
as well. If there is a single candidate, the second score counts as 0. `EPSILON` is the rounding
error of float32 sums: a score that is below a limit by less than this counts as reaching the limit.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, get_args

from capd.core.errors import CapdError
from capd.core.routing import cleaning
from capd.core.routing.passages import Passages, passages_of
from capd.core.sessions.domains import is_inside
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    Decision,
    DecisionOutcome,
    DecisionReason,
    Score,
    UnusableCapability,
    UnusableReason,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

EPSILON = 1e-6
TOP_SHOWN = 5
MOST_SUGGESTED = 3
UNUSABLE: tuple[UnusableReason, ...] = get_args(UnusableReason)
"""Reasons for which a capability cannot be switched on, but is ranked all the same, so that the
decision can name it. What policy denies is not ranked, and is never named."""
NOTHING_LACKS: Mapping[CapabilityId, tuple[str, ...]] = {}


class ProfileMismatchError(CapdError):
    """The routing profile was calibrated for another model than the one that is loaded."""


@dataclass(frozen=True, slots=True)
class RoutingProfile:
    """The constants of routing, and the embedding model for which they were computed."""

    model: str
    quantisation: str
    pooling: str
    threshold: float
    """The lowest score with which a capability is activated."""
    margin: float
    """The least difference between the best score and the second."""
    top_k: int
    """For `trigger_mean`: how many of the best cosines are averaged."""
    revision: str = ""
    """The revision of the model; empty if the constants hold for every revision."""
    scorer: str = "trigger_mean"
    weights: Mapping[str, float] = field(default_factory=dict)
    """The weight of each kind of evidence, for the scorer `evidence`."""
    meaning: tuple[float, ...] = ()
    """For `evidence`: the weight of each dimension of a message's vector as evidence for "none"."""
    projection: bytes = b""
    """For `evidence`: the learnt map of vectors (`core.routing.projection`); empty for none."""
    adapter: str = ""
    """The sha256 of the low-rank changes of the embedding model; empty if it has none."""
    activate_at: float = 0.0
    """The lowest sum of all scores with which the best capability is activated. With a lower sum,
    the message may want no capability at all."""
    suggest_at: float = float("inf")
    """If there is no clear winner: the lowest sum of all scores with which the best are suggested.
    """
    suggest_each: float = 0.0
    """A capability with a lower score is not suggested."""
    priors: Mapping[str, float] = field(default_factory=dict)
    """The weight of each of `core.routing.priors.PRIORS`; a prior without a weight is off."""
    lowest_hit: float = 0.2
    """The tool `capability`, action `discover`, shows the capabilities above this score
    (docs/design/routing.md)."""

    def check(
        self, model: str, quantisation: str, pooling: str, revision: str = "", adapter: str = ""
    ) -> None:
        """Check that the loaded model is the one that the constants were calibrated for.

        The arguments describe the loaded model; `adapter` is the sha256 of its low-rank changes.
        `revision` and `adapter` are compared only if the profile has them.

        Raises:
            ProfileMismatchError: one of the compared values differs.
        """
        mine = [self.model, self.quantisation, self.pooling]
        theirs = [model, quantisation, pooling]
        if self.revision:
            mine.append(self.revision)
            theirs.append(revision)
        if self.adapter:
            mine.append(self.adapter)
            theirs.append(adapter)
        if mine != theirs:
            raise ProfileMismatchError(
                f"the routing profile is for {'/'.join(mine)}, the loaded model is "
                f"{'/'.join(theirs)}: a profile holds for one model only"
            )


# With this model the threshold 0.45 has twice the recall of the published 0.55, and 2.4 % wrong
# activations, on messages that were written without looking at triggers.
MINILM_INT8 = RoutingProfile(
    model="sentence-transformers/all-MiniLM-L6-v2",
    quantisation="int8 weights and activations",
    pooling="mean",
    threshold=0.45,
    margin=0.08,
    top_k=3,
)

PUBLISHED = replace(MINILM_INT8, threshold=0.55)
"""The constants that `trigger_mean` was first published with."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A capability that a message may mean. `triggers` has a unit vector in each row."""

    id: CapabilityId
    triggers: "Vectors"


@dataclass(frozen=True)
class Eligible:
    """The capabilities that a message may switch on in a session.

    It also has how many were left out for each reason.
    """

    capabilities: tuple[CapabilitySpec, ...]
    left_out: dict[str, int]
    unusable: tuple[UnusableCapability, ...] = ()
    """The capabilities that were left out for a reason in `UNUSABLE`."""

    @cached_property
    def ids(self) -> frozenset[CapabilityId]:
        """The ids of the capabilities that may be activated."""
        return frozenset(each.id for each in self.capabilities)

    @cached_property
    def ranked_ids(self) -> frozenset[CapabilityId]:
        """The ids of all capabilities to rank, also of those that cannot be switched on."""
        return self.ids | frozenset(each.id for each in self.unusable)


def fingerprint(text: str) -> str:
    """Return the text that stands for a message in records: 16 hex digits of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def before_model(text: str, *, is_enabled: bool) -> Decision | Passages:
    """Return a decision to abstain if a message needs no routing, else the message's parts.

    `is_enabled` says that routing is on in the session.
    """
    if not is_enabled:
        return Decision("abstain", "disabled", fingerprint=fingerprint(text))
    words, unfit = cleaning.own_words(text)
    if unfit is not None:
        return Decision("abstain", unfit, fingerprint=fingerprint(text))
    return passages_of(words)


def eligible(
    capabilities: Iterable[CapabilitySpec],
    domain: str,
    keys: Collection[str],
    denied: Collection[CapabilityId] = (),
    lacking: Mapping[CapabilityId, tuple[str, ...]] = NOTHING_LACKS,
) -> Eligible:
    """Return the capabilities that a message may activate in a session.

    `domain` is the session's domain, and `keys` are the names of the secrets that it has. `denied`
    are the capabilities that the session's policy denies as a whole. `lacking` has, by capability,
    the programs that are needed and not installed.
    """
    kept: list[CapabilitySpec] = []
    left_out: Counter[str] = Counter()
    unusable: list[UnusableCapability] = []
    for capability in capabilities:
        reason = _why_not(capability, domain, keys, denied)
        programs = lacking.get(capability.id, ())
        if not reason and programs:
            reason = "missing_program"
        if not reason:
            kept.append(capability)
            continue
        left_out[reason] += 1
        for each in UNUSABLE:
            if each != reason:
                continue
            missing = tuple(key for key in capability.wanted_keys if key not in keys)
            unusable.append(
                UnusableCapability(
                    capability.id,
                    each,
                    missing if each == "missing_secrets" else (),
                    programs if each == "missing_program" else (),
                )
            )
    return Eligible(tuple(kept), dict(left_out), tuple(unusable))


def _why_not(
    capability: CapabilitySpec, domain: str, keys: Collection[str], denied: Collection[CapabilityId]
) -> str:
    if any(server.transport == "builtin" for server in capability.servers):
        return "builtin_unsupported"
    if not capability.servers and not capability.requires:
        return "nothing_to_activate"
    if not is_inside(domain, capability.domains):
        return "domain"
    if capability.id in denied:
        return "policy"
    if any(key not in keys for key in capability.wanted_keys):
        return "missing_secrets"
    return ""


def scores(message: "Vectors", candidates: Sequence[Candidate], top_k: int) -> list[Score]:
    """Return the score of every candidate, best first; equal scores keep the order of `candidates`.

    A score is the mean of the `top_k` largest cosines of `message`, a unit vector, with the
    candidate's triggers; 0 if it has none.
    """
    import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

    if not candidates:
        return []
    counts = [len(candidate.triggers) for candidate in candidates]
    stacked = np.concatenate([c.triggers.reshape(-1, message.shape[0]) for c in candidates])
    cosines = stacked @ message
    ranked: list[Score] = []
    at = 0
    for candidate, count in zip(candidates, counts, strict=True):
        best = np.sort(cosines[at : at + count])[::-1][:top_k]
        ranked.append(Score(candidate.id, float(best.mean()) if count else 0.0))
        at += count
    return sorted(ranked, key=lambda score: -score.score)


def decide(
    ranked: Sequence[Score], active: Collection[CapabilityId], profile: RoutingProfile
) -> Decision:
    """Return the decision on a message; `ranked` has the scores of capabilities, best first.

    The result has neither a fingerprint nor counts of filtered capabilities; the caller adds them.
    """
    top = tuple(ranked[:TOP_SHOWN])
    if not ranked:
        return Decision("abstain", "no_candidates")
    best = ranked[0].score
    second = ranked[1].score if len(ranked) > 1 else 0.0
    is_wanting = sum(score.score for score in ranked) >= profile.activate_at - EPSILON
    if best < profile.threshold - EPSILON or not is_wanting:
        return _unclear("below_threshold", ranked, active, profile)
    if best - second < profile.margin - EPSILON:
        return _unclear("below_margin", ranked, active, profile)
    if ranked[0].id in active:
        return Decision("abstain", "already_active", id=ranked[0].id, top=top)
    return Decision("activate", id=ranked[0].id, top=top)


def _unclear(
    reason: DecisionReason,
    ranked: Sequence[Score],
    active: Collection[CapabilityId],
    profile: RoutingProfile,
) -> Decision:
    """Return a decision that suggests the plausible capabilities that are off, or abstains.

    There was no clear winner, for the reason `reason`.
    """
    top = tuple(ranked[:TOP_SHOWN])
    is_plausible = sum(score.score for score in ranked) >= profile.suggest_at - EPSILON
    suggested = tuple(
        score.id
        for score in ranked[:MOST_SUGGESTED]
        if is_plausible and score.score >= profile.suggest_each and score.id not in active
    )
    outcome: DecisionOutcome = "suggest" if suggested else "abstain"
    return Decision(outcome, reason, top=top, suggested=suggested)
