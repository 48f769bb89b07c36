"""Computes the weights of the scorer `evidence` from sets of labelled messages.

The weights maximise the likelihood of a softmax. A penalty on each weight's square, in units of the
spread of its evidence, keeps weights small. Newton's method with halved steps finds the maximum; it
uses no random numbers, so the same data give the same weights. All sets count equally, whatever
their size, unless they have another importance. In each set, messages that want no capability
together have a fixed share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capd.core.routing.evidence import CAPABILITY_EVIDENCE, evidence_names

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

NONE_SHARE = 0.4
PENALTY = 1e-3
MEANING_PENALTY = 3e-4
"""The penalty on the weights of the message's vector, whose dimensions have equal spreads."""
_STEPS = 50
_CLOSE = 1e-6
_SMALLEST_STEP = 1e-6
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class TuningSet:
    """Labelled messages over one catalog, a row for each message, to compute weights from.

    `capabilities` has the evidence for each capability: rows x capabilities x kinds of evidence.
    """

    capabilities: "Numbers"
    none: "Numbers"
    """Rows x evidence for "none", followed by the message's vector if weights for it are fitted."""
    accepted: "Flags"
    """Rows x (capabilities + none): which answers are right."""
    importance: float = 1.0

    def only(self, rows: "Flags") -> "TuningSet":
        """Return the set with only the rows for which `rows` is true."""
        return TuningSet(
            self.capabilities[rows], self.none[rows], self.accepted[rows], self.importance
        )

    @property
    def row_weights(self) -> "Numbers":
        """The weight of each row; the weights add up to `importance`."""
        is_none = self.accepted[:, -1]
        share = NONE_SHARE if is_none.any() and not is_none.all() else float(is_none.all())
        each = np.where(
            is_none, share / max(1, is_none.sum()), (1 - share) / max(1, (~is_none).sum())
        )
        weights: Numbers = each * self.importance
        return weights


def probabilities(one: TuningSet, weights: "Numbers") -> "Numbers":
    """Return the probability of each answer for each message: rows x (capabilities + none).

    `weights` are those of the evidence for capabilities, then those of the evidence for "none".
    """
    count = one.capabilities.shape[2]
    logits = np.concatenate(
        [one.capabilities @ weights[:count], (one.none @ weights[count:])[:, np.newaxis]], axis=1
    )
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Numbers = raised / raised.sum(axis=1, keepdims=True)
    return result


def fitted(
    sets: Sequence[TuningSet], penalty: float = PENALTY, start: "Numbers | None" = None
) -> "Numbers":
    """Return the weights that make the accepted answers of `sets` most likely.

    `penalty` is the factor of each weight's square; weights of a message's vector have
    `MEANING_PENALTY` instead. The search begins at `start`, or at 0.
    """
    ridge = penalty * _spreads(sets) ** 2
    ridge[len(_names(sets[0].capabilities.shape[2])) :] = MEANING_PENALTY
    weights = np.zeros(len(ridge)) if start is None else start.copy()
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


def named(weights: "Numbers", *, has_projection: bool = False) -> dict[str, float]:
    """Return the weights for a routing profile by name of evidence, rounded to four decimals.

    Weights of the dimensions of a message's vector are left out.
    """
    names = _all_names(has_projection=has_projection)
    named_weights = zip(names, weights[: len(names)], strict=True)
    return {name: round(float(weight), 4) for name, weight in named_weights}


def meaning(weights: "Numbers", *, has_projection: bool = False) -> tuple[float, ...]:
    """Return the weights of the dimensions of a message's vector, rounded to three decimals.

    The result is empty if none were computed.
    """
    named_count = len(_all_names(has_projection=has_projection))
    return tuple(round(float(weight), 3) for weight in weights[named_count:])


def _names(capability_count: int) -> tuple[str, ...]:
    """Return the names of all kinds of evidence.

    `capability_count` is the number of kinds of evidence for a capability.
    """
    return _all_names(has_projection=capability_count > len(CAPABILITY_EVIDENCE))


def _all_names(*, has_projection: bool) -> tuple[str, ...]:
    for_capabilities, for_none = evidence_names(has_projection=has_projection)
    return (*for_capabilities, *for_none)


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
    """Return the gradient of the likelihood, and the negated curvature of its concave part.

    `ridge` is the penalty on each weight's square.
    """
    count = sets[0].capabilities.shape[2]
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
        flat = one.capabilities.reshape(-1, count)
        curve[:count, :count] += (flat * share.reshape(-1, 1)).T @ flat
        curve[count:, count:] += (one.none * (found[:, -1] * row)[:, np.newaxis]).T @ one.none
        curve -= (means * row[:, np.newaxis]).T @ means
    return slope, curve
