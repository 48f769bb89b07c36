"""The scorers, which rank capabilities for a message. The routing profile names one of them.

trigger_mean   mean of the best top_k cosines with the tap's own triggers: the published rule from
               which capd started (docs/design/routing.md)
evidence       calibrated probabilities (`core.routing.evidence`)
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from capd.core.errors import CapdError
from capd.core.routing.evidence import Background, Described, Evidence, Lexicon
from capd.core.routing.gates import Candidate, RoutingProfile, scores
from capd.core.routing.phrases import written_triggers
from capd.core.routing.projection import Projection
from capd_protos.types import CapabilityId, CapabilitySpec, Score

if TYPE_CHECKING:
    from collections.abc import Mapping

    from capd.core.routing.evidence import Vectors

SCORERS = ("trigger_mean", "evidence")


class UnknownScorerError(CapdError):
    """The routing profile names a scorer that does not exist."""


class Scorer(Protocol):
    """Ranks the capabilities of a catalog for a message."""

    def ranked(self, text: str, message: "Vectors", among: Collection[CapabilityId]) -> list[Score]:
        """Return the scores of the capabilities in `among` for a short message, best first.

        `message` is the unit vector of `text`.
        """
        ...

    def ranked_parts(
        self, texts: Sequence[str], vectors: "Sequence[Vectors]", among: Collection[CapabilityId]
    ) -> list[tuple[int, list[Score]]]:
        """Return the indices of the parts of a message that are worth ranking, with their scores.

        `vectors` are the unit vectors of `texts`, all parts of the message. The part with the best
        score decides on the message.
        """
        ...


class TriggerMean:
    """The scorer `trigger_mean`, which compares only with triggers of the tap itself."""

    def __init__(self, candidates: Sequence[Candidate], top_k: int) -> None:
        self._candidates = candidates
        self._top_k = top_k

    def ranked(self, text: str, message: "Vectors", among: Collection[CapabilityId]) -> list[Score]:
        """Return the mean of the `top_k` best cosines of each capability in `among`, best first."""
        del text
        wanted = [candidate for candidate in self._candidates if candidate.id in among]
        return scores(message, wanted, self._top_k)

    def ranked_parts(
        self, texts: Sequence[str], vectors: "Sequence[Vectors]", among: Collection[CapabilityId]
    ) -> list[tuple[int, list[Score]]]:
        """Return the scores of the first part: the published rule knows no passages."""
        return [(0, self.ranked(texts[0], vectors[0], among))]


def texts_of(capability: CapabilitySpec) -> tuple[str, ...]:
    """Return the texts that must be embedded to compare a message with `capability`."""
    description = description_of(capability)
    return (*capability.triggers, *capability.extra_triggers, *([description] * bool(description)))


def description_of(capability: CapabilitySpec) -> str:
    """Return a capability's description in its tap, followed by that in an overlay."""
    return f"{capability.description} {capability.extra_description}".strip()


def scorer(
    profile: RoutingProfile,
    capabilities: Sequence[CapabilitySpec],
    vectors: "Mapping[str, Vectors]",
    background: Sequence[str],
    lexicon: Lexicon | None = None,
) -> Scorer:
    """Return the profile's scorer over `capabilities`.

    `vectors` has unit vectors by text: those of all `background` texts, and those of the
    capabilities' texts as far as they exist. `lexicon` is that of the same capabilities, if it
    exists already.

    Raises:
        UnknownScorerError: there is no scorer of that name.
    """
    if profile.scorer == "trigger_mean":
        return TriggerMean(
            [Candidate(each.id, _rows(each.triggers, vectors)) for each in capabilities],
            profile.top_k,
        )
    if profile.scorer != "evidence":
        raise UnknownScorerError(f"no scorer {profile.scorer!r}: there are {' and '.join(SCORERS)}")
    behind = background_of(background, vectors)
    projection = None
    if profile.projection:
        projection = Projection.from_bytes(profile.projection, behind.vectors.shape[1])
    return Evidence(
        described_all(capabilities, vectors),
        behind,
        profile.weights,
        lexicon,
        meaning=profile.meaning,
        projection=projection,
    )


def background_of(texts: Sequence[str], vectors: "Mapping[str, Vectors]") -> Background:
    """Return the background messages in the form that `evidence` expects."""
    return Background(tuple(texts), _rows(texts, vectors))


def described_all(
    capabilities: Sequence[CapabilitySpec], vectors: "Mapping[str, Vectors]"
) -> list[Described]:
    """Return `capabilities` in the form that `evidence` expects, overlays included."""
    described: list[Described] = []
    for each in capabilities:
        # The triggers that its servers gave come last: `Described.unclaiming` counts them.
        triggers = (*written_triggers(each), *each.tool_triggers)
        text = description_of(each)
        described.append(
            Described(
                each.id,
                triggers,
                text,
                _rows(triggers, vectors),
                vectors.get(text) if text else None,
                sum(trigger in vectors for trigger in each.tool_triggers),
            )
        )
    return described


def _rows(texts: Sequence[str], vectors: "Mapping[str, Vectors]") -> "Vectors":
    import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

    known = [vectors[text] for text in texts if text in vectors]
    return np.stack(known) if known else np.zeros((0, 0), np.float32)
