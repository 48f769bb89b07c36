"""Learns the projection of the routing profile (`capd.core.routing.projection`).

The catalogs take turns. Each step takes some messages or phrases of one, and compares them with a
few phrases of each capability. The loss is that of the routing decision: a softmax over "none" and
the capabilities, each by the log-mean-exp of the cosines with its phrases. A phrase that is taken
as a message is not compared with itself. All random numbers come from a seeded generator, so two
runs learn the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from capd.core.routing.projection import Projection

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]

RANK = 64
STEPS = 300
MESSAGES = 96
"""How many messages a step takes."""
PHRASES = 6
"""How many phrases of each capability a step compares the messages with."""
RATE = 2e-3
PENALTY = 2e-4
NONE_SHARE = 0.4
_SCALE = 10.0
"""Weights of "none" are learnt in units of this, so that all parameters change at one pace."""
_OUT = -1e9


@dataclass(frozen=True, slots=True)
class Lessons:
    """A catalog and its labelled messages."""

    phrases: "tuple[Numbers, ...]"
    """The vectors of each capability's phrases."""
    messages: "Numbers"
    accepted: "Flags"
    """Messages x (capabilities + none): which answers are right."""
    is_learnt: "Flags"
    """Which capabilities are learnt from; the others are held out."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step sees."""

    messages: "Numbers"
    phrases: "Numbers"
    """`PHRASES` rows for each capability."""
    is_same: "Flags"
    """Messages x phrases: a phrase that is the message itself."""
    accepted: "Flags"
    is_learnt: "Flags"
    has_none: bool


def learnt(lessons: Sequence[Lessons], steps: int = STEPS) -> Projection:
    """Return the projection that these catalogs teach."""
    random = np.random.default_rng(0)
    dimensions = lessons[0].messages.shape[1]
    parameters: dict[str, Numbers] = {
        "down": random.normal(size=(dimensions, RANK)) * 0.05,
        "up": np.zeros((RANK, dimensions)),
        "none": np.zeros(dimensions),
        "bias": np.zeros(()),
        "log_sharpness": np.log(np.array(8.0)),
        "log_weight": np.log(np.array(2.0)),
    }
    means = {name: np.zeros_like(value) for name, value in parameters.items()}
    squares = {name: np.zeros_like(value) for name, value in parameters.items()}
    # Messages are taken twice as often as phrases.
    turns = [*((each, True) for each in (*lessons, *lessons)), *((each, False) for each in lessons)]
    for step in range(steps):
        each, of_messages = turns[step % len(turns)]
        _, slopes = loss(parameters, _batch(each, random, of_messages=of_messages))
        rate = RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        for name, slope in slopes.items():
            means[name] = 0.9 * means[name] + 0.1 * slope
            squares[name] = 0.999 * squares[name] + 0.001 * slope**2
            mean = means[name] / (1 - 0.9 ** (step + 1))
            square = squares[name] / (1 - 0.999 ** (step + 1))
            parameters[name] = parameters[name] - rate * mean / (np.sqrt(square) + 1e-8)
    projection = Projection(
        parameters["down"].astype(np.float32),
        parameters["up"].astype(np.float32),
        (parameters["none"] * _SCALE).astype(np.float32),
    )
    # Rounded as it ships, so that weights are fitted to the projection that is used.
    return Projection.from_bytes(projection.to_bytes(), dimensions)


def shares(accepted: "Flags") -> "Numbers":
    """Return the share of the draws for each message; those that want nothing share `NONE_SHARE`.

    `accepted` has a row for each message, whose last value says whether it wants nothing.
    """
    is_none = accepted[:, -1]
    share = np.where(
        is_none, NONE_SHARE / max(1, is_none.sum()), (1 - NONE_SHARE) / max(1, (~is_none).sum())
    )
    normalised: Numbers = share / share.sum()
    return normalised


