"""A person's limits on automatic activation: never, or only above a score.

They are applied last, after every other gate. A capability that they stop is suggested instead.
"""

from collections.abc import Iterable

import msgspec

from capd.core.routing.gates import EPSILON
from capd_protos.types import CapabilityRestriction, Decision

REASON = "set_by_user"


def held_back(decision: Decision, bars: Iterable[CapabilityRestriction]) -> Decision:
    """Return a decision with the user's limits applied."""
    if decision.outcome != "activate" or decision.id is None:
        return decision
    bar = next((bar for bar in bars if bar.id == decision.id), None)
    score = next((each.score for each in decision.top if each.id == decision.id), 0.0)
    if bar is None or (bar.is_automatic and score >= bar.threshold - EPSILON):
        return decision
    return msgspec.structs.replace(
        decision, outcome="suggest", reason=REASON, id=None, suggested=(decision.id,)
    )
