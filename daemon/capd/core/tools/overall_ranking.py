"""Merges capabilities, skills and tools that fit a question into one ranking.

There are two kinds of scores. A capability's score is a probability; the score of a tool or a skill
combines cosine and words, and 0.45 is a clear hit. Both are between 0 and 1, and a clear hit of one
kind is above a vague hit of the other, which is enough for an order. If a tool's capability has a
higher score, the tool's score is raised by half of the difference: for "read a pdf" the converter's
tool comes before one that reads any file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["capability", "skill", "tool"]

LOWEST_SHARE = 0.15
"""What has less of the best one's score is left out, unless nothing else is found."""
_ORDER: Mapping[Kind, int] = {"capability": 0, "skill": 1, "tool": 2}


@dataclass(frozen=True)
class Match:
    """One thing that fits; `name` is what a person types to use it."""

    kind: Kind
    name: str
    score: float
    description: str = ""
    capabilities: tuple[str, ...] = ()
    """For a tool, the capabilities that grant it."""


def ranked_together(matches: Iterable[Match], limit: int) -> list[Match]:
    """Return the `limit` best, the best first; of equals, capabilities before skills and tools.

    A score below 0 counts as 0. If two entries have the same kind and name, the better one stays.
    """
    found = list(matches)
    capabilities = {each.name: each.score for each in found if each.kind == "capability"}
    best: dict[tuple[Kind, str], Match] = {}
    for each in found:
        lifted = _lifted(each, capabilities)
        key = (lifted.kind, lifted.name)
        if key not in best or best[key].score < lifted.score:
            best[key] = lifted
    ordered = sorted(best.values(), key=lambda each: (-each.score, _ORDER[each.kind], each.name))
    if not ordered:
        return []
    least = ordered[0].score * LOWEST_SHARE
    return [each for each in ordered if each.score >= least][:limit]


def _lifted(match: Match, capabilities: Mapping[str, float]) -> Match:
    own = max(match.score, 0.0)
    of_capability = max((capabilities.get(name, 0.0) for name in match.capabilities), default=0.0)
    score = (own + of_capability) / 2 if match.kind == "tool" and of_capability > own else own
    return Match(match.kind, match.name, score, match.description, match.capabilities)
