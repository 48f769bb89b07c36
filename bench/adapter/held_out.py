"""Judges an adapter on the rows of the fold that it was learnt without.

The evidence of these rows is computed twice: by the vectors of the model as it is, and by the
changed ones in their place. Weights and thresholds are chosen for each, as `bench.routing_tuning`
chooses them without a projection. A row's probabilities come from weights that were fitted to other
rows of the same fold, in five parts by text. So the adapter has not seen the fold, and the weights
have not seen the row. A long message is judged by its ends.

These figures compare adapters. They are a little high as a measure of routing, because the weights
know the fold's writers. For that measure, learn an adapter for each fold, and fit the weights to
the joined evidence, as `bench.routing_tuning.projected` does with projections. A projection can be
learnt of the changed vectors too. Its evidence beside theirs gave the best figures.

A background message is left out if its cosine with a phrase is .75 or more, as in the daemon. That
number was chosen for the model as it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from bench.adapter.encoder import Changes, Encoder, Texts
from bench.adapter.learning import Fold
from bench.routing_tuning import Prepared, TunedSet, label_fold, tuned, tuning_set

from capd.evaluation.vectors import Vectorizer

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]


class ChangedVectors(Vectorizer):
    """The vectors of an encoder with changes."""

    def __init__(self, texts: Texts, encoder: Encoder, changes: Changes) -> None:
        super().__init__()
        self._texts, self._encoder, self._changes = texts, encoder, changes

    def of(self, texts: Iterable[str]) -> "dict[str, Floats]":
        """Return the unit vector of each text, all of which must be among `Texts`."""
        wanted = list(dict.fromkeys(texts))
        rows = np.array([self._texts.row_of[text] for text in wanted])
        vectors = self._texts.vectors(rows, self._encoder, self._changes)
        return dict(zip(wanted, vectors, strict=True))


def judged(
    sets: Sequence[Prepared], fold: Fold, vectors: ChangedVectors | None
) -> tuple[TunedSet, ...]:
    """Return the results on the rows of `fold`; without `vectors`, of the model as it is."""
    parts = []
    for one in sets:
        mine = one.judged & (fold.of(one) == fold.number)
        if not mine.any():
            continue
        rows = tuple(row for row, is_mine in zip(one.rows, mine, strict=True) if is_mine)
        tuning = one.tuning.only(mine)
        if vectors is not None:
            tuning = tuning_set(one.capabilities, rows, vectors, one.spec.importance)
        by_text = np.array([label_fold(row.text) for row in rows])
        parts.append(replace(one, rows=rows, tuning=tuning, folds=by_text, writers=by_text))
    return tuned(parts).sets
