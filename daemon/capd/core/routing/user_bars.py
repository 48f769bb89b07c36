"""What a person has set on switching a capability on by a message: not at all, or from a score on.

It is asked last, after every other gate: what it holds back is suggested in its place.
"""

from collections.abc import Iterable

import msgspec

from capd.core.routing.gates import EPSILON
from capd_protos.types import CapabilityRestriction, Decision

REASON = "set_by_user"


def held_back(decision: Decision, bars: Iterable[CapabilityRestriction]) -> Decision:
    """Return a decision as the user's own bars leave it."""
    if decision.outcome != "activate" or decision.id is None:
        return decision
    bar = next((bar for bar in bars if bar.id == decision.id), None)
    score = next((each.score for each in decision.top if each.id == decision.id), 0.0)
    if bar is None or (bar.is_automatic and score >= bar.threshold - EPSILON):
        return decision
    return msgspec.structs.replace(
        decision, outcome="suggest", reason=REASON, id=None, suggested=(decision.id,)
    )
