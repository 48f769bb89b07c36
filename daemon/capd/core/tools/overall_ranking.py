"""Merges capabilities, skills and tools that fit a question into one ranking.

The scores have two scales. A capability's score is a probability. The score of a tool or a skill
combines a cosine with shared words, and is 0.45 or more for a clear hit. On both scales a clear hit
scores higher than a vague one, which is enough to sort them. If a tool's capability has a higher
score, the tool's score is raised by half of the difference: for "read a pdf" the tool of a PDF
converter comes before one that reads any file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["capability", "skill", "tool"]

LOWEST_SHARE = 0.15
"""A match with less than this share of the best score is left out."""
_ORDER: Mapping[Kind, int] = {"capability": 0, "skill": 1, "tool": 2}


@dataclass(frozen=True)
class Match:
    """A capability, skill or tool that fits; `name` is what a person types to use it."""

    kind: Kind
    name: str
    score: float
    description: str = ""
    capabilities: tuple[str, ...] = ()
    """For a tool, the capabilities that grant it."""


def ranked_together(matches: Iterable[Match], limit: int) -> list[Match]:
    """Return at most `limit` of `matches`, the best first.

    With equal scores capabilities come before skills, and skills before tools. A score below 0
    counts as 0. Of two matches with the same kind and name, the better one stays.
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
