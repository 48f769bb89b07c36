"""How much each tool of a capability is worth, where not all of them have room."""

from collections.abc import Mapping

from capd_protos.types import WireName

LEAST_RELEVANCE = 0.05
"""Of a tool that the message does not speak of: the capability is meant all the same."""


def shares(
    worth: float, habits: Mapping[WireName, float], relevance: Mapping[WireName, float]
) -> dict[WireName, float]:
    """Return each tool's share of its capability's `worth`; together they are all of it.

    `habits` has every tool, and grows with its uses. `relevance` is how well a tool fits the
    message, of those that were ranked.
    """
    weights = {
        name: max(relevance.get(name, 0.0), LEAST_RELEVANCE) * habit
        for name, habit in habits.items()
    }
    total = sum(weights.values())
    return {name: worth * weight / total for name, weight in weights.items()}
