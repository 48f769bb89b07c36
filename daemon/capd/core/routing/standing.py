"""Measures how the best capabilities of a catalog stand out for a message: evidence for "none".

A message that wants nothing may resemble a phrase as closely as a request does: "our slack is a
mess". So there are two kinds of numbers: how near the best phrase is, and the same in combination
with what the message does. A near phrase says more in a message that orders something than in one
that only tells something.

The numbers depend on the capabilities that are compared, but not on their names.
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

_LEARNT_GATED = ("nearest", "phrases_z")
LEARNT_STANDING = (
    "learnt_best_nearest",
    "learnt_best_nearest_squared",
    "learnt_best_phrases_z",
    "learnt_lead",
    "learnt_above_mean",
    *(f"learnt_best_{evidence}_if_{gate}" for gate in _GATES for evidence in _LEARNT_GATED),
)
"""The names of the values that `learnt_standing` returns, in order. They are like those of
`STANDING`, without the evidence that compares words."""

_SIGN_AT = {name: at for at, name in enumerate((*SIGNS, *SENTENCE_SIGNS))}


def standing(columns: "Mapping[str, Numbers]", message_signs: Sequence[float]) -> tuple[float, ...]:
    """Return how the best capabilities stand out for a message: the values of `STANDING`.

    `columns` has, for each name of `CAPABILITY_EVIDENCE`, its value for each capability.
    `message_signs` are the values of `SIGNS` and then of `SENTENCE_SIGNS`. All results are 0 if
    there are no capabilities.
    """
    triggers = columns["triggers"]
    if not len(triggers):
        return (0.0,) * len(STANDING)
    best = {name: float(columns[name].max()) for name in (*_GATED, "coverage")}
    first = float(triggers.max())
    second = _second(triggers) if len(triggers) > 1 else first
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


def _second(values: "Numbers") -> float:
    """Return the second largest of two or more values."""
    import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

    return float(np.partition(values, -2)[-2])


def learnt_standing(
    columns: "Mapping[str, Numbers]", message_signs: Sequence[float]
) -> tuple[float, ...]:
    """Return how the best capabilities stand out by the learnt projection of vectors.

    The results are the values of `LEARNT_STANDING`, all 0 if there are no capabilities. The
    arguments are as for `standing`, but `columns` has the evidence from projected vectors.
    """
    triggers = columns["triggers"]
    if not len(triggers):
        return (0.0,) * len(LEARNT_STANDING)
    best = {name: float(columns[name].max()) for name in _LEARNT_GATED}
    first = float(triggers.max())
    second = _second(triggers) if len(triggers) > 1 else first
    gated = (
        message_signs[_SIGN_AT[gate]] * best[evidence]
        for gate in _GATES
        for evidence in _LEARNT_GATED
    )
    return (
        best["nearest"],
        best["nearest"] ** 2,
        best["phrases_z"],
        first - second,
        first - float(triggers.mean()),
        *gated,
    )
