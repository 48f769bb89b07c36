"""What speaks for each capability and for none, and the probability that follows: `evidence`.

A message is compared with a catalogue in a few ways, each of which is one number a capability
(`CAPABILITY_EVIDENCE`); a few more speak for "none" (`NONE_EVIDENCE`). Weighted sums of them are
the logits of a softmax over capabilities and "none". The weights come from `core.calibration`,
so a score is a probability, and one threshold serves every catalogue.

How alike a capability's triggers are to messages that want nothing differs from one to another: so
a catalogue's evidence is measured in units of its own mean and deviation over background messages.
A background message that nearly repeats a trigger is ignored for that catalogue.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capd.core.lexical import Bm25, Coverage, Ngrams, words
from capd.core.routing.manner import SIGNS, signs
from capd_protos.types import CapabilityId, Score

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]
    Numbers = npt.NDArray[np.float64]

CAPABILITY_EVIDENCE = (
    "triggers",
    "triggers_z",
    "bm25",
    "ngrams",
    "description_z",
    "nearest",
    "phrases",
    "phrases_z",
    "coverage",
)
NONE_EVIDENCE = ("bias", "background", "nearest_background", *SIGNS, "length")

SHARPNESS = 5.0
"""Sharpness of the log-mean-exp over a capability's triggers: between their mean and their best."""
PHRASE_SHARPNESS = 0.7
"""The same if each phrase is compared with its own similarity to the background."""
BM25_HALF = 6.0
CLAIMED = 0.75
"""Cosine with a trigger from which a background message belongs to the catalogue."""
NEAREST = 3
# Cosines of a sentence model with unrelated texts spread by 0.05 to 0.1; a catalogue of one odd
# trigger may have almost no spread, and would find everything extraordinary.
SMALLEST_DEVIATION = 0.03
LARGEST_Z = 12.0
# In units of the phrases' deviations, which are that much larger than cosines.
SMALLEST_PHRASE_DEVIATION = 0.1
LARGEST_PHRASE_Z = 40.0


@dataclass(frozen=True, slots=True)
class Described:
    """A capability as messages are compared with it: its texts, and their unit vectors."""

    id: CapabilityId
    triggers: tuple[str, ...]
    description: str
    trigger_vectors: "Vectors"
    description_vector: "Vectors | None" = None


@dataclass(frozen=True, slots=True)
class Background:
    """Messages that need no tool, and their unit vectors."""

    texts: tuple[str, ...]
    vectors: "Vectors"


@dataclass(frozen=True, slots=True)
class MessageEvidence:
    """The evidence of one message, in the order of the two lists of names."""

    capabilities: "Numbers"
    none: "Numbers"


