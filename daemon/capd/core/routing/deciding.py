"""Decides on a message from its text, its vector, and the facts of its session.

    parts ──> scorer ──> priors ──> learnt offsets ──> gates
          ──> whole trigger ──> near tie ──> unusable winner

The scorer ranks the capabilities for each part of a long message (`core.routing.passages`). The
part with the highest score counts.

A capability that a session cannot use, because a key or a program is missing or because of its
domain, is ranked with the rest. If it wins, the decision names it and nothing is switched on: the
second best is not what the user asked for. The registry and `capd eval` both use `decided`.

These steps are for the scorer `evidence`. `trigger_mean` is the published rule from which capd
started. It ranks only usable capabilities; with it, only priors and gates follow.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from capd.core.routing import gates, learning, priors
from capd.core.routing.evidence import Lexicon
from capd.core.routing.gates import EPSILON, MOST_SUGGESTED, Eligible, RoutingProfile
from capd.core.routing.learning import Learnt
from capd.core.routing.passages import Passages
from capd.core.routing.phrases import Phrases
from capd.core.routing.scorers import Scorer, described_all, scorer
from capd.core.routing.siblings import Siblings
from capd_protos.types import CapabilityId, CapabilitySpec, Decision, Score, UnusableCapability

if TYPE_CHECKING:
    from capd.core.routing.evidence import Vectors

WHOLE_RULES = "evidence"
"""The scorer to which all rules of this module apply."""
AS_NEAR = 0.9
"""A message that is one capability's trigger activates that capability unless another one has a
higher score, by a factor of more than 1 / `AS_NEAR`."""
MOST_ALTERNATIVES = 6
"""The most capabilities that are suggested if a message leaves open which of several alternatives
is meant. The model is told of as many of these as fit into 60 tokens."""
WORTH_NAMING = 0.1
"""An unusable capability with at least this score is named beside one that is switched on."""


@dataclass(frozen=True, slots=True)
class CatalogWords:
    """The words of a catalog's texts, prepared for comparison. They need no vectors."""

    phrases: Phrases
    siblings: Siblings
    lexicon: Lexicon | None = None
    """The words that the scorer compares; None if it compares none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything about a catalog that decisions on messages need, computed in advance."""

    scorer: Scorer
    words: CatalogWords


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The facts about a session and its machine that a decision depends on, besides the message."""

    eligible: Eligible
    active: Collection[CapabilityId] = ()
    favoured: Mapping[str, Collection[CapabilityId]] = field(default_factory=dict)
    """The capabilities that each active prior favours."""
    learnt: Learnt = learning.NOTHING
    """What routing has learnt on this machine."""
    project: str = ""
    """`learning.project_mark` of the session's project; empty if it has none."""


def catalog_words(
    profile: RoutingProfile, capabilities: Sequence[CapabilitySpec], background: Sequence[str]
) -> CatalogWords:
    """Return the words of `capabilities`; `background` are messages that need no tool."""
    lexicon = None
    if profile.scorer == WHOLE_RULES:
        lexicon = Lexicon(described_all(capabilities, {}), background)
    return CatalogWords(Phrases(capabilities), Siblings(capabilities), lexicon)


def comparison(
    profile: RoutingProfile,
    capabilities: Sequence[CapabilitySpec],
    vectors: "Mapping[str, Vectors]",
    background: Sequence[str],
    words: CatalogWords | None = None,
) -> Comparison:
    """Return `capabilities` prepared for comparison with messages.

    `vectors` has unit vectors by text; texts that are not embedded yet are missing. `background`
    are messages that need no tool. `words` is the result of `catalog_words` for the same
    capabilities, if it exists already.
    """
    words = words or catalog_words(profile, capabilities, background)
    return Comparison(scorer(profile, capabilities, vectors, background, words.lexicon), words)


def decided(
    message: Passages,
    vectors: "Sequence[Vectors]",
    compared: Comparison,
    profile: RoutingProfile,
    known: Circumstances,
) -> Decision:
    """Return the decision on a message; `vectors` are the unit vectors of its parts."""
    part, ranked = ranked_best(message, vectors, compared, profile, known)
    decision = concluded(message.text, ranked, compared, profile, known)
    return msgspec.structs.replace(decision, part=part)


def ranked_best(
    message: Passages,
    vectors: "Sequence[Vectors]",
    compared: Comparison,
    profile: RoutingProfile,
    known: Circumstances,
) -> tuple[int, list[Score]]:
    """Return the index of the part of a message that has the highest score, and its ranked scores.

    Without candidates the result is 0 and an empty list.
    """
    eligible = known.eligible
    among = eligible.ranked_ids if profile.scorer == WHOLE_RULES else eligible.ids
    part, best = 0, list[Score]()
    for at, ranked in compared.scorer.ranked_parts(message.each, vectors, among):
        # Of two equal parts the first counts. The first of all is the message's beginning and end.
        if not best or (ranked and ranked[0].score > best[0].score):
            part, best = at, ranked
    return part, best


