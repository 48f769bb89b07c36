"""Memories in sessions: delivered once, with their capability or tool; some refuse mistakes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from capd.actor_clients.finder import FinderClient
from capd.actors.session.memory_catalog import MOST_PROJECTS
from capd.core.sessions.hook_context import TURN_TOKENS
from capd.core.sessions.session_record import SessionRecord
from capd.core.sessions.session_rules import SessionRules
from capd_protos import curator, finder
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    ServerName,
    SessionKey,
    TapName,
    ToolName,
)

from .fakes import FakeProcess, Json, tool
from .fakes import text as said
from .test_sessions import restarted_host
from .world import CURATOR, CURATOR_REPLIES, Client, World, world

FACT = 'kind = "declarative"\ncontent = "Alpha is slow on Mondays."\ncapability = "alpha"\n'
MISTAKE = """kind = "corrective"
content = "There is no label area:goal: use goals."
tool = "alpha:echo"
refuses = true
arguments.required = ["label"]
arguments.properties.label.const = "area:goal"
"""
HEAD = "Known from before:"
TOLD_FACT = "\n- Fact (alpha): Alpha is slow on Mondays."
TOLD_MISTAKE = "\n- Correction (alpha:echo): There is no label area:goal: use goals."
NOTE = "\nKnown mistake: There is no label area:goal: use goals."


def memory(made: World, name: str, text: str) -> None:
    folder = made.folder / "tap" / "memories"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text)


@asynccontextmanager
async def started(folder: Path, tokens: int = 2000, **memories: str) -> AsyncIterator[World]:
    async with world(folder, rules=SessionRules(memory_tokens=tokens)) as made:
        for name, text in memories.items():
            memory(made, name, text)
        await made.start()
        yield made


async def texts(client: Client, tool_name: str, /, **arguments: Any) -> list[str]:
    result = await client.result("tools/call", name=tool_name, arguments=arguments)
    return [block["text"] for block in result["content"]]


async def enabled(client: Client, name: str = "alpha") -> list[str]:
    return await texts(client, "capability", action="enable", name=name)


async def test_what_is_known_of_a_capability_is_told_when_it_comes_on_and_once(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, fact=FACT, mistake=MISTAKE) as made:
        client = await made.session("s")

        first = await enabled(client)
        again = [await enabled(client), await texts(client, "alpha__echo", text="hi")]

        assert first[1:] == [HEAD + TOLD_MISTAKE + TOLD_FACT]
        assert [len(each) for each in again] == [1, 1]


async def test_a_session_keeps_its_memories_however_many_projects_come_after(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, mistake=MISTAKE) as made:
        client = await made.session("s")
        for number in range(MOST_PROJECTS + 2):
            await made.host.services.memories.load_project(str(tmp_path / f"project-{number}"))

        told = await enabled(client)

        assert told[1:] == [HEAD + TOLD_MISTAKE]


async def test_nothing_is_told_of_what_is_off(tmp_path: Path) -> None:
    async with started(tmp_path, fact=FACT, mistake=MISTAKE) as made:
        client = await made.session("s")

        told = await enabled(client, "beta")

        assert len(told) == 1


async def test_a_known_mistake_is_refused_and_never_reaches_the_server(tmp_path: Path) -> None:
    async with started(tmp_path, mistake=MISTAKE) as made:
        client = await made.session("s")
        await enabled(client)

        refused = await client.result(
            "tools/call", name="alpha__echo", arguments={"label": "area:goal"}
        )
        through = await client.call(
            "tool_call", name="alpha__echo", arguments={"label": "area:goal"}
        )
        right = await client.call("alpha__echo", label="area:goals")

        text = refused["content"][0]["text"]
        assert text.startswith(
            "Not called: these arguments repeat a known mistake. There is no label area:goal: "
        )
        assert refused["isError"]
        assert refused["_meta"] == {"capd/outcome": "refused", "capd/retriable": False}
        assert through == (text, True)
        assert right == ('{"label": "area:goals"}', False)
        assert len(called(made)) == 1


async def test_a_refused_call_is_counted_once_and_so_is_the_one_that_worked_then(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, tokens=0, mistake=MISTAKE) as made:
        client = await made.session("s")
        await enabled(client)

        await client.call("alpha__echo", label="area:goal")
        for _ in range(2):
            await client.call("alpha__echo", label="area:goals")

        (entry,) = (await described(made)).memories
        assert (entry.told, entry.refused, entry.worked) == (0, 1, 1)


async def test_a_correction_stands_in_its_tools_description_and_keeps_its_bytes(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, mistake=MISTAKE) as made:
        client = await made.session("s")
        await enabled(client)

        before = await listed(client)
        memory(made, "mistake", MISTAKE.replace("There is", "There was"))
        await changed(made)
        after = await listed(client)
        made.machine.scripts["alpha"].tools = [tool("echo", "Says it."), tool("die")]
        (process,) = [each for each in made.machine.processes if each.is_alive]
        await process.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        while (redefined := await listed(client)) == before:
            await trio.sleep(0.001)
        await client.capability("disable", "alpha")
        await enabled(client)
        again = await listed(client)

        assert [each["description"] for each in before[-2:]] == [NOTE.lstrip(), ""]
        assert after == before
        assert redefined[-2]["description"] == f"Says it.{NOTE}"
        assert again[-2]["description"] == f"Says it.{NOTE}".replace("There is", "There was")


async def test_a_correction_that_nobody_agrees_to_any_more_leaves_the_description_of_its_tool(
    tmp_path: Path,
) -> None:
    kept = MISTAKE.replace("There is no label area:goal", "Nobody reads it")
    async with started(tmp_path, mistake=MISTAKE, kept=kept) as made:
        client = await made.session("s")
        await enabled(client)
        before = [each["description"] for each in (await listed(client))[-2:]]
        (made.folder / "tap/memories/mistake.toml").unlink()
        await made.reload()

        left = await made.bus.ask(
            CURATOR, curator.LeaveProject(str(made.project)), CURATOR_REPLIES, 1000.0
        )

        after = [each["description"] for each in (await listed(client))[-2:]]
        other = "Known mistake: Nobody reads it: use goals."
        assert left == curator.ProjectLeft()
        assert NOTE.lstrip() in before[0]
        assert (after, client.list_changes) == ([other, ""], 2)


async def test_a_correction_whose_file_is_removed_leaves_the_description_of_its_tool(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, mistake=MISTAKE) as made:
        client = await made.session("s")
        await enabled(client)
        before = [each["description"] for each in (await listed(client))[-2:]]
        (made.folder / "tap/memories/mistake.toml").unlink()

        await made.reload()
        with trio.fail_after(10):
            while client.list_changes < 2:
                await trio.sleep(0.001)

        after = [each["description"] for each in (await listed(client))[-2:]]
        assert (before, after) == ([NOTE.lstrip(), ""], ["", ""])


async def test_what_the_budget_has_no_room_for_is_left_out_and_counted(tmp_path: Path) -> None:
    long = FACT.replace("slow", "slow " * 100)
    async with started(tmp_path, tokens=100, fact=FACT, long=long) as made:
        client = await made.session("s")

        first = await enabled(client)
        again = await texts(client, "alpha__echo")

        (session,) = await made.sessions()
        assert first[1:] == [HEAD + TOLD_FACT]
        assert len(again) == 1
        counts = (session.memories, session.memories_left_out, session.memory_budget)
        assert counts == (1, 1, 100)
        assert 0 < session.memory_tokens <= 100


async def test_what_a_person_switched_on_is_told_with_the_next_result_of_a_tool(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, fact=FACT) as made:
        client, person = await made.session("s"), await made.controller()
        await person.result("enable", name="alpha")

        results = [await texts(client, "alpha__echo", n=n) for n in (1, 2)]

        assert results == [['{"n": 1}', HEAD + TOLD_FACT], ['{"n": 2}']]


async def test_a_turn_tells_what_came_on_and_nothing_tells_it_again(tmp_path: Path) -> None:
    async with started(tmp_path, fact=FACT) as made:
        client = await made.session("s")
        made.registry._vectors._need.set()
        await made.until_routing()

        turns = [await client.result("capd/turn", text="alpha one") for _ in range(2)]
        result = await texts(client, "alpha__echo")

        assert [turn["memories"] for turn in turns] == [HEAD + TOLD_FACT, ""]
        assert len(result) == 1


async def test_another_conversation_of_the_same_client_is_told_anew(tmp_path: Path) -> None:
    async with started(tmp_path, fact=FACT) as made:
        client = await made.session("s")
        await enabled(client)

        hooks = [
            await client.result(
                "tools/call", name="capd_turn", arguments={"prompt": prompt, "session_id": id_}
            )
            for prompt, id_ in (("x y", "c-1"), ("x z", "c-1"), ("x y z", "c-2"))
        ]

        told = ["Alpha is slow" in hook["content"][0]["text"] for hook in hooks]
        assert told == [False, False, True]


async def test_chats_that_take_turns_on_one_connection_are_each_told_once(tmp_path: Path) -> None:
    async with started(tmp_path, fact=FACT) as made:
        client = await made.session("s")
        await enabled(client)

        hooks = [
            await client.call("capd_turn", prompt=f"x y z {number}", session_id=id_)
            for number, id_ in enumerate(("c-1", "c-1", "c-2", "c-1", "c-2", "c-1"))
        ]

        told = ["Alpha is slow" in text for text, _ in hooks]
        assert told == [False, False, True, False, False, False]


async def test_another_conversation_after_a_restart_is_told_and_the_same_one_is_not(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with started(tmp_path, fact=FACT) as made:
        client = await made.session("s")
        await client.call("capd_turn", prompt="x y z", session_id="c-1")
        told = [len(await enabled(client))]
        await until_kept(made, lambda record: bool(record.memories))
        await restarted_host(made)

        client = await made.session("s", resume=client.welcome["resume"])
        for id_ in ("c-2", "c-1"):
            said, _ = await client.call("capd_turn", prompt=f"x y z {id_}", session_id=id_)
            told.append("Alpha is slow" in said)

        assert told == [2, True, False]


async def test_a_failed_call_and_the_one_that_worked_are_a_lesson(tmp_path: Path) -> None:
    async with started(tmp_path) as made:
        client = await made.session("s")
        await enabled(client)
        made.machine.scripts["alpha"].call = picky

        for label in ("area:goal", "goals", "area:goal"):
            await client.call("alpha__echo", label=label, n=1)

        assert (await described(made)).lessons == [
            curator.LessonEntry(
                ServerName("alpha"),
                ToolName("echo"),
                '`label` = "area:goal" failed; "goals" worked.',
                b'{"properties":{"label":{"const":"area:goal"}},"required":["label"]}',
                1,
            )
        ]


async def test_a_turn_with_a_budget_brings_what_has_room_and_says_what_has_not(
    tmp_path: Path,
) -> None:
    long = FACT.replace("slow", "slow " * 100)
    async with started(tmp_path, fact=FACT, long=long) as made:
        client, person = await made.session("s"), await made.controller()
        await enabled(client)
        await client.capability("disable", "alpha")
        made.host._sessions[SessionKey("s")].session.turns.on_client_session("c-1")
        made.host._sessions[SessionKey("s")].session.turns.on_client_session("c-2")
        made.registry._vectors._need.set()
        await made.until_routing()
        await indexed(made)

        none = await person.result("turn", text="alpha one", budget=150)
        some = await person.result("turn", text="alpha one", budget=500)

        reasons = [(each["kind"], each["name"], each["reason"]) for each in none["left_out"]]
        assert (none["outcome"], none["reason"], none["changed"]["added"]) == (
            *("abstain", "over_budget"),
            [],
        )
        assert ("capability", "mine/alpha", "larger than the whole budget") in reasons
        assert some["changed"]["added"] == ["alpha__echo", "alpha__die"]
        assert some["memories"] == HEAD + TOLD_FACT
        assert some["budgeted"] <= 500
        assert [each["name"] for each in some["left_out"]] == ["mine/long"]


async def test_what_a_turn_would_tell_is_due_after_one_that_no_model_hears(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, fact=FACT) as made:
        client, person = await made.session("s"), await made.controller()
        await enabled(client)
        made.host._sessions[SessionKey("s")].session.turns.on_client_session("c-1")
        made.host._sessions[SessionKey("s")].session.turns.on_client_session("c-2")

        told = [
            (await person.result("turn", text="x y", mute=has_no_output))["memories"]
            for has_no_output in (True, False)
        ]

        assert told == ["", HEAD + TOLD_FACT]


async def test_a_turn_with_a_budget_tells_of_all_that_it_switched_on_and_suggests_none_of_it(
    tmp_path: Path,
) -> None:
    async with started(tmp_path) as made:
        for name in ("alpha", "beta"):
            file = made.folder / "tap/capabilities" / name / "config.toml"
            file.write_text('triggers = ["same one", "same two", "same three"]')
        await made.reload()
        # No message is between clear and hopeless for vectors that are alike or not at all.
        made.registry._profile = replace(made.registry._profile, threshold=1.5)
        client, person = await made.session("s"), await made.controller()
        for name in ("alpha", "beta"):
            await enabled(client, name)
            await client.capability("disable", name)
        made.registry._vectors._need.set()
        await made.until_routing()
        await indexed(made, "alpha", "beta")

        turn = await person.result("turn", text="same thing", budget=5000)

        assert turn["outcome"] == "suggest"
        assert turn["changed"]["added"] == ["alpha__echo", "alpha__die", "beta__echo", "beta__die"]
        assert turn["suggestion"] == ""
        assert turn["context"].splitlines() == [
            f"capd switched on '{name}' for this message; its tools are listed now: "
            f"{name}__echo, {name}__die."
            for name in ("alpha", "beta")
        ]


async def test_a_turn_with_a_budget_counts_what_descriptions_say_of_known_mistakes(
    tmp_path: Path,
) -> None:
    long = MISTAKE.replace("use goals.", "use goals " + "and nothing else at all " * 12)
    async with started(tmp_path, mistake=long) as made:
        client, person = await made.session("s"), await made.controller()
        await enabled(client)
        await client.capability("disable", "alpha")
        made.registry._vectors._need.set()
        await made.until_routing()
        await indexed(made)
        session = made.host._sessions[SessionKey("s")].session

        turn = await person.result("turn", text="alpha one", budget=5000)

        alpha = [each for each in session.calls.definitions() if b'"alpha__' in each]
        assert len(alpha) == 2
        assert b"Known mistake" in alpha[0]
        assert turn["budgeted"] >= sum(map(len, alpha)) + TURN_TOKENS


@pytest.mark.parametrize(
    ("budget", "added", "left_out", "definitions"),
    [
        (5000, ["alpha__echo", "alpha__die"], [], 143),
        (240, ["alpha__die"], ["mine/alpha", "alpha__echo"], 71),
    ],
)
async def test_a_turn_with_a_budget_counts_a_tool_once_and_takes_it_alone_where_all_have_no_room(
    tmp_path: Path, budget: int, added: list[str], left_out: list[str], definitions: int
) -> None:
    async with started(tmp_path) as made:
        made.registry._profile = replace(made.registry._profile, threshold=1.5)
        client, person = await made.session("s"), await made.controller()
        await enabled(client)
        await client.capability("disable", "alpha")
        made.registry._vectors._need.set()
        await made.until_routing()
        await indexed(made)

        turn = await person.result("turn", text="alpha things please", budget=budget)

        assert turn["changed"]["added"] == added
        assert [each["name"] for each in turn["left_out"]] == left_out
        assert turn["budgeted"] == definitions + TURN_TOKENS


@pytest.mark.parametrize("budget", [300, 600, 1000])
async def test_of_a_capability_larger_than_the_budget_the_tools_that_fit_come_on(
    tmp_path: Path, budget: int
) -> None:
    async with started(tmp_path) as made:
        made.machine.scripts["alpha"].tools = [
            tool(f"{verb}_{thing}", description=f"{verb}s a {thing} " + "x" * 50)
            for verb in ("read", "write", "move")
            for thing in ("goal", "plan", "note", "page")
        ]
        client, person = await made.session("s"), await made.controller()
        await enabled(client)
        await client.capability("disable", "alpha")
        made.registry._vectors._need.set()
        await made.until_routing()
        await indexed(made)
        session = made.host._sessions[SessionKey("s")].session

        turn = await person.result("turn", text="alpha one: move the page", budget=budget)

        added = [each for each in session.calls.definitions() if b'"alpha__' in each]
        assert (turn["outcome"], turn["reason"], turn["name"]) == (
            *("activate", "over_budget"),
            "alpha",
        )
        assert "alpha__move_page" in turn["changed"]["added"]
        assert len(turn["changed"]["added"]) == len(added) > 0
        assert sum(map(len, added)) + TURN_TOKENS == turn["budgeted"] <= budget
        assert budget - turn["budgeted"] < max(map(len, added)) + 8
        assert ("capability", "mine/alpha") in [
            (each["kind"], each["name"]) for each in turn["left_out"]
        ]


async def indexed(made: World, *names: str) -> None:
    """Wait until the planner knows the tools of these capabilities; of alpha if none is named."""
    wanted = [CapabilityId(TapName("mine"), CapabilityName(name)) for name in names or ("alpha",)]
    while True:
        request = finder.ListGranted(wanted)
        if all(
            each.is_known for each in await FinderClient(made.bus).granted(request, timeout=1000.0)
        ):
            return
        await trio.sleep(0.1)


async def until_kept(made: World, is_so: Callable[[SessionRecord], bool]) -> None:
    """Wait until the session's saved record has the expected state."""
    key = SessionKey("s")
    while key not in made.kept.records or not is_so(made.kept.records[key]):
        await trio.sleep(0.01)


def called(made: World) -> list[Json]:
    return [each for p in made.machine.processes for each in p.asked_for("tools/call")]


async def listed(client: Client) -> list[Json]:
    tools: list[Json] = (await client.result("tools/list"))["tools"]
    return tools


async def described(made: World) -> curator.MemoriesDescribed:
    request = curator.DescribeMemories(str(made.project))
    reply = await made.bus.ask(CURATOR, request, CURATOR_REPLIES, 1000.0)
    assert isinstance(reply, curator.MemoriesDescribed)
    return reply


async def changed(made: World) -> None:
    """Wait until written memories are loaded."""
    before = await described(made)
    await made.reload()
    while (await described(made)).memories == before.memories:
        await trio.sleep(0.001)


async def picky(process: FakeProcess, request: Json) -> None:
    """Answer as a server that knows no label area:goal."""
    arguments = request["params"]["arguments"]
    is_wrong = arguments.get("label") == "area:goal"
    await process.reply(request, {**said("so"), "isError": is_wrong})
