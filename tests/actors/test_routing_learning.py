"""Labels go from a session to the registry, where they are learnt, counted and forgotten."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from capd.core.sessions.session_rules import SessionRules
from capd_protos import curator, registry
from capd_protos.types import RoutingLabel, SessionKey

from .world import CURATOR, CURATOR_REPLIES, REGISTRY, REGISTRY_REPLIES, World, running_world

S = SessionKey("s")


class KeptLabels:
    """A store of labels in memory."""

    problem = ""

    def __init__(self) -> None:
        self.labels: list[RoutingLabel] = []

    async def load(self) -> list[RoutingLabel]:
        return self.labels

    async def save(self, labels: Sequence[RoutingLabel]) -> bool:
        self.labels = list(labels)
        return True


async def learning(world: World, project: str = "") -> registry.LearningDescribed:
    # The label is an event, which the registry has read before it answers what comes after.
    request = registry.DescribeLearning(project)
    reply = await world.bus.ask(REGISTRY, request, REGISTRY_REPLIES, 1000.0)
    assert isinstance(reply, registry.LearningDescribed)
    return reply


async def learnt(world: World, count: int) -> registry.LearningDescribed:
    """Wait until so many labels are known; return what was learnt from them."""
    while (described := await learning(world, str(world.project))).labels != count:
        await trio.sleep(0.01)
    return described


async def switch(world: World, name: str, *, is_on: bool) -> None:
    request = curator.SwitchCapability(S, name, is_on)
    reply = await world.bus.ask(CURATOR, request, CURATOR_REPLIES, 1000.0)
    assert isinstance(reply, curator.CapabilityAnswered)
    assert reply.is_ok


async def test_what_a_person_switches_on_and_off_and_what_is_called_is_learnt(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        control = await world.controller()
        await control.result("turn", text="alpha things please", session="s")
        await client.call("alpha__echo", a=1)
        await client.call("alpha__echo", a=2)
        await switch(world, "beta", is_on=True)
        await control.result("turn", text="both one please", session="s")
        await switch(world, "both", is_on=False)

        described = await learnt(world, 3)

        entries = {each.capability: each for each in described.entries}
        acts = {name: (each.enabled, each.disabled, each.called) for name, each in entries.items()}
        assert acts == {"mine/alpha": (0, 0, 1), "mine/beta": (1, 0, 0), "mine/both": (0, 1, 0)}
        assert entries["mine/alpha"].project_offset > 0
        assert entries["mine/both"].offset < 0


async def test_what_a_model_or_a_program_switches_on_and_off_teaches_nothing(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        control = await world.controller()
        await control.result("turn", text="alpha things please", session="s")
        await client.capability("disable", "alpha")
        await client.capability("enable", "beta")
        await client.call("beta__echo", a=1)
        # The program is no person: it is the daemon's own process here.
        await control.result("enable", name="both", session="s")
        await control.result("disable", name="both", session="s")

        await switch(world, "both", is_on=True)

        described = await learnt(world, 1)
        assert [each.capability for each in described.entries] == ["mine/both"]


@pytest.mark.parametrize("is_on", [True, False])
async def test_sessions_learn_only_where_it_is_on(
    autojump_clock: MockClock, tmp_path: Path, *, is_on: bool
) -> None:
    async with running_world(tmp_path, rules=SessionRules(learns=is_on)) as world:
        await world.session("s")
        await switch(world, "alpha", is_on=True)
        label = RoutingLabel(time.time(), "mine/beta", "enabled")
        world.bus.publish(curator.RoutingTaught(S, label))

        described = await learnt(world, 2 if is_on else 1)

        assert "mine/beta" in {each.capability for each in described.entries}


async def test_what_is_forgotten_counts_no_more(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        for name in ("alpha", "beta"):
            label = RoutingLabel(1.0, f"mine/{name}", "enabled", 0.5)
            world.bus.publish(curator.RoutingTaught(S, label))
        await learnt(world, 2)

        replies = [
            await world.bus.ask(REGISTRY, request, REGISTRY_REPLIES, 1000.0)
            for request in (
                registry.ForgetLearning("alpha"),
                registry.ForgetLearning(is_last=True),
                registry.ForgetLearning(),
            )
        ]

        assert replies == [
            registry.LearningForgotten(1),
            registry.LearningForgotten(1, "mine/beta"),
            registry.LearningForgotten(0),
        ]
        assert (await learning(world)).entries == []


async def test_what_was_learnt_outlives_the_daemon(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    kept = KeptLabels()
    label = RoutingLabel(1.0, "mine/alpha", "disabled", 0.9)
    async with running_world(tmp_path, labels=kept) as first:
        first.bus.publish(curator.RoutingTaught(S, label))
        await learnt(first, 1)
    async with running_world(tmp_path, labels=kept) as second:
        described = await learning(second)

    assert kept.labels == [label]
    assert [each.capability for each in described.entries] == ["mine/alpha"]


async def test_a_capability_that_was_switched_off_often_does_not_come_on_by_itself(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    kept = KeptLabels()
    kept.labels = [RoutingLabel(1.0, "mine/alpha", "disabled", 0.9)] * 30
    async with running_world(tmp_path, labels=kept) as world:
        request = registry.RouteMessage(S, "alpha things please")
        reply = await world.bus.ask(REGISTRY, request, REGISTRY_REPLIES, 1000.0)

        assert isinstance(reply, registry.MessageRouted)
        assert reply.decision.outcome != "activate"
