"""Divides a capability's worth among its tools, if not all of them fit."""

from collections.abc import Mapping

from capd_protos.types import WireName

LEAST_RELEVANCE = 0.05
"""The relevance of a tool that the message does not mention: its capability is wanted all the same.
"""


def shares(
    worth: float, habits: Mapping[WireName, float], relevance: Mapping[WireName, float]
) -> dict[WireName, float]:
    """Return each tool's share of its capability's `worth`; the shares add up to all of it.

    `habits` contains every tool, and grows with its uses. `relevance` says how well a ranked tool
    fits the message.
    """
    weights = {
        name: max(relevance.get(name, 0.0), LEAST_RELEVANCE) * habit
        for name, habit in habits.items()
    }
    total = sum(weights.values())
    return {name: worth * weight / total for name, weight in weights.items()}