def concluded(
    text: str,
    ranked: Sequence[Score],
    compared: Comparison,
    profile: RoutingProfile,
    known: Circumstances,
) -> Decision:
    """Return the decision on a message; `ranked` has the scorer's scores for it, best first.

    `text` is the whole message, as far as it is compared.
    """
    ranked = priors.shifted(ranked, known.favoured, profile.priors)
    if profile.scorer != WHOLE_RULES:
        return gates.decide(ranked, known.active, profile)
    unusable = {each.id: each for each in known.eligible.unusable}
    ranked = learning.shifted(ranked, known.learnt, known.project)
    decision = gates.decide(ranked, known.active, profile)
    decision = _with_contained_triggers(
        text, decision, ranked, compared.words.phrases, known.active
    )
    decision = _among_siblings(text, decision, ranked, compared.words.siblings, known)
    return _without_unusable(decision, unusable) if unusable else decision


def _among_siblings(
    text: str,
    decision: Decision,
    ranked: Sequence[Score],
    siblings: Siblings,
    known: Circumstances,
) -> Decision:
    """Return `decision`, changed if the winner has siblings that the message may mean as well.

    Then none of the siblings is switched on, and all that may be meant are suggested.
    """
    if decision.outcome == "abstain" or decision.reason == "whole_trigger":
        return decision
    wanted = known.learnt.wanted_in(known.project) if known.project else frozenset()
    here = [each.id for each in ranked if str(each.id) in wanted] if wanted else []
    favoured = {**known.favoured, "learnt": here}
    if decision.outcome == "activate":
        unclear = siblings.unclear(text, ranked, favoured)
        if not unclear:
            return decision
        decision = msgspec.structs.replace(
            decision,
            outcome="suggest",
            reason="near_tie",
            id=None,
            suggested=_off(unclear, known.active),
        )
    alternatives = siblings.left_open(text, ranked, favoured)
    if not alternatives:
        return decision
    suggested = _off((*decision.suggested, *alternatives), known.active, MOST_ALTERNATIVES)
    return msgspec.structs.replace(decision, suggested=suggested)


def _with_contained_triggers(
    text: str,
    decision: Decision,
    ranked: Sequence[Score],
    phrases: Phrases,
    active: Collection[CapabilityId],
) -> Decision:
    """Return `decision`, changed for capabilities whose triggers the message contains.

    If the message as a whole is a trigger of exactly one capability, that one is activated, unless
    another scores clearly higher. If none is activated, those with a contained trigger are
    suggested.
    """
    triggers = phrases.find(text)
    scores = {each.id: each.score for each in ranked}
    whole = [id_ for id_ in triggers.whole if id_ in scores]
    best = ranked[0] if ranked else None
    if len(whole) == 1 and best is not None:
        id_ = whole[0]
        others = max((score for other, score in scores.items() if other != id_), default=0.0)
        if id_ in active:
            return Decision("abstain", "already_active", id=id_, top=decision.top)
        if others * AS_NEAR < scores[id_] + EPSILON:
            return Decision("activate", "whole_trigger", id=id_, top=decision.top)
    if decision.outcome == "activate" or decision.reason == "already_active":
        return decision
    contained = tuple(dict.fromkeys(id_ for id_ in (*whole, *triggers.within) if id_ in scores))
    contained = tuple(sorted(contained, key=lambda id_: -scores[id_]))
    suggested = _off((*contained, *decision.suggested), active)
    if not contained or not suggested:
        return decision
    return msgspec.structs.replace(decision, outcome="suggest", suggested=suggested)


def _off(
    ids: Collection[CapabilityId], active: Collection[CapabilityId], most: int = MOST_SUGGESTED
) -> tuple[CapabilityId, ...]:
    return tuple(id_ for id_ in dict.fromkeys(ids) if id_ not in active)[:most]


def _without_unusable(
    decision: Decision, unusable: Mapping[CapabilityId, UnusableCapability]
) -> Decision:
    """Return `decision` without the capabilities in `unusable`; its field `unusable` names them."""
    won = unusable.get(decision.id) if decision.outcome == "activate" and decision.id else None
    if won is not None:
        return msgspec.structs.replace(
            decision, outcome="abstain", reason=won.reason, id=None, unusable=(won,)
        )
    if decision.outcome == "activate":
        named = [
            unusable[each.id]
            for each in decision.top[:MOST_SUGGESTED]
            if each.id in unusable and each.score >= WORTH_NAMING
        ]
        return msgspec.structs.replace(decision, unusable=tuple(named))
    suggested = tuple(id_ for id_ in decision.suggested if id_ not in unusable)
    return msgspec.structs.replace(
        decision,
        outcome="suggest" if suggested else "abstain",
        suggested=suggested,
        unusable=tuple(unusable[id_] for id_ in decision.suggested if id_ in unusable)[
            :MOST_SUGGESTED
        ],
    )
