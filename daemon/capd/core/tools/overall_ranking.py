"""One list of what fits a question: capabilities, skills and tools together.

Their scores are of two kinds. A capability's is how sure routing is of it, a tool's or a skill's is
cosine and words together, in which 0.45 is a clear hit. Both lie between 0 and 1, and what is
clear in one kind is above what is vague in another, which is all that the order needs. A tool of a
capability that fits better than itself is moved half of the way towards it: for "read a pdf" the
converter's tool comes before that which reads any file.
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
    """One thing that fits; `name` is what a person types to have it."""

    kind: Kind
    name: str
    score: float
    description: str = ""
    capabilities: tuple[str, ...] = ()
    """For a tool, the capabilities that grant it."""


def ranked_together(matches: Iterable[Match], limit: int) -> list[Match]:
    """Return the `limit` best, the best first; of equals, capabilities before skills and tools.

    A score below 0 counts as 0. Of two entries of one kind and name the better one stays.
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