class EvidenceIndex:
    """A catalogue, prepared for comparison with messages."""

    def __init__(self, described: Sequence[Described], background: Background) -> None:
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

        # A capability without triggers is found only by its description.
        self.ids = tuple(each.id for each in described)
        texts = [each.triggers or (each.description,) for each in described]
        dimensions = background.vectors.shape[1]
        zero = np.zeros(dimensions, np.float32)
        rows = [
            each.trigger_vectors.reshape(-1, dimensions)
            if each.triggers
            else _or(each.description_vector, zero).reshape(1, -1)
            for each in described
        ]
        self._counts = np.array([len(row) for row in rows])
        self._starts = np.concatenate([[0], np.cumsum(self._counts)[:-1]]).astype(np.intp)
        self._triggers = np.concatenate(rows) if rows else np.zeros((0, dimensions), np.float32)
        self._descriptions = np.array(
            [_or(each.description_vector, zero) for each in described], np.float32
        ).reshape(-1, dimensions)
        self._has_description = np.array(
            [each.description_vector is not None for each in described], bool
        )
        documents = [
            words(" ".join((*each.triggers, each.description, str(each.id.name))))
            for each in described
        ]
        self._bm25 = Bm25(documents)
        self._coverage = Coverage(documents, [words(text) for text in background.texts])
        self._ngrams = Ngrams([text for row in texts for text in row])
        self._background = background.vectors
        if len(self._triggers):
            unclaimed = (self._background @ self._triggers.T).max(axis=1) < CLAIMED
            self._background = self._background[unclaimed]
        cosines = self._background @ self._triggers.T
        self._each_scale = _scale(cosines)
        self._trigger_scale = _scale(self._pooled(cosines, SHARPNESS))
        self._phrase_scale = _scale(
            self._pooled(_against(cosines, self._each_scale), PHRASE_SHARPNESS),
            SMALLEST_PHRASE_DEVIATION,
        )
        self._description_scale = _scale(self._background @ self._descriptions.T)

    def found(self, text: str, message: "Vectors") -> MessageEvidence:
        """Return the evidence for a message of this text and unit vector."""
        import numpy as np  # noqa: PLC0415 - as above

        terms = words(text)
        cosines = self._triggers @ message
        triggers = self._pooled(cosines, SHARPNESS)
        phrases = self._pooled(_against(cosines, self._each_scale), PHRASE_SHARPNESS)
        descriptions = _standardised(self._descriptions @ message, self._description_scale)
        bm25 = self._bm25.scores(terms)
        nearest = np.sort(self._background @ message)[::-1][:NEAREST]
        return MessageEvidence(
            np.column_stack(
                [
                    triggers,
                    _standardised(triggers, self._trigger_scale),
                    bm25 / (bm25 + BM25_HALF),
                    self._best(self._ngrams.similarities(text)),
                    descriptions * self._has_description,
                    self._best(cosines),
                    phrases,
                    _standardised(phrases, self._phrase_scale, LARGEST_PHRASE_Z),
                    self._coverage.shares(terms),
                ]
            ).astype(np.float64),
            np.array(
                [
                    1.0,
                    nearest.mean() if len(nearest) else 0.0,
                    nearest[0] if len(nearest) else 0.0,
                    *signs(text),
                    math.log1p(len(terms)),
                ],
                np.float64,
            ),
        )

    def _pooled(self, values: "Vectors", sharpness: float) -> "Vectors":
        """Return the log-mean-exp of each capability's phrases, which are the last axis."""
        import numpy as np  # noqa: PLC0415 - as above

        if not values.shape[-1]:
            return values
        sums = np.add.reduceat(np.exp(sharpness * values), self._starts, axis=-1)
        pooled: Vectors = (np.log(sums / self._counts) / sharpness).astype(np.float32)
        return pooled

    def _best(self, values: "Vectors") -> "Vectors":
        """Return the best of each capability's phrases."""
        import numpy as np  # noqa: PLC0415 - as above

        best: Vectors = np.maximum.reduceat(values, self._starts) if len(values) else values
        return best


class Evidence:
    """The scorer `evidence`: a calibrated probability for each capability."""

    def __init__(
        self,
        described: Sequence[Described],
        background: Background,
        weights: Mapping[str, float],
    ) -> None:
        import numpy as np  # noqa: PLC0415 - as above

        self._index = EvidenceIndex(described, background)
        self._weights = np.array([weights[name] for name in CAPABILITY_EVIDENCE])
        self._none_weights = np.array([weights[name] for name in NONE_EVIDENCE])

    def ranked(self, text: str, message: "Vectors", among: Collection[CapabilityId]) -> list[Score]:
        """Return the probabilities of the capabilities `among`, best first."""
        import numpy as np  # noqa: PLC0415 - as above

        found = self._index.found(text, message)
        rows = [row for row, id_ in enumerate(self._index.ids) if id_ in among]
        if not rows:
            return []
        logits = np.append(
            found.capabilities[rows] @ self._weights, found.none @ self._none_weights
        )
        raised = np.exp(logits - logits.max())
        probabilities = (raised / raised.sum())[:-1]
        order = np.argsort(-probabilities, kind="stable")
        return [Score(self._index.ids[rows[at]], float(probabilities[at])) for at in order]


def _or(vector: "Vectors | None", otherwise: "Vectors") -> "Vectors":
    return otherwise if vector is None else vector


def _scale(values: "Vectors", smallest: float = SMALLEST_DEVIATION) -> "tuple[Vectors, Vectors]":
    """Return mean and deviation of each column, the latter bounded from below."""
    import numpy as np  # noqa: PLC0415 - as above

    if not len(values):
        zeros = np.zeros(values.shape[1], np.float32)
        return zeros, zeros + np.float32(smallest)
    return values.mean(axis=0), np.maximum(values.std(axis=0), np.float32(smallest))


def _against(values: "Vectors", scale: "tuple[Vectors, Vectors]") -> "Vectors":
    against: Vectors = (values - scale[0]) / scale[1]
    return against


def _standardised(
    values: "Vectors", scale: "tuple[Vectors, Vectors]", largest: float = LARGEST_Z
) -> "Vectors":
    import numpy as np  # noqa: PLC0415 - as above

    limited: Vectors = np.clip(_against(values, scale), -largest, largest)
    return limited
