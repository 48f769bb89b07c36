"""What a prompt hook gets as its answer, and when."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from capd.actors.session.activation import Resolved
from capd.actors.session.held_turns import RETURN_TIMEOUT
from capd.adapters.timed_reads import TimedReads
from capd.core.sessions.client_traits import ClientTraits
from capd.core.sessions.routing_switch import RoutingSwitch
from capd.core.sessions.session_rules import SessionRules
from capd_protos import registry
from capd_protos.types import SessionKey

from .test_index import Real, describe, indexed
from .test_sessions import restarted_host
from .world import REGISTRY, REGISTRY_REPLIES, Client, World, running_world

T = TypeVar("T")
NEVER_BY_ITSELF = "capabilities:\n  mine/alpha:\n    activation:\n      automatic: false\n"
TELLING = SessionRules(
    table={"editor": ClientTraits(names=("editor",), reads_instructions=False)},
    bootstrapped=RoutingSwitch(is_on=True),
)
PATIENCE = 0.2
SLOW = 5.0
"""Seconds that a server takes to start."""


class SlowReads(TimedReads):
    """A disk that takes its time, on the virtual clock."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = 0.0
        self.places: list[str] = []

    async def of(self, place: str, read: Callable[[], T]) -> T:
        self.places.append(place)
        await trio.sleep(self.takes)
        return read()


@asynccontextmanager
async def telling_world(
    folder: Path, clock: MockClock, *, suggests: bool = False
) -> AsyncIterator[tuple[World, Client, Client, SlowReads]]:
    """A world whose session gets files and the index by its hook alone.

    Its clock jumps once all is read: until then it goes with the time of the machine.
    """
    clock.rate, clock.autojump_threshold = 1.0, math.inf
    async with running_world(folder, rules=TELLING, counts=Real(), pieces=Real()) as world:
        if suggests:
            describe(world, "alpha", description="Reads files of any kind")
            (world.folder / "capability-index.yaml").write_text(NEVER_BY_ITSELF)
            await world.reload()
            await world.until_routing()
        described = "files of any kind" if suggests else ""
        await indexed(
            world,
            lambda has: has["alpha"].is_automatic is not suggests and described in has["alpha"].do,
        )
        (world.project / "AGENTS.md").write_text("Never push on Fridays.\n")
        reads = world.host.services.memories.reads = SlowReads()
        client = await world.session("s")
        control = await world.controller()
        clock.rate, clock.autojump_threshold = 0.0, 0.0
        yield world, client, control, reads


def parts(answer: dict[str, Any]) -> list[str]:
    """Return which of the once-only texts (files, index) an answer contains."""
    words = {"files": "Never push on Fridays", "index": "Installed (verb: capabilities):"}
    return [part for part, text in words.items() if text in answer["context"]]


async def hooked(control: Client, text: str = "alpha things", **more: Any) -> dict[str, Any]:
    return await control.result("hook", text=text, client="editor", **more)


async def learn_alpha(world: World, control: Client) -> None:
    """Start alpha's server once, so that its tools are known."""
    await control.result("enable", name="alpha")
    await control.result("disable", name="alpha")
    await trio.sleep(60)
    assert world.machine.alive == []


