"""Divides a capability's worth for a message among its tools, if a budget is too small for all."""

from collections.abc import Mapping

from capd_protos.types import WireName

LEAST_RELEVANCE = 0.05
"""The relevance of a tool that no search for the message has found: its capability fits, so the
tool may be needed."""


def shares(
    worth: float, habits: Mapping[WireName, float], relevance: Mapping[WireName, float]
) -> dict[WireName, float]:
    """Return each tool's share of its capability's `worth`. The shares add up to `worth`.

    `worth` is the capability's score for the message, increased if its tools were used lately.
    `habits` has a weight for every tool, which grows with the tool's uses. `relevance` says how
    well a tool fits the message; tools that are missing from it get `LEAST_RELEVANCE`.
    """
    weights = {
        name: max(relevance.get(name, 0.0), LEAST_RELEVANCE) * habit
        for name, habit in habits.items()
    }
    total = sum(weights.values())
    return {name: worth * weight / total for name, weight in weights.items()}
