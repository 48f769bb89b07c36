"""The scorer `evidence`: computes the probability that a message asks for each capability.

A message is compared with a catalog in several ways. Each gives a number for each capability
(`CAPABILITY_EVIDENCE`), and some give a number for "none", no capability at all (`NONE_EVIDENCE`).
The weighted sums of these numbers are the logits of a softmax over capabilities and "none". The
weights come from `core.routing.calibration`, so a score is a probability, and one threshold serves
every catalog.

Some triggers are nearer than others to messages that want no tool. So a catalog's evidence is
normalised by its mean and deviation over such messages, the background. A background message that
nearly repeats a trigger is ignored for that catalog. Triggers that a server gave itself do not
count for this: otherwise a server with the trigger "thanks, that solved it" would be switched on
whenever somebody says thanks.

Two kinds of cosines are evidence: those of the model's vectors, and those of the same vectors after
a map that was learnt from labelled messages (`core.routing.projection`; `LEARNT_EVIDENCE`). A
profile without a projection has only the first kind.

The message's own vector speaks for or against "none", with one weight for each dimension
(`meaning` in the profile). A complaint about a mail server and a request to send mail share their
subject, and have different vectors.

A trigger without a vector is compared by its words alone. A capability without any vector is
assumed to be as near to a message as capabilities are to background messages on average.

Up to `MOST_EXACT` triggers are compared in float32. If there are more, all are compared in eight
bits, and the nearest capabilities once more in sixteen. This takes half of the memory, and the
decisions are the same (tests/core/routing/test_evidence.py).
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from capd.core.lexical import Bm25, Coverage, Ngrams, words
from capd.core.routing.manner import SIGNS, signs
from capd.core.routing.projection import Projection
from capd.core.routing.sentences import SENTENCE_SIGNS, sentence_signs
from capd.core.routing.standing import LEARNT_STANDING, STANDING, learnt_standing, standing
from capd_protos.types import CapabilityId, Score

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]
    Numbers = npt.NDArray[np.float64]
    Indexes = npt.NDArray[np.intp]

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
_OF_THE_MESSAGE = (
    "bias",
    "background",
    "nearest_background",
    "length",
    "parts",
    *SIGNS,
    *SENTENCE_SIGNS,
)
"""`length` is the logarithm of the number of words. `parts` is the logarithm of the number of parts
that a message has (`core.routing.passages`): if there are many, one may resemble a trigger by
chance."""
NONE_EVIDENCE = (*_OF_THE_MESSAGE, *STANDING)
_LEARNT = ("triggers", "triggers_z", "description_z", "nearest", "phrases", "phrases_z")
LEARNT_EVIDENCE = tuple(f"learnt_{name}" for name in _LEARNT)
"""What a projection adds for a capability: the evidence of `_LEARNT`, from projected vectors."""
_LEARNT_OF_THE_MESSAGE = ("learnt_background", "learnt_nearest_background", "learnt_none")
LEARNT_NONE_EVIDENCE = (*_LEARNT_OF_THE_MESSAGE, *LEARNT_STANDING)
"""What a projection adds for "none"."""

SHARPNESS = 5.0
"""Sharpness of the log-mean-exp over a capability's triggers; 0 would give their mean, infinity the
best of them."""
PHRASE_SHARPNESS = 0.7
"""The sharpness for cosines that are standardised by the cosines with background messages."""
BM25_HALF = 6.0
CLAIMED = 0.75
"""A background message with a higher cosine with a trigger is ignored: it asks for that tool."""
NEAREST = 3
# The cosines of unrelated texts have a deviation of 0.05 to 0.1. In a catalog of one odd trigger
# the deviation may be almost 0, and then every message would seem extraordinary.
SMALLEST_DEVIATION = 0.03
LARGEST_Z = 12.0
MOST_EXACT = 8192
NEAR_BY_MEANING, NEAR_BY_WORDS = 64, 32
"""How many capabilities are compared once more in sixteen bits: the nearest by cosine, and the
nearest by BM25."""
MOST_AGAIN = 2048
"""The most triggers that are compared once more."""
MOST_PARTS, MOST_PARTS_OF_LARGE = 5, 3
"""How many parts of a long message are compared in all ways. The second value is for more than
`MOST_EXACT` triggers. A part takes 1.5 ms with 2,000 triggers, and 10 ms with 40,000. With five
parts, as many decisions are right as with all eleven; with three, 2 to 4 in a hundred fewer."""
MOST_RANKED = 1024
"""The most capabilities that are returned. The others have almost no probability, and sorting ten
thousand takes 20 ms."""
_BLOCK = 512
"""How many rows are converted to float32 at a time, so that they stay in a core's own cache."""
_MEASURED = 1024
"""How many rows are compared with all background messages at a time, for the same reason."""
_FINER = 254
"""Into how many steps the second byte of a number divides one step of the first byte."""
# `SMALLEST_DEVIATION` and `LARGEST_Z` for standardised cosines, which are larger than cosines.
SMALLEST_PHRASE_DEVIATION = 0.1
LARGEST_PHRASE_Z = 40.0