def _batch(lessons: Lessons, random: np.random.Generator, *, of_messages: bool) -> Batch:
    count = len(lessons.phrases)
    rows = [
        random.choice(len(each), PHRASES, replace=len(each) < PHRASES) for each in lessons.phrases
    ]
    phrases = np.concatenate([each[some] for each, some in zip(lessons.phrases, rows, strict=True)])
    if of_messages:
        share = shares(lessons.accepted)
        chosen = random.choice(len(share), MESSAGES, p=share)
        is_same = np.zeros((MESSAGES, count * PHRASES), bool)
        messages, accepted = lessons.messages[chosen], lessons.accepted[chosen]
    else:
        capabilities = random.choice(np.flatnonzero(lessons.is_learnt), MESSAGES)
        at = np.array([random.integers(len(lessons.phrases[each])) for each in capabilities])
        messages = np.stack(
            [lessons.phrases[each][row] for each, row in zip(capabilities, at, strict=True)]
        )
        accepted = np.zeros((MESSAGES, count + 1), bool)
        accepted[np.arange(MESSAGES), capabilities] = True
        owners = np.repeat(np.arange(count), PHRASES)
        is_same = (capabilities[:, None] == owners) & (at[:, None] == np.concatenate(rows))
    return Batch(messages, phrases, is_same, accepted, lessons.is_learnt, of_messages)


def loss(parameters: "dict[str, Numbers]", batch: Batch) -> "tuple[float, dict[str, Numbers]]":
    """Return the loss of a batch, and its slope by each parameter."""
    down, up, none = parameters["down"], parameters["up"], parameters["none"]
    sharpness, weight = np.exp(parameters["log_sharpness"]), np.exp(parameters["log_weight"])
    given = np.concatenate([batch.messages, batch.phrases])
    inner = given @ down
    turned = given + inner @ up
    lengths = np.linalg.norm(turned, axis=1, keepdims=True)
    unit = turned / lengths
    count, capabilities = len(batch.messages), len(batch.is_learnt)
    messages, phrases = unit[:count], unit[count:]

    scores = np.where(batch.is_same, _OUT, sharpness * (messages @ phrases.T))
    scores = scores.reshape(count, capabilities, PHRASES)
    most = scores.max(axis=2, keepdims=True)
    raised = np.exp(scores - most)
    sums = raised.sum(axis=2, keepdims=True)
    compared = (scores > _OUT / 2).sum(axis=2)
    pooled = (np.log(sums) + most)[:, :, 0] - np.log(np.maximum(compared, 1))
    of_none = _SCALE * (parameters["bias"] + messages @ none)
    logits = np.column_stack(
        [
            np.where(batch.is_learnt, weight * pooled, _OUT),
            of_none if batch.has_none else np.full(count, _OUT),
        ]
    )
    found = np.exp(logits - logits.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    right = found * batch.accepted
    likely = right.sum(axis=1, keepdims=True) + 1e-30
    total = -float(np.log(likely).mean())
    total += PENALTY * float((down**2).sum() + (up**2).sum() + (none**2).sum())

    by_logit = (found - right / likely) / count
    by_pooled = by_logit[:, :-1] * batch.is_learnt
    by_score = (weight * by_pooled)[:, :, None] * raised / sums
    by_none = by_logit[:, -1] * _SCALE if batch.has_none else np.zeros(count)
    finite = np.where(scores > _OUT / 2, scores, 0.0)
    by_cosine = sharpness * by_score.reshape(count, -1)
    by_unit = np.concatenate(
        [by_cosine @ phrases + by_none[:, None] * none, by_cosine.T @ messages]
    )
    by_turned = (by_unit - unit * (unit * by_unit).sum(axis=1, keepdims=True)) / lengths
    return total, {
        "down": given.T @ (by_turned @ up.T) + 2 * PENALTY * down,
        "up": inner.T @ by_turned + 2 * PENALTY * up,
        "none": messages.T @ by_none + 2 * PENALTY * none,
        "bias": by_none.sum(),
        "log_sharpness": (by_score * finite).sum(),
        "log_weight": weight * (by_pooled * np.where(batch.is_learnt, pooled, 0.0)).sum(),
    }
