"""Measures how the best capabilities of a catalog stand out for a message: evidence for "none".

A message that wants nothing may resemble a phrase as closely as a request does: "our slack is a
mess". So how near the best phrase is counts by itself and together with what the message does: a
near phrase says more in a message that orders something than in one that only tells something.

The numbers depend on the capabilities that are compared, and on no name of them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from capd.core.routing.manner import SIGNS
from capd.core.routing.sentences import SENTENCE_SIGNS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]

_GATED = ("nearest", "phrases_z", "bm25")
_GATES = ("request", "share_telling", "last_tells", "first_orders", "last_asks")

STANDING = (
    "best_nearest",
    "best_nearest_squared",
    "best_phrases_z",
    "best_bm25",
    "best_coverage",
    "lead",
    "above_mean",
    *(f"best_{evidence}_if_{gate}" for gate in _GATES for evidence in _GATED),
)
"""The names of the values that `standing` returns, in order. `lead` is by how much the best
`triggers` exceeds the second, and `above_mean` by how much it exceeds the mean."""

_SIGN_AT = {name: at for at, name in enumerate((*SIGNS, *SENTENCE_SIGNS))}


def standing(columns: "Mapping[str, Numbers]", message_signs: Sequence[float]) -> tuple[float, ...]:
    """Return the values of `STANDING`; all are 0 if there are no capabilities.

    `columns` has, for each name of `CAPABILITY_EVIDENCE`, its value for each capability.
    `message_signs` are the values of `SIGNS` and then of `SENTENCE_SIGNS`.
    """
    triggers = columns["triggers"]
    if not len(triggers):
        return (0.0,) * len(STANDING)
    best = {name: float(columns[name].max()) for name in (*_GATED, "coverage")}
    first = float(triggers.max())
    second = sorted(triggers.tolist())[-2] if len(triggers) > 1 else first
    gated = (
        message_signs[_SIGN_AT[gate]] * best[evidence] for gate in _GATES for evidence in _GATED
    )
    return (
        best["nearest"],
        best["nearest"] ** 2,
        best["phrases_z"],
        best["bm25"],
        best["coverage"],
        first - second,
        first - float(triggers.mean()),
        *gated,
    )