def evidence_names(*, has_projection: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the evidence for a capability, and of that for "none"."""
    if not has_projection:
        return CAPABILITY_EVIDENCE, NONE_EVIDENCE
    return (*CAPABILITY_EVIDENCE, *LEARNT_EVIDENCE), (*NONE_EVIDENCE, *LEARNT_NONE_EVIDENCE)


@dataclass(frozen=True, slots=True)
class Described:
    """The texts of a capability that messages are compared with, and their unit vectors."""

    id: CapabilityId
    triggers: tuple[str, ...]
    description: str
    trigger_vectors: "Vectors"
    """The vectors of those triggers that have one."""
    description_vector: "Vectors | None" = None
    unclaiming: int = 0
    """The number of vectors at the end of `trigger_vectors` whose triggers a server gave itself. No
    background message is ignored because it resembles one of these triggers."""


@dataclass(frozen=True, slots=True)
class Background:
    """Messages that need no tool, and their unit vectors."""

    texts: tuple[str, ...]
    vectors: "Vectors"


@dataclass(frozen=True, slots=True)
class MessageEvidence:
    """The evidence of one message: that of each capability, and that of "none".

    `capabilities` has a row for each capability, with the values of `CAPABILITY_EVIDENCE`, and
    `none` has the values of `NONE_EVIDENCE`. With a projection, those of `LEARNT_EVIDENCE` and
    `LEARNT_NONE_EVIDENCE` follow.
    """

    capabilities: "Numbers"
    none: "Numbers"

    def among(self, rows: "Indexes") -> "MessageEvidence":
        """Return the evidence as if the catalog had only the capabilities in `rows`."""
        if len(rows) == len(self.capabilities):
            return self
        plain, added = self.none[: len(NONE_EVIDENCE)], self.none[len(NONE_EVIDENCE) :]
        return _message_evidence(
            self.capabilities[rows],
            plain[: len(_OF_THE_MESSAGE)],
            added[: len(_LEARNT_OF_THE_MESSAGE)],
        )


class Lexicon:
    """The words and the letters of a catalog's texts, prepared for comparison."""

    def __init__(self, described: Sequence[Described], background: Sequence[str]) -> None:
        documents = [
            words(" ".join((*each.triggers, each.description, str(each.id.name))))
            for each in described
        ]
        # A capability without triggers is found only by its description.
        texts = [each.triggers or (each.description,) for each in described]
        self.bm25 = Bm25(documents)
        self.coverage = Coverage(documents, [words(text) for text in background])
        self.ngrams = Ngrams([text for row in texts for text in row])
        self.starts = _starts([len(row) for row in texts])


class _Rows:
    """Unit vectors that messages are compared with.

    If there are many, each number is kept as two bytes: an approximation in eight bits, with which
    all rows are compared, and the remainder in another eight bits. Together they are exact to
    1 / 32,000 of the row's largest number, which is more precise than float16.
    """

    def __init__(self, groups: "Sequence[Vectors]", dimensions: int) -> None:
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

        self.count = sum(map(len, groups))
        self.is_coarse = self.count > MOST_EXACT
        shape = (self.count, dimensions)
        at = 0
        if not self.is_coarse:
            self._rows = np.empty(shape, np.float32)
            for group in groups:
                self._rows[at : at + len(group)] = group
                at += len(group)
            return
        self._coarse = np.empty(shape, np.int8)
        self._left_over = np.empty(shape, np.int8)
        self._steps = np.empty((self.count, 1), np.float32)
        self._factors = np.empty(self.count, np.float32)
        for rows in _blocks(groups):
            part = slice(at, at + len(rows))
            at += len(rows)
            step = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-9) / 127
            whole = np.round(rows / step)
            self._coarse[part] = whole
            self._left_over[part] = np.round((rows / step - whole) * _FINER)
            self._steps[part] = step
            self._factors[part] = 1 / np.maximum(np.linalg.norm(whole, axis=1), 1e-9)

    def parts(self, size: int = _BLOCK) -> Iterator[slice]:
        """Yield slices of `size` rows that together are all rows."""
        for at in range(0, self.count, size):
            yield slice(at, at + size)

    def exact(self, part: "slice | Indexes") -> "Vectors":
        """Return the rows of `part` as float32, computed from both bytes of each number."""
        import numpy as np  # noqa: PLC0415 - as above

        if not self.is_coarse:
            rows: Vectors = self._rows[part]
            return rows
        exact: Vectors = self._left_over[part].astype(np.float32)
        exact /= _FINER
        exact += self._coarse[part]
        exact *= self._steps[part]
        return exact

    def cosines(self, vectors: "Sequence[Vectors]") -> "list[Vectors]":
        """Return the cosine of each row with each vector; in eight bits if there are many rows."""
        import numpy as np  # noqa: PLC0415 - as above

        if not vectors:
            return []
        if not self.is_coarse:
            return [self._rows @ vector for vector in vectors]
        stacked = np.stack(vectors, axis=1)
        products = np.empty((self.count, len(vectors)), np.float32)
        # One array for all parts, which stays in a core's own cache. A new array for each part may
        # be fetched from the system each time, which takes four times as long as the comparison.
        widened = np.empty((min(_BLOCK, self.count), self._coarse.shape[1]), np.float32)
        for part in self.parts():
            rows = self._coarse[part]
            np.copyto(widened[: len(rows)], rows)
            np.matmul(widened[: len(rows)], stacked, out=products[part])
        return [products[:, at] * self._factors for at in range(len(vectors))]


