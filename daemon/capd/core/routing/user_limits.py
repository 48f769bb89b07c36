"""A person's limits on automatic activation of a capability: never, or only above a score.

They are applied last, to a decision that activates. If a limit forbids it, the capability is
suggested instead.
"""

from collections.abc import Iterable

import msgspec

from capd.core.routing.gates import EPSILON
from capd_protos.types import CapabilityRestriction, Decision

REASON = "set_by_user"


def apply_user_limits(decision: Decision, limits: Iterable[CapabilityRestriction]) -> Decision:
    """Return `decision`, or a suggestion of its capability if the user's limits forbid it.

    `limits` say which capabilities are never switched on automatically, or only above a score.
    """
    if decision.outcome != "activate" or decision.id is None:
        return decision
    limit = next((limit for limit in limits if limit.id == decision.id), None)
    score = next((each.score for each in decision.top if each.id == decision.id), 0.0)
    if limit is None or (limit.is_automatic and score >= limit.threshold - EPSILON):
        return decision
    return msgspec.structs.replace(
        decision, outcome="suggest", reason=REASON, id=None, suggested=(decision.id,)
    )