async def test_a_hook_is_answered_before_it_gives_up_and_the_turn_goes_on(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        await learn_alpha(world, control)
        world.machine.scripts["alpha"].start_delay = SLOW
        began_at = trio.current_time()

        answer = await hooked(control, patience=PATIENCE)

        assert trio.current_time() - began_at <= PATIENCE
        assert answer["context"] == (
            "For this message, by tool_call(name, arguments):\n- alpha__die()\n- alpha__echo()"
        )
        await trio.sleep(2 * SLOW)
        assert (await client.tools())[-2:] == ["alpha__echo", "alpha__die"]


async def test_a_capability_that_could_not_be_switched_on_has_no_cards(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    never = SessionRules(table={"editor": ClientTraits(names=("editor",), relists="never")})
    async with running_world(tmp_path, rules=never) as world:
        await world.session("s")
        control = await world.controller()
        await learn_alpha(world, control)
        world.machine.scripts["alpha"].exits_at_start = 1

        answer = await hooked(control)

        assert answer["problem"] != ""
        assert answer["context"] == ""


async def test_where_no_tools_are_known_the_model_is_told_what_waits_for_them(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        world.machine.scripts["alpha"].start_delay = SLOW

        answer = await hooked(control, patience=PATIENCE)

        assert answer["context"] == (
            "capd is switching on 'alpha' for this message; "
            "capability(action=enable, name=alpha) waits for it and names its tools."
        )
        text, is_error = await client.capability("enable", "alpha")
        assert ("alpha__echo" in text, is_error) == (True, False)


async def test_a_hook_that_has_time_hears_what_came_on(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()
        world.machine.scripts["alpha"].start_delay = SLOW

        answer = await hooked(control)

        assert answer["context"].startswith("capd switched on 'alpha' for this message; its tools")
        assert answer["changed"]["added"] == ["alpha__echo", "alpha__die"]


@pytest.mark.parametrize(
    ("is_shown", "line"), [(True, "capd switches alpha on"), (False, "")], ids=["shown", "off"]
)
async def test_a_user_sees_what_comes_on_unless_they_want_no_such_line(
    is_shown: bool, line: str, autojump_clock: MockClock, tmp_path: Path
) -> None:
    rules = SessionRules(shows_notices=is_shown)
    async with running_world(tmp_path, rules=rules) as world:
        await world.session("s")
        control = await world.controller()

        answer = await hooked(control)

        assert answer["notice"] == line


async def test_the_model_is_told_by_the_name_that_its_client_gives_to_a_tool(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    codex = ClientTraits(("codex",), relists="never", prefix="mcp__capd__")
    rules = SessionRules(table={"codex": codex})
    async with running_world(tmp_path, rules=rules) as world:
        await world.session("s", client={"name": "codex"})
        control = await world.controller()

        answer = await hooked(control, patience=PATIENCE)

        assert answer["context"] == (
            "For this message, by mcp__capd__tool_call(name, arguments):\n"
            "- alpha__echo()\n"
            "- alpha__die()"
        )


@pytest.mark.parametrize("turn", ["", "t-1"])
async def test_of_two_hooks_of_one_prompt_the_second_is_nothing(
    autojump_clock: MockClock, tmp_path: Path, turn: str
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()
        answers: list[dict[str, Any]] = []

        async def hook() -> None:
            answers.append(await hooked(control, patience=PATIENCE, turn=turn))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hook)
            nursery.start_soon(hook)

        assert sorted(bool(answer["context"]) for answer in answers) == [False, True]
        assert {answer["reason"] for answer in answers} == {"", "repeated"}
        assert len((await control.result("status"))["decisions"]) == 1


async def test_the_same_words_are_another_prompt_where_the_client_names_it_otherwise(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()
        await hooked(control, turn="t-1")

        answer = await hooked(control, turn="t-2")

        assert answer["reason"] == "already_active"


async def test_a_hook_of_the_connection_itself_counts_with_the_others(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        await client.tools()
        await hooked(control)

        said, _ = await client.call("capd_turn", prompt="alpha things")

        assert said == "{}"


@pytest.mark.parametrize(("has_no_output", "texts"), [(False, 1), (True, 0)])
async def test_what_no_model_is_told_costs_no_tokens(
    autojump_clock: MockClock, tmp_path: Path, *, has_no_output: bool, texts: int
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()

        await hooked(control, patience=PATIENCE, mute=has_no_output)

        (session,) = (await control.result("tokens"))["sessions"]
        assert session["added"]["turns"]["count"] == texts


# Prompts of a client that knows its session's key


async def test_a_prompt_by_its_sessions_key_is_answered_in_time_and_links_the_session(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        await learn_alpha(world, control)
        world.machine.scripts["alpha"].start_delay = SLOW
        began_at = trio.current_time()

        answer = await control.result("turn", text="alpha things", patience=PATIENCE)

        assert trio.current_time() - began_at <= PATIENCE
        assert answer["context"].startswith("For this message, by tool_call(name, arguments):")
        (session,) = (await control.result("sessions"))["sessions"]
        assert session["linked_by"] == "its key"
        await trio.sleep(2 * SLOW)
        assert (await client.tools())[-2:] == ["alpha__echo", "alpha__die"]


async def test_a_prompt_by_its_sessions_key_counts_once_with_its_hook(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()
        await control.result("turn", text="alpha things", mute=True, patience=PATIENCE)

        answer = await hooked(control)

        assert answer["reason"] == "repeated"


async def test_who_tries_words_out_takes_each_turn_and_is_no_hook_of_the_client(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()

        turns = [await control.result("turn", text="alpha things", mute=True) for _ in range(2)]

        (session,) = (await control.result("sessions"))["sessions"]
        assert ([turn["reason"] for turn in turns], session["linked_by"]) == (
            ["", "already_active"],
            "",
        )


async def test_a_session_that_ends_meanwhile_ends_its_turn(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        async with running_world(tmp_path) as world:
            client, control = await world.session("s"), await world.controller()
            world.machine.scripts["alpha"].start_delay = SLOW
            await hooked(control, patience=PATIENCE)

            await client.send({"capd": "goodbye"})
            await trio.sleep(2 * SLOW)

            assert await world.leases() == {}
    assert not any(entry["event"] == "task_failed" for entry in logs)


async def test_files_that_are_read_too_slowly_take_nothing_with_them_and_come_with_the_next_message(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (_, _client, control, reads):
        reads.takes = 0.5

        slow = await hooked(control, "gibberish is said", patience=PATIENCE)
        reads.takes = 0.0
        quick = await hooked(control, "gibberish is said again", patience=PATIENCE)
        again = await hooked(control, "gibberish once more", patience=PATIENCE)

        assert [parts(each) for each in (slow, quick, again)] == [["index"], ["files"], []]


async def test_chats_that_take_turns_on_one_connection_are_each_handed_the_files_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (_, _client, control, _reads):
        answers = [
            await hooked(control, f"gibberish {number}", client_session=id_)
            for number, id_ in enumerate(("c-1", "c-2", "c-1", "c-2"))
        ]

        assert ["files" in parts(each) for each in answers] == [True, True, False, False]


async def test_another_conversation_is_told_of_what_is_installed_and_of_what_fits(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock, suggests=True) as (_, _, control, _):
        answers = [
            await hooked(control, f"alpha number {number}", client_session=id_)
            for number, id_ in enumerate(("c-1", "c-1", "c-2", "c-1"))
        ]

        said = [
            ("index" in parts(each), "Reads files of any kind" in each["context"])
            for each in answers
        ]
        assert said == [(True, True), (False, False), (True, True), (False, False)]


async def test_what_a_conversation_was_told_by_its_hook_outlives_the_daemon(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (world, client, control, _):
        answers = [await hooked(control, "gibberish one", client_session="c-1")]
        await restarted_host(world, TELLING)
        world.host.services.memories.reads = SlowReads()

        await world.session("s", resume=client.welcome["resume"])
        answers += [
            await hooked(control, f"gibberish {id_}", client_session=id_) for id_ in ("c-1", "c-2")
        ]

        assert ["files" in parts(each) for each in answers] == [True, False, True]


async def test_a_turn_that_ends_late_is_told_in_its_own_conversation(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (world, _client, control, reads):
        answers: list[dict[str, Any]] = []
        reads.takes = 0.5

        async def late() -> None:
            other = await world.controller()
            answers.append(await hooked(other, "gibberish one", client_session="c-1"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(late)
            await trio.sleep(0.25)
            answers.append(await hooked(control, "gibberish two", client_session="c-2"))

        answers.append(await hooked(control, "gibberish three", client_session="c-1"))
        assert ["files" in parts(each) for each in answers] == [True, True, False]


async def test_a_server_that_starts_and_a_slow_disk_leave_what_is_known_at_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (world, _client, control, reads):
        world.machine.scripts["alpha"].start_delay = SLOW
        reads.takes = 0.1

        early = await hooked(control, patience=PATIENCE)
        await trio.sleep(2 * SLOW)
        later = await hooked(control, "alpha again", patience=PATIENCE)

        assert "capd is switching on 'alpha' for this message" in early["context"]
        assert [parts(each) for each in (early, later)] == [["index"], ["files"]]


async def test_a_suggestion_that_nobody_heard_is_made_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock, suggests=True) as (_, _, control, reads):
        reads.takes = 0.5

        slow = await hooked(control, "alpha one", patience=PATIENCE)
        reads.takes = 0.0
        quick = await hooked(control, "alpha one, please", patience=PATIENCE)

        said = ["Reads files of any kind" in each["context"] for each in (slow, quick)]
        assert (said, quick["outcome"]) == ([False, True], "suggest")


async def test_a_message_that_finds_no_model_is_decided_by_its_words_where_they_are_sure(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        world.embedder.is_loading = True

        answer = await hooked(control, "please use alpha three on this", patience=PATIENCE)

        assert (answer["outcome"], answer["name"]) == ("activate", "alpha")
        assert (await client.tools())[-2:] == ["alpha__echo", "alpha__die"]


async def test_a_message_that_finds_no_model_is_routed_as_soon_as_it_is_there(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        world.embedder.is_loading = True
        async with trio.open_nursery() as nursery:

            async def load() -> None:
                await trio.sleep(1.5)
                world.embedder.is_loading = False

            nursery.start_soon(load)

            answer = await hooked(control, patience=10.0)

        assert (answer["outcome"], answer["name"]) == ("activate", "alpha")
        assert (await client.tools())[-2:] == ["alpha__echo", "alpha__die"]


async def test_a_hook_with_time_hears_after_a_second_what_a_server_that_starts_will_bring(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        world.machine.scripts["alpha"].start_delay = 20
        began_at = trio.current_time()

        answer = await hooked(control, patience=15.0)

        assert trio.current_time() - began_at < 2
        assert answer["context"].startswith("capd is switching on 'alpha' for this message")
        await trio.sleep(30)
        assert (await client.tools())[-2:] == ["alpha__echo", "alpha__die"]


async def test_a_hook_of_the_connection_itself_hears_after_a_second_what_is_on_its_way(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        world.machine.scripts["alpha"].start_delay = 20
        began_at = trio.current_time()

        said, is_error = await client.call("capd_turn", prompt="alpha things", session_id="c-1")

        assert trio.current_time() - began_at < 2
        assert ("capd is switching on 'alpha'" in said, is_error) == (True, False)
        await trio.sleep(30)
        assert (await client.tools())[-2:] == ["alpha__echo", "alpha__die"]


# Hooks that may wait until the model is loaded

LONGEST = 4.0


async def load_after(world: World, seconds: float) -> None:
    """Finish loading the model `seconds` after it is first requested."""
    await trio.sleep(seconds)
    world.embedder.is_loading = False


async def held_then_loaded(
    world: World, control: Client, *texts: str, after: float
) -> dict[str, Any]:
    """Send prompts while the model loads, which takes `after` seconds; then let their hooks expire.

    Return the answer to the last.
    """
    world.embedder.is_loading = True
    answer: dict[str, Any] = {}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load_after, world, after)
        for text in texts:
            answer = await hooked(control, text, patience=PATIENCE, longest=LONGEST)
    await trio.sleep(2 * LONGEST)
    return answer


async def test_a_hook_that_may_wait_comes_again_and_has_the_card_when_the_model_is_loaded(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    never = SessionRules(table={"editor": ClientTraits(names=("editor",), relists="never")})
    async with running_world(tmp_path, rules=never) as world:
        await world.session("s")
        control = await world.controller()
        world.embedder.is_loading = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load_after, world, 1.5)
            began_at = trio.current_time()

            held = await hooked(control, patience=PATIENCE, longest=LONGEST)

            assert (held["held"], held["context"]) == (True, "")
            assert trio.current_time() - began_at <= PATIENCE

            answer = await hooked(control, patience=LONGEST, again=True)

            assert (answer["held"], answer["outcome"], answer["name"]) == (
                False,
                "activate",
                "alpha",
            )
        assert answer["context"] == (
            "For this message, by tool_call(name, arguments):\n- alpha__echo()\n- alpha__die()"
        )
        assert len((await control.result("status"))["decisions"]) == 1


async def test_a_prompt_by_its_sessions_key_is_held_as_well(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()
        world.embedder.is_loading = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load_after, world, 1.5)
            asked = {"text": "alpha things", "patience": PATIENCE}

            held = await control.result("turn", **asked, longest=LONGEST)
            answer = await control.result("turn", **{**asked, "patience": LONGEST}, again=True)

        assert (held["held"], answer["name"]) == (True, "alpha")


async def test_a_hook_is_not_held_where_the_words_are_sure_or_the_model_is_there(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()
        by_model = await hooked(control, "gibberish", patience=PATIENCE, longest=LONGEST)
        world.embedder.is_loading = True

        by_words = await hooked(
            control, "please use alpha three on this", patience=PATIENCE, longest=LONGEST
        )

        assert [by_model["held"], by_words["held"]] == [False, False]
        assert by_words["name"] == "alpha"


async def test_a_hook_that_is_held_keeps_no_call_and_no_other_session_waiting(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        other = await world.session("t", client={"name": "another"})
        await control.result("enable", session="s", name="alpha")
        world.embedder.is_loading = True
        asked = {"session": "s", "text": "what does it mean"}
        await control.result("turn", **asked, patience=PATIENCE, longest=LONGEST)
        answers: list[dict[str, Any]] = []
        async with trio.open_nursery() as nursery:

            async def come_again() -> None:
                hook = await world.controller()
                answers.append(await hook.result("turn", **asked, patience=LONGEST, again=True))

            nursery.start_soon(come_again)
            began_at = trio.current_time()

            await client.call("alpha__echo")
            await other.tools()
            turn = await control.result("turn", session="t", text="please use alpha three")

            assert (turn["name"], answers) == ("alpha", [])
            assert trio.current_time() - began_at < 1
        assert answers[0]["reason"] in {"model_not_ready", "unfinished"}


async def test_what_a_held_hook_did_not_come_back_for_is_told_with_the_next_message(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (world, _client, control, _reads):
        await held_then_loaded(world, control, "gibberish one", after=2.0)

        late = await hooked(control, "gibberish one", again=True)
        following = await hooked(control, "gibberish two")

        assert [parts(each) for each in (late, following)] == [["files", "index"], []]


async def test_a_held_turn_that_ends_before_its_hook_gives_up_is_not_told_to_nobody(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (world, _client, control, _reads):
        # Within the second in which the hook may come back: the turn is over before that.
        held = await held_then_loaded(world, control, "gibberish one", after=0.5)

        following = await hooked(control, "gibberish two")

        assert (held["held"], parts(following)) == (True, ["files", "index"])


async def test_a_suggestion_of_a_held_turn_whose_hook_never_comes_back_is_made_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock, suggests=True) as (world, _, control, _):
        held = await held_then_loaded(world, control, "alpha one", after=0.5)

        following = await hooked(control, "alpha one, please")

        assert (held["held"], "Reads files of any kind" in following["context"]) == (True, True)


async def test_a_held_turn_switches_on_its_tools_without_waiting_for_its_hook(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        world.embedder.is_loading = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load_after, world, 0.3)
            began_at = trio.current_time()
            held = await hooked(control, patience=PATIENCE, longest=LONGEST)
            while "alpha__echo" not in await client.tools():
                await trio.sleep(0.01)

            took = trio.current_time() - began_at

        assert (held["held"], took < RETURN_TIMEOUT) == (True, True)


async def test_what_a_held_hook_came_back_for_is_not_told_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (world, _client, control, _reads):
        world.embedder.is_loading = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load_after, world, 2.0)
            await hooked(control, "gibberish one", patience=PATIENCE, longest=LONGEST)
            # The turn is still in progress when nobody else may come back for it any longer.
            answer = await hooked(control, "gibberish one", patience=LONGEST, again=True)
        following = await hooked(control, "gibberish two")

        assert [parts(each) for each in (answer, following)] == [["files", "index"], []]


async def test_what_was_held_for_a_hook_is_not_lost_to_a_crowd_of_others(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with telling_world(tmp_path, autojump_clock) as (world, _client, control, _reads):
        texts = [f"gibberish {each}" for each in ("one", "two", "three", "four", "five", "six")]
        await held_then_loaded(world, control, *texts, after=3.0)

        following = await hooked(control, "gibberish seven")

        assert parts(following) == ["files", "index"]


@pytest.mark.parametrize("patience", [0.001, 0.03, -1.0, 1e-300])
async def test_a_hook_with_next_to_no_patience_is_answered(
    autojump_clock: MockClock, tmp_path: Path, patience: float
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()
        world.embedder.is_loading = True

        answers = [
            await control.ask("turn", text=f"word {longest}", patience=patience, longest=longest)
            for longest in (0.0, LONGEST)
        ]

        assert [set(each) & {"result", "error"} for each in answers] == [{"result"}] * 2


async def test_of_two_hooks_of_one_held_prompt_one_has_its_words(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        world.embedder.is_loading = True
        answers: list[dict[str, Any]] = []

        async def hook() -> None:
            other = await world.controller()
            answer = await hooked(other, patience=PATIENCE, longest=LONGEST)
            if answer["held"]:
                answer = await hooked(other, patience=LONGEST, again=True)
            answers.append(answer)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load_after, world, 1.5)
            nursery.start_soon(hook)
            nursery.start_soon(hook)

        assert sorted(bool(answer["context"]) for answer in answers) == [False, True]


def tags(world: World) -> list[str]:
    """The tags of all messages that the actors have sent each other."""
    return [msgspec.msgpack.decode(each)["type"] for each in world.bus.bytes_seen]


async def test_the_registry_is_asked_once_for_a_decision_and_its_capability(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()
        world.bus.bytes_seen.clear()

        answer = await hooked(control)

        assert answer["changed"]["added"] == ["alpha__echo", "alpha__die"]
        assert [tag for tag in tags(world) if tag in {"registry.routed", "registry.resolve"}] == [
            "registry.routed"
        ]


@pytest.mark.parametrize(("later", "asked"), [(0, 0), (1, 1)])
async def test_an_answer_from_before_a_change_of_the_session_is_asked_for_again(
    later: int, asked: int, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        activation = world.host._sessions[SessionKey("s")].session.activation
        request = registry.RouteMessage(SessionKey("s"), "alpha things please")
        routed = await world.bus.ask(REGISTRY, request, REGISTRY_REPLIES, 5.0)
        assert isinstance(routed, registry.MessageRouted)
        assert routed.resolved is not None
        known = Resolved(routed.resolved, activation.changes)
        activation.changes += later
        world.bus.bytes_seen.clear()

        outcome = await activation.enable("mine/alpha", by="turn", known=known)

        assert outcome.added == ("alpha__echo", "alpha__die")
        assert tags(world).count("registry.resolve") == asked