def _blocks(groups: "Sequence[Vectors]") -> "Iterator[Vectors]":
    """Yield the rows of all groups as float32, about `_BLOCK` at a time."""
    import numpy as np  # noqa: PLC0415 - as above

    together: list[Vectors] = []
    count = 0
    for group in groups:
        together.append(group)
        count += len(group)
        if count >= _BLOCK:
            yield np.concatenate(together, dtype=np.float32)
            together, count = [], 0
    if together:
        yield np.concatenate(together, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class _Scales:
    """Mean and deviation of each kind of evidence over background messages."""

    each: "tuple[Vectors, Vectors]"
    triggers: "tuple[Vectors, Vectors]"
    phrases: "tuple[Vectors, Vectors]"
    description: "tuple[Vectors, Vectors]"


class _Products(NamedTuple):
    """The products of a message's vector with a catalog's vectors."""

    images: "Sequence[Vectors]"
    """The image of the message (`Projection.images`); nothing without a projection."""
    cosines: "Vectors"
    """The cosine with each trigger; in eight bits if there are many triggers."""
    with_image: "Sequence[Vectors]"
    """The product of each trigger with the message's image; nothing without a projection."""
    described: "Vectors"
    """The cosine with each description."""
    described_by_image: "Sequence[Vectors]"
    """The product of each description with the message's image."""


class EvidenceIndex:
    """A catalog's words, vectors and scales, from which each message's evidence is computed."""

    def __init__(
        self,
        described: Sequence[Described],
        background: Background,
        lexicon: Lexicon | None = None,
        projection: Projection | None = None,
    ) -> None:
        """Prepare the catalog. `lexicon` is given if one for the same texts exists already."""
        import numpy as np  # noqa: PLC0415 - as above

        self.ids = tuple(each.id for each in described)
        self.lexicon = lexicon or Lexicon(described, background.texts)
        dimensions = background.vectors.shape[1]
        zero = np.zeros(dimensions, np.float32)
        rows = [
            each.trigger_vectors.reshape(-1, dimensions)
            if each.triggers
            else _or(each.description_vector, zero[:0]).reshape(-1, dimensions)
            for each in described
        ]
        self._has_vectors = np.array([len(row) > 0 for row in rows], bool)
        self._is_whole = bool(self._has_vectors.all())
        rows = [row if len(row) else zero.reshape(1, -1) for row in rows]
        counts = [len(row) for row in rows]
        self._claims = np.concatenate(
            [
                np.arange(count) < count - each.unclaiming
                for count, each in zip(counts, described, strict=True)
            ]
            or [np.zeros(0, bool)]
        )
        self._counts = np.array(counts)
        self._starts = _starts(counts)
        self._rows = _Rows(rows, dimensions)
        self._descriptions = _Rows(
            [_or(each.description_vector, zero).reshape(1, -1) for each in described], dimensions
        )
        self._has_description = np.array(
            [each.description_vector is not None for each in described], bool
        )
        self._background = background.vectors
        self._projection = projection
        self._lengths = self._description_lengths = np.zeros(0, np.float32)
        self._leave_out_claimed()
        self._scales = self._measured(self._background, None)
        known = self._scales.triggers[0][self._has_vectors]
        self._neutral = float(known.mean()) if len(known) else 0.0
        if projection is not None:
            # Rows are not projected: the length of a row's projection and the message's image give
            # the cosine of the two projections.
            self._lengths = np.zeros(self._rows.count, np.float32)
            self._description_lengths = np.zeros(self._descriptions.count, np.float32)
            self._learnt_background = projection.projected(self._background)
            images = projection.images(self._background)
            self._learnt_scales = self._measured(images, projection)
            learnt = self._learnt_scales.triggers[0][self._has_vectors]
            self._learnt_neutral = float(learnt.mean()) if len(learnt) else 0.0

    def _leave_out_claimed(self) -> None:
        """Leave out the background messages that nearly repeat a trigger."""
        import numpy as np  # noqa: PLC0415 - as above

        if self._rows.count:
            nearest = [
                (self._background @ self._rows.exact(rows).T).max(
                    axis=1, where=self._claims[rows], initial=-1.0
                )
                for _, rows in self._groups()
            ]
            self._background = self._background[np.max(nearest, axis=0) < CLAIMED]

    def _measured(self, background: "Vectors", projection: Projection | None) -> _Scales:
        """Return the mean and deviation of each kind of evidence over background messages.

        With a projection, `background` has the images of these messages (`Projection.images`). The
        lengths that triggers and descriptions have after the projection are then stored in
        `_lengths` and `_description_lengths`.
        """

        def cosines_of(some: _Rows, part: slice, lengths: "Vectors") -> "Vectors":
            compared = some.exact(part)
            cosines: Vectors = background @ compared.T
            if projection is not None:
                lengths[part] = projection.lengths(compared)
                cosines /= lengths[part]
            return cosines

        each_scale, trigger_scale, phrase_scale = [], [], []
        for capabilities, rows in self._groups():
            cosines = cosines_of(self._rows, rows, self._lengths)
            own = _scale(cosines)
            starts = self._starts[capabilities] - rows.start
            counts = self._counts[capabilities]
            each_scale.append(own)
            trigger_scale.append(_scale(_pooled(cosines, SHARPNESS, starts, counts)))
            against = _pooled(_against(cosines, own), PHRASE_SHARPNESS, starts, counts)
            phrase_scale.append(_scale(against, SMALLEST_PHRASE_DEVIATION))
        return _Scales(
            _joined(each_scale),
            _joined(trigger_scale),
            _joined(phrase_scale),
            _joined(
                [
                    _scale(cosines_of(self._descriptions, part, self._description_lengths))
                    for part in self._descriptions.parts(_MEASURED)
                ]
            ),
        )

    def _groups(self) -> Iterator[tuple[slice, slice]]:
        """Yield groups of capabilities with the slice of their rows, about `_MEASURED` each."""
        first = 0
        ends = self._starts + self._counts
        for at in range(len(ends)):
            is_last = at + 1 == len(ends)
            if is_last or ends[at + 1] - self._starts[first] > _MEASURED:
                yield slice(first, at + 1), slice(int(self._starts[first]), int(ends[at]))
                first = at + 1

    def found(self, text: str, message: "Vectors", parts: int = 1) -> MessageEvidence:
        """Return the evidence for a message, or for one of `parts` parts of a message.

        `message` is the unit vector of `text`.
        """
        images = self._images([message])
        cosines, *with_image = self._rows.cosines([message, *images])
        described, *described_by_image = self._descriptions.cosines([message, *images])
        compared = _Products(images, cosines, with_image, described, described_by_image)
        return self._found(text, message, parts, compared)

    def found_in_parts(
        self, texts: Sequence[str], vectors: "Sequence[Vectors]"
    ) -> list[tuple[int, MessageEvidence]]:
        """Return the evidence for the parts of a message that are worth ranking.

        `vectors` are the unit vectors of `texts`, which are all parts of a message. The parts worth
        ranking are the first one and those that are nearest to any trigger. The result has the
        index of each with its evidence.
        """
        most = MOST_PARTS_OF_LARGE if self._rows.is_coarse else MOST_PARTS
        if len(texts) <= most:
            return [
                (at, self.found(text, vector, len(texts)))
                for at, (text, vector) in enumerate(zip(texts, vectors, strict=True))
            ]
        cosines = self._rows.cosines(vectors)
        chosen = _promising(cosines, most)
        # All at once: to convert the rows of a large catalog takes as long as two comparisons.
        messages = [vectors[at] for at in chosen]
        images = self._images(messages)
        with_images = self._rows.cosines(images)
        described = self._descriptions.cosines([*messages, *images])
        found = []
        for number, at in enumerate(chosen):
            its = slice(number, number + 1)
            by_image = described[len(chosen) :][its]
            compared = _Products(
                images[its], cosines[at], with_images[its], described[number], by_image
            )
            found.append((at, self._found(texts[at], vectors[at], len(texts), compared)))
        return found

    def _images(self, messages: "Sequence[Vectors]") -> "list[Vectors]":
        if self._projection is None:
            return []
        return [self._projection.images(message) for message in messages]

    def _found(
        self, text: str, message: "Vectors", parts: int, compared: "_Products"
    ) -> MessageEvidence:
        import numpy as np  # noqa: PLC0415 - as above

        terms = words(text)
        bm25 = self.lexicon.bm25.scores(terms)
        images, cosines, with_image, described, described_by_image = compared
        if self._rows.is_coarse:
            self._compare_again(message, cosines, bm25)
            for image, products in zip(images, with_image, strict=True):
                self._compare_again(image, products, bm25)
        triggers, triggers_z, best, phrases, phrases_z = self._compared(
            cosines, self._scales, self._neutral
        )
        descriptions = _standardised(described, self._scales.description)
        nearest = np.sort(self._background @ message)[::-1][:NEAREST]
        columns = [
            triggers,
            triggers_z,
            bm25 / (bm25 + BM25_HALF),
            _best(self.lexicon.ngrams.similarities(text), self.lexicon.starts),
            descriptions * self._has_description,
            best,
            phrases,
            phrases_z,
            self.lexicon.coverage.shares(terms),
        ]
        learnt, learnt_of_message = self._learnt(message, with_image, described_by_image)
        return _message_evidence(
            np.column_stack([*columns, *learnt]).astype(np.float64),
            np.array(
                [
                    1.0,
                    nearest.mean() if len(nearest) else 0.0,
                    nearest[0] if len(nearest) else 0.0,
                    math.log1p(len(terms)),
                    math.log(parts),
                    *signs(text),
                    *sentence_signs(text),
                ],
                np.float64,
            ),
            np.array(learnt_of_message, np.float64),
        )

    def _compared(
        self, cosines: "Vectors", scales: _Scales, neutral: float
    ) -> "tuple[Vectors, ...]":
        """Return `triggers`, `triggers_z`, `nearest`, `phrases` and `phrases_z`.

        `neutral` replaces the cosines of capabilities without vectors.
        """
        import numpy as np  # noqa: PLC0415 - as above

        triggers = self._pooled(cosines, SHARPNESS)
        phrases = self._pooled(_against(cosines, scales.each), PHRASE_SHARPNESS)
        triggers_z = _standardised(triggers, scales.triggers)
        phrases_z = _standardised(phrases, scales.phrases, LARGEST_PHRASE_Z)
        best = _best(cosines, self._starts)
        if not self._is_whole:
            triggers = np.where(self._has_vectors, triggers, neutral)
            best = np.where(self._has_vectors, best, neutral)
            triggers_z, phrases, phrases_z = (
                each * self._has_vectors for each in (triggers_z, phrases, phrases_z)
            )
        return triggers, triggers_z, best, phrases, phrases_z

    def _learnt(
        self,
        message: "Vectors",
        with_image: "Sequence[Vectors]",
        described_by_image: "Sequence[Vectors]",
    ) -> "tuple[list[Vectors], list[float]]":
        """Return the evidence that the projection adds: for each capability, and for "none".

        Both lists are empty without a projection. `with_image` has the product of each trigger with
        the message's image, `described_by_image` that of each description.
        """
        import numpy as np  # noqa: PLC0415 - as above

        if self._projection is None:
            return [], []
        cosines = with_image[0] / self._lengths
        triggers, triggers_z, best, phrases, phrases_z = self._compared(
            cosines, self._learnt_scales, self._learnt_neutral
        )
        projected = self._projection.projected(message)
        descriptions = _standardised(
            described_by_image[0] / self._description_lengths, self._learnt_scales.description
        )
        nearest = np.sort(self._learnt_background @ projected)[::-1][:NEAREST]
        return (
            [
                triggers,
                triggers_z,
                descriptions * self._has_description,
                best,
                phrases,
                phrases_z,
            ],
            [
                float(nearest.mean()) if len(nearest) else 0.0,
                float(nearest[0]) if len(nearest) else 0.0,
                float(projected @ self._projection.none),
            ],
        )

    def _compare_again(self, vector: "Vectors", cosines: "Vectors", bm25: "Vectors") -> None:
        """Replace the cosines of the nearest capabilities' triggers by more exact ones.

        `cosines` were computed from eight-bit numbers, the new ones from sixteen-bit numbers. The
        nearest capabilities are those by `cosines`, and those by `bm25`. At most `MOST_AGAIN`
        triggers, the nearest ones, are compared again.
        """
        import numpy as np  # noqa: PLC0415 - as above

        best = _best(cosines, self._starts)
        # Not `np.unique`, which imports numpy.ma: 1 MB for good.
        is_near = np.zeros(len(best), bool)
        is_near[_largest(best, NEAR_BY_MEANING)] = True
        is_near[_largest(bm25, NEAR_BY_WORDS)] = True
        near = np.flatnonzero(is_near)
        ends = self._starts + self._counts
        again = np.concatenate(
            [np.arange(int(self._starts[at]), int(ends[at])) for at in near.tolist()]
        )
        if len(again) > MOST_AGAIN:
            again = again[_largest(cosines[again], MOST_AGAIN)]
        cosines[again] = self._rows.exact(again) @ vector

    def _pooled(self, values: "Vectors", sharpness: float) -> "Vectors":
        return _pooled(values, sharpness, self._starts, self._counts)


def _promising(cosines: "Sequence[Vectors]", most: int) -> list[int]:
    """Return the indices of the first part of a message and of those nearest to any trigger.

    `cosines` are those of each part with each trigger.
    """
    nearest = [float(each.max(initial=-1)) for each in cosines]
    others = sorted(range(1, len(cosines)), key=lambda at: -nearest[at])
    return [0, *sorted(others[: most - 1])]


def _message_evidence(
    capabilities: "Numbers", of_message: "Numbers", learnt_of_message: "Numbers"
) -> MessageEvidence:
    """Return the evidence of a message.

    `of_message` has the values of `_OF_THE_MESSAGE`, and `learnt_of_message` those of
    `_LEARNT_OF_THE_MESSAGE`; the latter is empty without a projection.
    """
    import numpy as np  # noqa: PLC0415 - as above

    count = len(CAPABILITY_EVIDENCE)
    columns: dict[str, Numbers] = dict(
        zip(CAPABILITY_EVIDENCE, capabilities.T[:count], strict=True)
    )
    message_signs = of_message[-len(SIGNS) - len(SENTENCE_SIGNS) :].tolist()
    none = [of_message, np.array(standing(columns, message_signs))]
    if len(learnt_of_message):
        learnt: dict[str, Numbers] = dict(zip(_LEARNT, capabilities.T[count:], strict=True))
        none += [learnt_of_message, np.array(learnt_standing(learnt, message_signs))]
    return MessageEvidence(capabilities, np.concatenate(none))


def _pooled(values: "Vectors", sharpness: float, starts: "Indexes", counts: "Indexes") -> "Vectors":
    """Return the log-mean-exp over the triggers of each capability.

    The triggers are the last axis of `values`. `starts` has the index of each capability's first
    trigger, `counts` the number of its triggers.
    """
    import numpy as np  # noqa: PLC0415 - as above

    if not values.shape[-1]:
        return values
    sums = np.add.reduceat(np.exp(sharpness * values), starts, axis=-1)
    pooled: Vectors = (np.log(sums / counts) / sharpness).astype(np.float32)
    return pooled


def _best(values: "Vectors", starts: "Indexes") -> "Vectors":
    """Return, for each capability, the largest value of its triggers."""
    import numpy as np  # noqa: PLC0415 - as above

    best: Vectors = np.maximum.reduceat(values, starts) if len(values) else values
    return best


def _largest(values: "Vectors", count: int) -> "Indexes":
    """Return the indexes of the `count` largest values; their order is not defined."""
    import numpy as np  # noqa: PLC0415 - as above

    if len(values) <= count:
        return np.arange(len(values))
    found: Indexes = np.argpartition(values, -count)[-count:]
    return found


def _starts(counts: Sequence[int]) -> "Indexes":
    import numpy as np  # noqa: PLC0415 - as above

    return np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.intp)


