"""Routing with and without vectors: nobody waits for them, and no message is stored."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec import Struct
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.actors.registry import registry as registry_actor
from capd.actors.registry.catalog_vectors import WARM_UP_AFTER
from capd.core.routing.gates import fingerprint
from capd.runtime.bus import AskLostError
from capd_protos import embedder, registry
from capd_protos.curator import CapabilityUsed, SessionStarted
from capd_protos.types import ActorName, CapabilityId, CapabilityName, Decision, SessionKey, TapName

from .world import REGISTRY, REGISTRY_REPLIES, World, running_world, world

ALPHA = CapabilityId(TapName("mine"), CapabilityName("alpha"))


async def routed(world: World, text: str, **members: object) -> Decision:
    request = registry.RouteMessage(SessionKey("s"), text, **members)  # type: ignore[arg-type]
    reply = await world.bus.ask(REGISTRY, request, REGISTRY_REPLIES, 1000.0)
    assert isinstance(reply, registry.MessageRouted)
    return reply.decision


async def outcome(world: World, text: str = "alpha things please") -> tuple[str, str]:
    decision = await routed(world, text)
    return decision.outcome, decision.reason


READY = ("activate", "")
NOT_READY = ("abstain", "model_not_ready")


async def test_the_first_message_waits_for_no_model_and_a_later_one_is_routed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        await made.start()
        assert (await made.described()).embedder_state == "cold"

        assert await outcome(made) == NOT_READY
        await made.until_routing()

        decision = await routed(made, "alpha things please")
        assert (decision.outcome, decision.id) == ("activate", ALPHA)
        assert decision.fingerprint == fingerprint("alpha things please")
        assert made.bus.events[0] == registry.MessageDecided(
            SessionKey("s"), "abstain", "model_not_ready", ""
        )
        assert embedder.EmbedderNeeded() in made.bus.events


async def test_a_session_that_starts_warms_the_model(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        await made.start()

        made.bus.publish(SessionStarted(SessionKey("s"), "zed"))

        await made.until_routing()


async def test_a_session_whose_messages_need_no_model_does_not_load_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        await made.start()

        made.bus.publish(SessionStarted(SessionKey("s"), "zed", may_compare=False))
        await trio.sleep(2 * WARM_UP_AFTER)

        assert embedder.EmbedderNeeded() not in made.bus.events
        assert (await made.described()).embedder_state == "cold"


async def test_triggers_are_embedded_once_and_found_again_after_a_restart(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as first:
        embedded = list(first.embedder.texts)
    async with running_world(tmp_path) as second:
        assert second.embedder.texts == []
        assert await outcome(second) == READY

    assert {"alpha one", "beta two", "both three"} <= set(embedded)
    assert len(embedded) == len(set(embedded))


async def test_an_embedder_that_is_gone_means_abstaining_until_it_is_back(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        assert await outcome(made) == READY
        made.bus.publish(embedder.EmbedderExited(9, expected=False))
        made.scopes["embedder"].cancel()
        await wait_all_tasks_blocked()

        assert await outcome(made) == NOT_READY
        await trio.sleep(10)
        assert await outcome(made) == NOT_READY
        await made.nursery.start(made._kept, "embedder", made.embedder)
        await made.until_routing()

        assert await outcome(made) == READY


async def test_vectors_that_are_none_are_told_as_such_and_asked_for_again_by_the_next_message(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        made.embedder.is_cut = True
        await made.start()
        made.registry._vectors._need.set()
        await made.until_routing("unusable")
        made.embedder.is_cut = False

        assert await outcome(made) == NOT_READY
        await made.until_routing()

        assert await outcome(made) == READY


async def test_an_embedder_that_ends_because_it_is_idle_is_left_alone_until_the_next_message(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        made.bus.publish(embedder.EmbedderExited(0, expected=True))
        await trio.sleep(100)
        needs = made.bus.events.count(embedder.EmbedderNeeded())
        assert (await made.described()).embedder_state == "cold"

        assert await outcome(made) == NOT_READY

        await made.until_routing()
        assert made.bus.events.count(embedder.EmbedderNeeded()) == needs + 1


async def test_an_embedder_that_dies_while_it_loads_is_asked_again_at_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        await made.start()
        # The request was delivered to a process that is killed: nobody will ever answer it.
        made.embedder.is_silent = True
        await outcome(made)
        await trio.sleep(1)
        made.embedder.is_silent = False
        asked_at = trio.current_time()

        made.bus.publish(embedder.EmbedderExited(9, expected=False))
        await made.until_routing()

        assert trio.current_time() - asked_at < 10


async def test_an_embedder_that_ended_with_a_request_is_not_taken_for_one_that_hangs(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as made:
        await made.start()
        ask = made.bus.ask
        lost: list[Struct] = []

        async def ask_with_one_loss(
            actor: ActorName, request: Struct, replies: Any, timeout: float
        ) -> Any:
            if isinstance(request, embedder.WarmUp) and not lost:
                lost.append(request)
                raise AskLostError("embedder ended")
            return await ask(actor, request, replies, timeout)

        monkeypatch.setattr(made.bus, "ask", ask_with_one_loss)

        await outcome(made)
        await made.until_routing()

        assert lost == [embedder.WarmUp()]
        assert embedder.EmbedderStuck() not in made.bus.events


async def test_an_embedder_that_does_not_answer_costs_a_quarter_of_a_second(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        made.embedder.is_silent = True
        asked_at = trio.current_time()

        assert await outcome(made) == NOT_READY

        assert trio.current_time() - asked_at == pytest.approx(0.25)
        made.embedder.is_silent = False
        await made.until_routing()
        assert await outcome(made) == READY


async def test_a_model_that_cannot_be_used_is_told_with_its_reason(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        made.embedder.reason = "the model's file is damaged"
        await made.start()
        await outcome(made)
        await made.until_routing("unusable")

        assert (await made.described()).embedder_reason == "the model's file is damaged"
        assert await outcome(made) == NOT_READY
        made.embedder.reason = ""
        await outcome(made)
        await made.until_routing()


# Taps


async def test_a_reload_routes_to_what_is_there_now(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        made.capability("gamma", "gamma")
        described = await made.reload()
        await made.until_routing()

        assert described.taps[0].routable == 4
        assert (await routed(made, "gamma things please")).outcome == "activate"
        assert any(isinstance(each, registry.CatalogChanged) for each in made.bus.events)


async def test_what_was_there_routes_on_while_new_vectors_are_made(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        hold = made.embedder.hold_new = trio.Event()
        made.capability("gamma", "gamma")
        autojump_clock.autojump_threshold = 5.0
        await made.reload()
        await wait_all_tasks_blocked()

        old = await outcome(made)
        new = await routed(made, "gamma things please")

        assert (await made.described()).embedder_state == "loading"
        assert old == READY
        assert (new.outcome, new.reason) != NOT_READY
        hold.set()
        autojump_clock.autojump_threshold = 0
        await made.until_routing()
        assert (await routed(made, "gamma things please")).outcome == "activate"


async def test_a_reload_while_a_message_is_compared_costs_no_registry(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made, trio.open_nursery() as nursery:
        made.embedder.hold = trio.Event()
        decisions: list[Decision] = []

        async def route() -> None:
            decisions.append(await routed(made, "alpha things please"))

        nursery.start_soon(route)
        autojump_clock.autojump_threshold = 5.0
        await wait_all_tasks_blocked()
        made.capability("gamma", "gamma")
        await made.reload()
        made.embedder.hold.set()
        made.embedder.hold = None
        autojump_clock.autojump_threshold = 0
        await made.until_routing()

        assert decisions[0].outcome == "activate"
        assert (await routed(made, "gamma things please")).outcome == "activate"


async def test_a_reload_while_the_triggers_are_embedded_is_not_forgotten(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        await made.start()
        hold = made.embedder.hold = trio.Event()
        await outcome(made)
        await wait_all_tasks_blocked()
        made.capability("gamma", "gamma")
        # Held in the middle of it: the clock must not run while a thread reads the folder.
        autojump_clock.autojump_threshold = 5.0
        await made.reload()
        hold.set()
        made.embedder.hold = None
        autojump_clock.autojump_threshold = 0
        await made.until_routing()

        assert (await routed(made, "gamma things please")).outcome == "activate"


async def test_a_tap_that_cannot_be_read_keeps_its_last_good_state(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        (tmp_path / "tap").rename(tmp_path / "elsewhere")

        described = await made.reload()

        assert (described.taps[0].routable, described.taps[0].name) == (3, "mine")
        assert "tap mine" in described.taps[0].error
        await made.until_routing()
        assert await outcome(made) == READY
        (tmp_path / "elsewhere").rename(tmp_path / "tap")
        assert (await made.reload()).taps[0].error == ""


async def test_a_list_of_taps_that_is_broken_keeps_everything(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        made.tap_list.write_text("[[taps]\n")

        described = await made.reload()

        assert [tap.name for tap in described.taps] == ["taps.toml", "mine"]
        assert "taps.toml" in described.taps[0].error
        assert await outcome(made) == READY


async def test_a_list_that_is_broken_from_the_start_leaves_the_starter_tap(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        made.tap_list.write_text("[[taps]\n")
        await made.start()

        described = await made.described()

        assert [tap.name for tap in described.taps] == ["taps.toml", "starter"]
        assert described.taps[1].routable > 5


# What is kept


LONG = (
    "Yesterday was long, and the people upstairs were loud until well past midnight again. " * 2
    + "alpha one and alpha two please, as soon as you have time. "
    + "Tomorrow will be better, or so my neighbour says, who has never been right so far. " * 2
)


@pytest.mark.parametrize("most_compared", [0, 1000])
async def test_the_part_of_a_long_message_is_found_on_the_loop_and_in_a_thread(
    autojump_clock: MockClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_compared: int,
) -> None:
    monkeypatch.setattr(registry_actor, "MOST_COMPARED", most_compared)
    async with running_world(tmp_path) as made:
        await made.until_routing()

        got = await routed(made, LONG)

        assert (got.outcome, got.id, got.part) == ("activate", ALPHA, 3)


async def test_decisions_are_kept_without_their_text(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        async with running_world(tmp_path) as made:
            for number in range(120):
                await routed(made, f"alpha Zanzibar number {number}")

            described = await made.described()

            assert len(described.decisions) == 100
            last = described.decisions[-1]
            assert last.decision.fingerprint == fingerprint("alpha Zanzibar number 119")
            assert last.decision.id == ALPHA
            assert "Zanzibar" not in repr(described)
    assert "Zanzibar" not in repr(logs)


@pytest.mark.parametrize(
    ("text", "members", "reason"),
    [
        ("alpha things please", {"is_enabled": False}, "disabled"),
        ("<system-reminder>alpha things</system-reminder>", {}, "system_content"),
        ("alpha", {}, "too_short"),
        ("zebra things please", {}, "below_threshold"),
        ("alpha things please", {"active": [ALPHA]}, "already_active"),
    ],
)
async def test_each_abstention_has_its_reason(
    autojump_clock: MockClock,
    tmp_path: Path,
    text: str,
    members: dict[str, object],
    reason: str,
) -> None:
    async with running_world(tmp_path) as made:
        # Vectors that resemble no message at all are not what the bar of suggestions was fitted to.
        made.registry._profile = replace(made.registry._profile, suggest_at=0.5)

        decision = await routed(made, text, **members)

        assert (decision.outcome, decision.reason) == ("abstain", reason)


async def test_what_may_be_meant_is_suggested_and_nothing_is_switched_on(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        # No message is between clear and hopeless for vectors that are alike or not at all.
        made.registry._profile = replace(made.registry._profile, threshold=1.5)

        decision = await routed(made, "alpha things please")

        assert (decision.outcome, decision.reason) == ("suggest", "below_threshold")
        assert decision.suggested[0] == ALPHA
        assert decision.id is None


async def test_a_suggestion_that_the_model_knows_is_not_made_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as made:
        made.registry._profile = replace(made.registry._profile, threshold=1.5)
        client = await made.session("s")

        told = [
            (await client.result("capd/turn", text=text))["suggestion"]
            for text in ("alpha things please", "alpha things again", "beta things please")
        ]

        assert "alpha" in told[0]
        assert told[1] == ""
        assert "beta" in told[2]


async def test_what_an_attempt_that_failed_has_embedded_is_not_embedded_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        triggers = ", ".join(f'"alpha number {number}"' for number in range(100))
        file = tmp_path / "tap/capabilities/alpha/config.toml"
        file.write_text(f"triggers = [{triggers}]\n")
        made.embedder.most_texts = 40
        await made.start()
        made.registry._vectors._need.set()
        await made.until_routing("cold")
        while len(made.embedder.texts) < 40:
            await trio.sleep(0.001)

        made.embedder.most_texts = None
        with trio.fail_after(10_000):
            await made.until_routing()

        assert len(made.embedder.texts) > 100
        assert len(made.embedder.texts) == len(set(made.embedder.texts))


async def test_a_file_of_the_project_decides_between_two_that_a_message_speaks_for(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    # A listing is read in a thread, and the clock must not jump past its limit meanwhile.
    autojump_clock.autojump_threshold = 0.1
    async with world(tmp_path) as made:
        for name in ("crab", "snake"):
            made.capability(name, name)
            config = made.folder / "tap/capabilities" / name / "config.toml"
            triggers = '["ship the parcel", "pack the parcel", "open the parcel"]'
            config.write_text(f'triggers = {triggers}\nfiles = ["{name}.lock"]\n')
        await made.start()
        await outcome(made)
        await made.until_routing()
        winners = []

        for name in ("crab", "snake"):
            file = made.project / f"{name}.lock"
            file.touch()
            decision = await routed(made, "ship the parcel", project=str(made.project))
            winners.append(str(decision.id.name) if decision.id else decision.reason)
            file.unlink()

        assert winners == ["crab", "snake"]


async def test_the_same_message_again_leaves_the_registry_as_it_was(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        await made.start()
        await outcome(made)
        await made.until_routing()

        first, again = [
            await routed(made, "alpha things please", active=active) for active in ([], [ALPHA])
        ]

        assert (first.outcome, first.id) == ("activate", ALPHA)
        assert (again.outcome, again.reason, again.id) == ("abstain", "already_active", ALPHA)
        assert again.top == first.top


async def test_a_project_may_switch_off_that_its_files_count(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        overlay = tmp_path / "config" / "overlays" / "mine"
        (overlay / "capabilities").mkdir(parents=True)
        (overlay / "overlay.toml").write_text('tap = "mine"\n')
        (overlay / "capabilities" / "alpha.toml").write_text('files = ["alpha.lock"]\n')
        listed = f'[[overlays]]\npath = "{overlay}"\n'
        world.tap_list.write_text(world.tap_list.read_text() + listed)
        await world.reload()
        message, scores = "one of the things", []
        for rule in ("", "[routing]\nfiles = false\n"):
            project = tmp_path / f"project {rule[:1]}"
            project.mkdir()
            project.joinpath("alpha.lock").touch()
            project.joinpath(".capd.toml").write_text(rule)
            await world.live.load_project(str(project))
            decision = await routed(world, message, project=str(project))
            scores.append({each.id: each.score for each in decision.top}[ALPHA])

        assert scores[0] > scores[1] > 0


async def progress(world: World) -> registry.ProgressDescribed:
    reply = await world.bus.ask(REGISTRY, registry.DescribeProgress(), REGISTRY_REPLIES, 1000.0)
    assert isinstance(reply, registry.ProgressDescribed)
    return reply


def large_tap(folder: Path, count: int) -> list[str]:
    """Write a tap whose capabilities differ in their first words; return its triggers."""
    phrases: list[str] = []
    for at in range(count):
        own = folder / "capabilities" / f"large{at}"
        own.mkdir(parents=True)
        triggers = [f"word{at} number {way}" for way in ("first", "second", "third")]
        (own / "config.toml").write_text(f"triggers = {json.dumps(triggers)}\n")
        (own / "default.toml").write_text(f'[[mcp.servers]]\nname = "s{at}"\ncommand = "s"\n')
        phrases += triggers
    return phrases


async def test_a_large_catalog_is_routed_by_what_has_vectors_so_far_and_says_how_much_that_is(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        large_tap(tmp_path / "tap", 200)
        made.embedder.hold_new = trio.Event()
        await made.start()
        await outcome(made)
        while await outcome(made, "the second of word7") == NOT_READY:
            await trio.sleep(0.1)

        decision = await routed(made, "the second of word7")
        partly = await progress(made)

        assert decision.top[0].id.name == "large7"
        assert 0 <= partly.percent < 100
        assert partly.decisions[-1].percent == partly.percent

        made.embedder.hold_new.set()
        await made.until_routing()

        assert (await progress(made)).percent == 100
        assert (await routed(made, "word7 number second")).outcome == "activate"


async def test_what_was_used_before_gets_its_vectors_first(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as made:
        phrases = large_tap(tmp_path / "tap", 200)
        await made.start()
        used = CapabilityId(TapName("mine"), CapabilityName("large150"))
        made.bus.publish(CapabilityUsed(SessionKey("s"), "", used))
        await wait_all_tasks_blocked()

        await outcome(made)
        await made.until_routing()

        asked = [text for text in made.embedder.texts if text in phrases]
        assert len(asked) == len(phrases)
        assert max(asked.index(text) for text in asked if text.startswith("word150 ")) < 256
