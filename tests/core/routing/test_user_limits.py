"""The user's limits on activating capabilities by a message."""

import pytest

from capd.core.routing.user_limits import apply_user_limits
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilityRestriction,
    Decision,
    Score,
    TapName,
)

GIT = CapabilityId(TapName("mine"), CapabilityName("git"))
WEB = CapabilityId(TapName("mine"), CapabilityName("web"))
TOP = (Score(GIT, 0.6), Score(WEB, 0.1))
ON = Decision("activate", id=GIT, top=TOP)
HELD = Decision("suggest", "set_by_user", top=TOP, suggested=(GIT,))


@pytest.mark.parametrize(
    ("bars", "decision"),
    [
        pytest.param([], ON, id="nothing set"),
        pytest.param([CapabilityRestriction(GIT, 0.6)], ON, id="reached"),
        pytest.param([CapabilityRestriction(GIT, 0.7)], HELD, id="not reached"),
        pytest.param([CapabilityRestriction(GIT, is_automatic=False)], HELD, id="never by itself"),
        pytest.param([CapabilityRestriction(WEB, is_automatic=False)], ON, id="another's"),
    ],
)
def test_what_is_held_back_is_suggested_in_its_place(
    bars: list[CapabilityRestriction], decision: Decision
) -> None:
    got = apply_user_limits(ON, bars)

    assert got == decision


def test_what_would_not_come_on_stays_as_it_is_decided() -> None:
    abstained = Decision("abstain", "below_threshold", top=TOP)

    got = apply_user_limits(abstained, [CapabilityRestriction(GIT, is_automatic=False)])

    assert got == abstained