def _joined(scales: "Sequence[tuple[Vectors, Vectors]]") -> "tuple[Vectors, Vectors]":
    import numpy as np  # noqa: PLC0415 - as above

    if not scales:
        return np.zeros(0, np.float32), np.zeros(0, np.float32)
    means, deviations = zip(*scales, strict=True)
    return np.concatenate(means), np.concatenate(deviations)


class Evidence:
    """The scorer `evidence`: a calibrated probability for each capability."""

    def __init__(
        self,
        described: Sequence[Described],
        background: Background,
        weights: Mapping[str, float],
        lexicon: Lexicon | None = None,
        *,
        meaning: Sequence[float] = (),
        projection: Projection | None = None,
    ) -> None:
        """Prepare the scorer for a catalog.

        `meaning` has, for "none", the weight of each dimension of a message's vector; empty means
        that all are 0.
        """
        import numpy as np  # noqa: PLC0415 - as above

        self._index = EvidenceIndex(described, background, lexicon, projection)
        for_capabilities, for_none = evidence_names(has_projection=projection is not None)
        self._meaning = np.zeros(background.vectors.shape[1], np.float32)
        if meaning:
            self._meaning[:] = meaning
        self._weights = np.array([weights[name] for name in for_capabilities])
        self._last: tuple[Collection[CapabilityId] | None, Indexes] = None, np.zeros(0, np.intp)
        self._none_weights = np.array([weights[name] for name in for_none])

    def ranked(
        self, text: str, message: "Vectors", among: Collection[CapabilityId], parts: int = 1
    ) -> list[Score]:
        """Return the probabilities of the capabilities in `among`, best first.

        `message` is the unit vector of `text`, which is one of `parts` parts of a message. The
        catalog counts as having only the capabilities in `among`, and "none".
        """
        rows = self._rows_of(among)
        if not len(rows):
            return []
        return self._scores(self._index.found(text, message, parts), message, rows)

    def ranked_parts(
        self, texts: Sequence[str], vectors: "Sequence[Vectors]", among: Collection[CapabilityId]
    ) -> list[tuple[int, list[Score]]]:
        """Return the indices of the parts of a message that are worth ranking, with their scores.

        `vectors` are the unit vectors of `texts`, all parts of the message. The scores are those of
        `ranked`.
        """
        rows = self._rows_of(among)
        if not len(rows):
            return []
        return [
            (at, self._scores(found, vectors[at], rows))
            for at, found in self._index.found_in_parts(texts, vectors)
        ]

    def _scores(
        self, evidence: MessageEvidence, message: "Vectors", rows: "Indexes"
    ) -> list[Score]:
        import numpy as np  # noqa: PLC0415 - as above

        found = evidence.among(rows)
        none = found.none @ self._none_weights + message @ self._meaning
        logits = np.append(found.capabilities @ self._weights, none)
        raised = np.exp(logits - logits.max())
        probabilities = (raised / raised.sum())[:-1]
        # The indexes in ascending order, so that equal capabilities keep the catalog's order.
        best = np.sort(_largest(probabilities, MOST_RANKED))
        order = best[np.argsort(-probabilities[best], kind="stable")]
        ids = self._index.ids
        ranked = zip(rows[order].tolist(), probabilities[order].tolist(), strict=True)
        return [Score(ids[row], probability) for row, probability in ranked]

    def _rows_of(self, among: Collection[CapabilityId]) -> "Indexes":
        """Return the rows of the capabilities in `among`. The last result is cached."""
        import numpy as np  # noqa: PLC0415 - as above

        last_among, rows = self._last
        if last_among is not among:
            found = [row for row, id_ in enumerate(self._index.ids) if id_ in among]
            rows = np.array(found, np.intp)
            self._last = among, rows
        return rows


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
