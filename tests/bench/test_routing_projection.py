"""The projection of the routing profile is learnt by following the slope of its loss."""

import numpy as np
import pytest
from bench.routing_projection import PHRASES, Batch, Lessons, learnt, loss

DIMENSIONS, CAPABILITIES, MESSAGES = 8, 3, 5


def batch(*, has_none: bool) -> Batch:
    """Return some messages and phrases; the last capability is held out."""
    random = np.random.default_rng(1)
    rows = random.normal(size=(MESSAGES + CAPABILITIES * PHRASES, DIMENSIONS))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    is_same = np.zeros((MESSAGES, CAPABILITIES * PHRASES), bool)
    is_same[0, 1] = True
    accepted = np.zeros((MESSAGES, CAPABILITIES + 1), bool)
    accepted[np.arange(MESSAGES), [0, 1, 0, 1, 3 if has_none else 0]] = True
    return Batch(
        rows[:MESSAGES],
        rows[MESSAGES:],
        is_same,
        accepted,
        np.array([True, True, False]),
        has_none,
    )


@pytest.mark.parametrize("has_none", [True, False])
def test_each_slope_is_how_the_loss_changes(has_none: bool) -> None:
    random = np.random.default_rng(2)
    parameters = {
        "down": random.normal(size=(DIMENSIONS, 2)),
        "up": random.normal(size=(2, DIMENSIONS)) * 0.3,
        "none": random.normal(size=DIMENSIONS) * 0.1,
        "bias": np.array(0.02),
        "log_sharpness": np.array(1.1),
        "log_weight": np.array(0.3),
    }
    one = batch(has_none=has_none)

    _, slopes = loss(parameters, one)

    for name, value in parameters.items():
        for at in np.ndindex(value.shape):
            step = np.zeros(value.shape)
            step[at] = 1e-5
            ahead = loss({**parameters, name: value + step}, one)[0]
            behind = loss({**parameters, name: value - step}, one)[0]
            slope = float(np.asarray(slopes[name])[at])
            assert slope == pytest.approx((ahead - behind) / 2e-5, abs=1e-6), name


def test_what_is_learnt_brings_messages_nearer_to_what_they_ask_for() -> None:
    """The first number of a vector says the capability here, and is lost in the others."""
    random = np.random.default_rng(3)

    def vectors(kind: float, count: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
        rows = random.normal(size=(count, DIMENSIONS))
        rows[:, 0] = kind
        unit: np.ndarray[tuple[int, int], np.dtype[np.float64]] = rows / np.linalg.norm(
            rows, axis=1, keepdims=True
        )
        return unit

    phrases = (vectors(1.0, 20), vectors(-1.0, 20))
    messages = np.concatenate([vectors(1.0, 40), vectors(-1.0, 40)])
    accepted = np.repeat(np.eye(3, dtype=bool)[:2], 40, axis=0)
    lessons = [Lessons(phrases, messages, accepted, np.ones(2, bool))]

    got = learnt(lessons)

    def right(rows: "list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]") -> float:
        asked, first, second = rows
        nearer = (asked @ first.T).mean(axis=1) > (asked @ second.T).mean(axis=1)
        return float((nearer == accepted[:, 0]).mean())

    fresh = [messages, *phrases]
    assert right(
        [
            got.projected(each.astype(np.float32)).astype(np.float64).reshape(each.shape)
            for each in fresh
        ]
    ) >= right(fresh)
    assert got.to_bytes() == learnt(lessons).to_bytes()
