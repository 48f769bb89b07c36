"""From a cleaned message's vector to a decision: the published rule `trigger_mean`, with gates.

The gates come in a fixed order and each abstention carries its reason (20-routing):

    disabled, system_content, too_short   the message never reaches the model
    model_not_ready                       nothing waits for a model
    no_candidates                         filters left nothing; each is counted
    below_threshold, below_margin         no clear winner
    already_active                        the winner is on: it is touched, nothing else changes

A capability's score is the mean of its best min(top_k, n) cosines. Active capabilities compete;
a single candidate's runner-up is 0. Comparisons are inclusive within `EPSILON`, which absorbs
the rounding of float32 sums.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capd.core import cleaning
from capd.core.errors import CapdError
from capd_protos.types import CapabilityId, CapabilitySpec, Decision, Score

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

EPSILON = 1e-6
TOP_SHOWN = 5

REASONS = (
    "disabled",
    "system_content",
    "too_short",
    "model_not_ready",
    "no_candidates",
    "below_threshold",
    "below_margin",
    "already_active",
)


class ProfileMismatchError(CapdError):
    """The constants were calibrated for another model than the one that is loaded."""


@dataclass(frozen=True, slots=True)
class RoutingProfile:
    """The constants of the decision, together with the model that they hold for."""

    model: str
    quantisation: str
    pooling: str
    threshold: float
    margin: float
    top_k: int

    def check(self, model: str, quantisation: str, pooling: str) -> None:
        """Refuse a model that these constants were not made for.

        Raises:
            ProfileMismatchError: id, quantisation or pooling differ.
        """
        mine = (self.model, self.quantisation, self.pooling)
        theirs = (model, quantisation, pooling)
        if mine != theirs:
            raise ProfileMismatchError(
                f"the routing profile is for {'/'.join(mine)}, the loaded model is "
                f"{'/'.join(theirs)}: a profile holds for one model only"
            )


# 20-routing, "published 0.45/0.08": twice the recall of the published 0.55 for this model at
# 2.4 % wrong activation (measured there on messages written without looking at triggers).
MINILM_INT8 = RoutingProfile(
    model="sentence-transformers/all-MiniLM-L6-v2",
    quantisation="int8 weights",
    pooling="mean",
    threshold=0.45,
    margin=0.08,
    top_k=3,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A capability that may win, with the unit vectors of its triggers (n x dimensions)."""

    id: CapabilityId
    triggers: "Vectors"


@dataclass(frozen=True, slots=True)
class Eligible:
    """What is left after the filters, and how many each filter removed."""

    capabilities: tuple[CapabilitySpec, ...]
    left_out: dict[str, int]


def fingerprint(text: str) -> str:
    """Return what is kept of a message: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def before_model(text: str, *, is_enabled: bool) -> Decision | str:
    """Return the abstention for a message that needs no model, else the cleaned text."""
    if not is_enabled:
        return Decision("abstain", "disabled", fingerprint=fingerprint(text))
    if cleaning.is_system_content(text):
        return Decision("abstain", "system_content", fingerprint=fingerprint(text))
    cleaned = cleaning.clean(text).strip()
    if cleaning.is_too_short(cleaned):
        return Decision("abstain", "too_short", fingerprint=fingerprint(text))
    return cleaned


def eligible(
    capabilities: Iterable[CapabilitySpec], domain: str, keys: Collection[str]
) -> Eligible:
    """Return the capabilities that a session of `domain` with values for `keys` may activate."""
    kept: list[CapabilitySpec] = []
    left_out: Counter[str] = Counter()
    for capability in capabilities:
        if any(server.transport == "builtin" for server in capability.servers):
            left_out["builtin_unsupported"] += 1
        elif not capability.servers and not capability.requires:
            left_out["nothing_to_activate"] += 1
        elif domain and capability.domains and domain not in capability.domains:
            left_out["domain"] += 1
        elif any(key not in keys for key in capability.wanted_keys):
            left_out["missing_secrets"] += 1
        else:
            kept.append(capability)
    return Eligible(tuple(kept), dict(left_out))


def scores(message: "Vectors", candidates: Sequence[Candidate], top_k: int) -> list[Score]:
    """Return every candidate's score for the unit vector `message`, best first.

    Ties keep the order of `candidates`.
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
    """Return the decision for scores in falling order; fingerprint and counts are the caller's."""
    top = tuple(ranked[:TOP_SHOWN])
    if not ranked:
        return Decision("abstain", "no_candidates")
    best = ranked[0].score
    second = ranked[1].score if len(ranked) > 1 else 0.0
    if best < profile.threshold - EPSILON:
        return Decision("abstain", "below_threshold", top=top)
    if best - second < profile.margin - EPSILON:
        return Decision("abstain", "below_margin", top=top)
    if ranked[0].id in active:
        return Decision("abstain", "already_active", id=ranked[0].id, top=top)
    return Decision("activate", id=ranked[0].id, top=top)
