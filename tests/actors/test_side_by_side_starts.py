"""Starts of one session side by side: nothing waits for another's, and a commit looks again.

Servers that never answer stand for those that take their time; no test waits for one.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from capd.core.sessions.policy import Policy, PolicyRules

from .fakes import Script, tool
from .world import OWN, Client, World, running_world

PATIENCE = 30.0
ALPHA = ["alpha__echo", "alpha__die"]
BETA = ["beta__echo", "beta__die"]


@asynccontextmanager
async def hanging_world(folder: Path) -> AsyncIterator[tuple[World, Client, Client]]:
    """A session with three starts that never end, and the active capability `on`."""
    async with running_world(folder) as world:
        world.capability("script", "alpha", provider='[deps]\nrequire = ["org/slow"]\n')
        script = world.folder / "tap" / "deps" / "org" / "slow.sh"
        script.parent.mkdir(parents=True)
        script.write_text("sleep 600\n")
        world.capability("silent", "silent")
        world.capability("slow", "slow")
        world.capability("on", "on")
        world.machine.scripts["silent"] = Script(tools=[tool("echo")], is_ready=False)
        world.machine.scripts["slow"] = Script(tools=[tool("echo")], start_delay=25)
        await world.reload()
        await world.until_routing()
        client, control = await world.session("s"), await world.controller()
        await client.capability("enable", "on")
        # Real time: nothing here may wait for the end of a start.
        async with trio.open_nursery() as nursery:
            for name in ("script", "silent", "slow"):
                nursery.start_soon(client.capability, "enable", name)
            while not {"silent", "slow"} <= {each.argv[0] for each in world.machine.specs}:
                await trio.sleep(0.001)
            yield world, client, control
            nursery.cancel_scope.cancel()


async def test_three_starts_that_hang_keep_nothing_else_of_the_session_waiting(
    tmp_path: Path,
) -> None:
    with trio.fail_after(PATIENCE):
        async with hanging_world(tmp_path) as (world, client, control):
            answer = await control.result(
                "hook", text="beta things", client="editor", patience=PATIENCE
            )
            enabled, _ = await client.capability("enable", "alpha")
            found, is_error = await client.call("tool_search", query="select:on__echo")
            called, _ = await client.call("tool_call", name="on__echo", arguments={"a": 1})
            listed = await client.tools()
            disabled, _ = await client.capability("disable", "beta")

            assert "beta__echo" in answer["context"]
            assert "switching on" not in answer["context"]
            assert enabled.startswith("Capability 'alpha' is on.")
            assert ("on__echo" in found, is_error) == (True, False)
            assert json.loads(called) == {"a": 1}
            assert set(listed) >= {*OWN, "on__echo", *ALPHA, *BETA}
            assert disabled.startswith("Capability 'beta' is off.")
            assert client.list_changes > 0
            assert [each.name for each in await world.servers() if each.state == "starting"] == [
                "silent",
                "slow",
            ]


async def test_a_turn_that_waits_keeps_no_other_change_from_the_client(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].start_delay = 50
        client, control = await world.session("s"), await world.controller()
        await control.result("hook", text="alpha things", client="editor", patience=0.2)

        await client.capability("enable", "beta")

        assert client.list_changes == 1
        await trio.sleep(100)
        assert client.list_changes == 2


async def test_two_requests_for_one_capability_share_one_start(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].start_delay = 20
        client = await world.session("s")
        said: list[str] = []

        async def enable() -> None:
            said.append((await client.capability("enable", "alpha"))[0])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(enable)
            nursery.start_soon(enable)

        assert len(world.machine.specs) == 1
        assert sorted(text.partition(".")[0] for text in said) == [
            "Capability 'alpha' is already on",
            "Capability 'alpha' is on",
        ]


async def test_one_of_two_requests_that_is_cancelled_leaves_the_other_its_start(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].start_delay = 20
        client = await world.session("s")
        params = {"name": "capability", "arguments": {"action": "enable", "name": "both"}}
        await client.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.capability, "enable", "alpha")
            await trio.sleep(10)

            cancel = {"method": "notifications/cancelled", "params": {"requestId": "x"}}
            await client.send({"jsonrpc": "2.0", **cancel})

        assert await client.tools() == OWN + ALPHA
        await trio.sleep(100)
        assert await world.leases() == {"alpha": ["s"]}
        assert len(world.machine.specs) == 1


async def test_what_is_switched_off_while_it_starts_stays_off_and_is_let_go(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].start_delay = 50
        client = await world.session("s")
        said: list[tuple[str, bool]] = []

        async def enable() -> None:
            said.append(await client.capability("enable", "alpha"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(enable)
            await trio.sleep(10)
            off, is_error = await client.capability("disable", "alpha")

        assert (off, is_error) == (
            "Capability 'alpha' was switched off while it was starting.",
            False,
        )
        assert said == [(off, True)]
        await trio.sleep(100)
        assert (await client.tools(), await world.leases()) == (OWN, {})


@pytest.mark.parametrize("denied", ["alpha", "beta"])
async def test_a_policy_that_comes_while_a_capability_starts_is_kept(
    autojump_clock: MockClock, tmp_path: Path, denied: str
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["beta"].start_delay = 50
        client = await world.session("s")
        session = world.host._sessions[next(iter(world.host._sessions))].session
        policy = Policy((PolicyRules("[policy]", deny=(f"{denied}:*",)),))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.capability, "enable", "both")
            await trio.sleep(10)

            session.activation.restrict(policy)

        left = BETA if denied == "alpha" else ALPHA
        assert await client.tools() == OWN + left
        assert await world.leases() == {left[0].partition("__")[0]: ["s"]}


async def test_a_capability_that_goes_while_another_starts_its_server_leaves_the_server(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["beta"].start_delay = 50
        client = await world.session("s")
        await client.capability("enable", "alpha")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.capability, "enable", "both")
            await trio.sleep(10)

            await client.capability("disable", "alpha")

        assert await client.tools() == OWN + ALPHA + BETA
        assert await world.leases() == {"alpha": ["s"], "beta": ["s"]}
        assert len(world.machine.specs) == 2


async def test_calls_of_one_server_that_died_share_its_start_and_calls_of_others_go_on(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "both")
        await client.call("alpha__die")
        world.machine.scripts["alpha"].start_delay = 20
        began_at = trio.current_time()
        took: dict[str, float] = {}

        async def call(key: str, name: str) -> None:
            await client.call(name, a=1)
            took[key] = trio.current_time() - began_at

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "one", "alpha__echo")
            nursery.start_soon(call, "two", "alpha__echo")
            await trio.sleep(1)
            nursery.start_soon(call, "other", "beta__echo")

        assert (took["other"] < 2, took["one"] >= 20, took["two"] >= 20) == (True, True, True)
        assert len(world.machine.specs) == 3
