"""Computes the weights and thresholds of `evidence` from labelled messages.

Maximum likelihood of a softmax with a penalty on the weights' squares, each in units of its
evidence's own spread, by Newton's method with halving steps: no random numbers, so the same data
give the same weights. All sets count equally, whatever their size; within each, messages that want
no capability have a fixed share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capd.core.routing.evidence import CAPABILITY_EVIDENCE, NONE_EVIDENCE

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

NONE_SHARE = 0.4
PENALTY = 1e-3
_STEPS = 50
_CLOSE = 1e-6
_SMALLEST_STEP = 1e-6
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class TuningSet:
    """Messages over one catalog: rows x capabilities x evidence, and the right answers of each."""

    capabilities: "Numbers"
    none: "Numbers"
    accepted: "Flags"
    """Rows x (capabilities + none)."""
    importance: float = 1.0

    def only(self, rows: "Flags") -> "TuningSet":
        """Return the set with these rows."""
        return TuningSet(
            self.capabilities[rows], self.none[rows], self.accepted[rows], self.importance
        )

    @property
    def row_weights(self) -> "Numbers":
        """Return the weight of each row; they sum to the importance."""
        is_none = self.accepted[:, -1]
        share = NONE_SHARE if is_none.any() and not is_none.all() else float(is_none.all())
        each = np.where(
            is_none, share / max(1, is_none.sum()), (1 - share) / max(1, (~is_none).sum())
        )
        weights: Numbers = each * self.importance
        return weights


def probabilities(one: TuningSet, weights: "Numbers") -> "Numbers":
    """Return rows x (capabilities + none) for `weights`, capability evidence first."""
    count = len(CAPABILITY_EVIDENCE)
    logits = np.concatenate(
        [one.capabilities @ weights[:count], (one.none @ weights[count:])[:, np.newaxis]], axis=1
    )
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Numbers = raised / raised.sum(axis=1, keepdims=True)
    return result


def fitted(sets: Sequence[TuningSet], penalty: float = PENALTY) -> "Numbers":
    """Return the weights that make the accepted answers of `sets` most likely."""
    ridge = penalty * _spreads(sets) ** 2
    weights = np.zeros(len(ridge))
    best = _likelihood(sets, weights, ridge)
    for _ in range(_STEPS):
        slope, curve = _slope_and_curve(sets, weights, ridge)
        direction = np.linalg.solve(curve, slope)
        step = 1.0
        while step > _SMALLEST_STEP:
            reached = _likelihood(sets, weights + step * direction, ridge)
            if reached >= best:
                break
            step /= 2
        else:
            break
        weights = weights + step * direction
        if reached - best < _CLOSE * abs(best):
            break
        best = reached
    return weights


def named(weights: "Numbers") -> dict[str, float]:
    """Return weights by the name of their evidence, with the significant digits."""
    names = (*CAPABILITY_EVIDENCE, *NONE_EVIDENCE)
    return {name: round(float(weight), 4) for name, weight in zip(names, weights, strict=True)}


def _spreads(sets: Sequence[TuningSet]) -> "Numbers":
    capabilities = np.concatenate(
        [one.capabilities.reshape(-1, one.capabilities.shape[2]) for one in sets]
    )
    none = np.concatenate([one.none for one in sets])
    spreads: Numbers = np.concatenate([capabilities.std(axis=0), none.std(axis=0)])
    # The bias has no spread. Without any penalty its weight might not be finite.
    spreads[spreads < _CLOSE] = 1.0
    return spreads


def _likelihood(sets: Sequence[TuningSet], weights: "Numbers", ridge: "Numbers") -> float:
    total = -float(ridge @ weights**2)
    for one in sets:
        right = (probabilities(one, weights) * one.accepted).sum(axis=1)
        total += float(one.row_weights @ np.log(right + _TINY))
    return total


def _slope_and_curve(
    sets: Sequence[TuningSet], weights: "Numbers", ridge: "Numbers"
) -> "tuple[Numbers, Numbers]":
    """Return the gradient, and the negated curvature of the likelihood's convex part."""
    count = len(CAPABILITY_EVIDENCE)
    slope = -2 * ridge * weights
    curve = np.diag(2 * ridge)
    for one in sets:
        found = probabilities(one, weights)
        right = found * one.accepted
        right = right / (right.sum(axis=1, keepdims=True) + _TINY)
        row = one.row_weights
        pull = (right - found) * row[:, np.newaxis]
        slope[:count] += np.einsum("rn,rnf->f", pull[:, :-1], one.capabilities)
        slope[count:] += pull[:, -1] @ one.none
        means = np.concatenate(
            [
                np.einsum("rn,rnf->rf", found[:, :-1], one.capabilities),
                found[:, -1:] * one.none,
            ],
            axis=1,
        )
        share = (found * row[:, np.newaxis])[:, :-1, np.newaxis]
        curve[:count, :count] += np.einsum(
            "rnf,rng->fg", one.capabilities * share, one.capabilities, optimize=True
        )
        curve[count:, count:] += np.einsum("r,rf,rg->fg", found[:, -1] * row, one.none, one.none)
        curve -= np.einsum("r,rf,rg->fg", row, means, means)
    return slope, curve
