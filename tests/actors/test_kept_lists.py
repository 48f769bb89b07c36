"""The supervisor keeps the tool lists of servers that are not running."""

import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from trio.testing import MockClock

from capd.adapters.tool_lists import ToolList, ToolLists
from capd.core.servers.identity import server_identity
from capd_protos import supervisor as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import SessionKey, ToolDefinition, ToolName

from .fakes import server, tool
from .test_supervisor import Stage, staged

KEPT: MsgpackCodec[messages.ToolListKept] = MsgpackCodec(messages.ToolListKept)
IDENTITY = server_identity(server())


class Keeping:
    """A supervisor that saves tool lists, and the events about them."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.lists = ToolLists(folder)
        actor = stage.actor
        actor._settings = dataclasses.replace(actor._settings, tool_lists=self.lists)

    async def kept(self, number: int) -> ToolList:
        """Return the saved list after `number` events about it."""
        expected = [messages.ToolListKept(server().name, IDENTITY)] * number
        events = self.stage.bus.events
        while [e for e in events if isinstance(e, messages.ToolListKept)] != expected:
            await trio.sleep(0.01)
        listed = await self.lists.load(IDENTITY)
        assert listed is not None
        return listed


@asynccontextmanager
async def keeping(folder: Path) -> AsyncIterator[Keeping]:
    async with staged(folder) as stage:
        yield Keeping(stage, folder / "lists")


def definition(name: str) -> ToolDefinition:
    return ToolDefinition(ToolName(name), json.dumps(tool(name)).encode())


async def test_a_server_that_starts_leaves_its_list(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with keeping(tmp_path) as kept:
        await kept.stage.ready("a")

        got = await kept.kept(1)

        assert got == ToolList(
            IDENTITY, server().name, "0", got.listed_at, [definition("echo"), definition("die")]
        )


async def test_a_list_that_changes_is_kept_again(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await kept.stage.ready("a")
        await kept.kept(1)
        machine = kept.stage.machine
        machine.scripts["alpha"].tools = [tool("fresh")]

        process = machine.processes[-1]
        await process.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

        assert (await kept.kept(2)).tools == [definition("fresh")]


async def test_a_server_that_is_released_at_once_does_not_linger(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")

        await stage.ask(messages.ReleaseServer(SessionKey("a"), held.instance, at_once=True))

        with trio.fail_after(5):
            while stage.machine.alive:
                await trio.sleep(0.01)


async def test_a_server_that_another_session_holds_is_not_ended_at_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        held = await stage.ready("a")
        await stage.ready("b")

        await stage.ask(messages.ReleaseServer(SessionKey("a"), held.instance, at_once=True))

        assert await stage.states() == [("ready", [SessionKey("b")])]
