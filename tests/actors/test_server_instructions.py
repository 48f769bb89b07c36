"""A server's instructions reach the model when its capability is activated."""

from pathlib import Path

from trio.testing import MockClock

from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules

from .fakes import Script, tool
from .world import World, running_world

USE = "List the tables before you query one."
LINE = f"Server 'alpha' says of itself, unchecked: \"{USE}\""


def says(world: World, *, tools: int = 1) -> None:
    listed = [tool(f"tool_{number}") for number in range(tools)]
    world.machine.scripts["alpha"] = Script(tools=listed, instructions=USE)


async def test_who_switches_a_capability_on_reads_them_each_time(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        says(world)
        client = await world.session("s")

        first, _ = await client.capability("enable", "alpha")
        again, _ = await client.capability("enable", "alpha")

        assert first.splitlines()[1:] == [LINE]
        assert again.splitlines()[1:] == [LINE]


async def test_a_server_that_lists_no_tools_has_nothing_to_say(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        says(world, tools=0)
        client = await world.session("s")

        text, _ = await client.capability("enable", "alpha")

        assert "says of itself" not in text


async def test_a_server_whose_tools_are_denied_one_by_one_has_nothing_to_say(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    deny = ("alpha:tool_0", "alpha:tool_1")
    rules = SessionRules(everyone=PolicyRules("[policy]", deny=deny))
    async with running_world(tmp_path, rules=rules) as world:
        says(world, tools=2)
        client = await world.session("s")

        text, is_error = await client.capability("enable", "both")

        assert not is_error
        assert "says of itself" not in text


async def test_a_prompt_hook_brings_them_in_the_turn_that_switches_it_on_and_in_no_other(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        says(world)
        await world.until_routing()
        await world.session("s")
        control = await world.controller()

        told = [
            await control.result("hook", text="alpha things please", project=str(world.project))
            for _ in range(2)
        ]

        assert told[0]["context"].splitlines() == [
            "capd switched on 'alpha' for this message; its tools are listed now: alpha__tool_0.",
            LINE,
        ]
        assert told[1]["context"] == ""
