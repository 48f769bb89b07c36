"""The daemon or a server ends on purpose while requests are in progress."""

from pathlib import Path

import trio
from trio.testing import MockClock

from capd_protos import curator

from .fakes import FakeProcess, Json, Script, text, tool
from .world import CURATOR, CURATOR_REPLIES, OWN, World, running_world

HELLO = {"session": "s", "cwd": "/src"}


async def drained(world: World, within: float = 5.0) -> int:
    reply = await world.bus.ask(
        CURATOR, curator.DrainSessions(within), CURATOR_REPLIES, float("inf")
    )
    assert isinstance(reply, curator.SessionsDrained)
    return reply.cut


class Slow:
    """A server whose calls end when the test says so."""

    def __init__(self) -> None:
        self.may_end = trio.Event()
        self.is_called = trio.Event()

    async def call(self, process: FakeProcess, request: Json) -> None:
        self.is_called.set()
        await self.may_end.wait()
        await process.reply(request, text("done"))

    def script(self) -> Script:
        return Script(tools=[tool("echo"), tool("die")], call=self.call)


async def test_a_session_that_is_being_opened_when_the_daemon_ends_is_sent_to_the_next_one(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.kept.hold = trio.Event()
        client = await world.connected()
        answers: list[Json] = []

        async def open_session() -> None:
            answers.append(await client.hello(**HELLO))

        world.nursery.start_soon(open_session)
        await world.kept.is_asked.wait()

        cut = await drained(world)
        world.kept.hold.set()
        while not answers:
            await trio.sleep(0.01)

        assert cut == 0
        assert (answers[0]["capd"], answers[0]["code"]) == ("refused", "stopping")
        assert await world.sessions() == []


async def test_after_the_end_has_begun_no_session_opens(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await drained(world)
        client = await world.connected()

        answer = await client.hello(**HELLO)

        assert (answer["capd"], answer["code"]) == ("refused", "stopping")


async def test_a_call_under_way_ends_and_the_next_one_is_told_to_wait(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        slow = Slow()
        world.machine.scripts["alpha"] = slow.script()
        client = await world.session("s")
        await client.capability("enable", "alpha")
        said: list[tuple[str, bool]] = []
        cuts: list[int] = []

        async def call() -> None:
            said.append(await client.call("alpha__echo"))

        async def drain() -> None:
            cuts.append(await drained(world, within=1000.0))

        world.nursery.start_soon(call)
        await slow.is_called.wait()
        world.nursery.start_soon(drain)
        while not world.host._drain.is_on:
            await trio.sleep(0.01)

        refused = await client.ask("tools/call", name="alpha__echo")
        slow.may_end.set()
        await client.is_closed.wait()

        assert refused["error"]["code"] == 4001
        assert said == [("done", False)]
        assert {"capd": "closing", "reason": "stopping", "reconnect": True} in client.heard
        while not cuts:
            await trio.sleep(0.01)
        assert cuts == [0]


async def test_a_call_that_does_not_end_in_time_is_cut_and_counted(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        slow = Slow()
        world.machine.scripts["alpha"] = slow.script()
        client = await world.session("s")
        await client.capability("enable", "alpha")
        world.nursery.start_soon(client.ask, "tools/call")
        request = {"name": "alpha__echo", "arguments": {}}
        await client.send({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": request})
        await slow.is_called.wait()

        cut = await drained(world, within=1.0)

        assert cut == 1


async def test_a_server_that_is_let_go_during_a_call_stays_for_its_result(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        slow = Slow()
        world.machine.scripts["alpha"] = slow.script()
        client = await world.session("s")
        await client.capability("enable", "alpha")
        said: list[tuple[str, bool]] = []

        async def call() -> None:
            said.append(await client.call("alpha__echo"))

        world.nursery.start_soon(call)
        await slow.is_called.wait()

        await client.capability("disable", "alpha")
        during = await world.leases()
        await trio.sleep(1000)
        alive = len(world.machine.alive)
        slow.may_end.set()
        while not said:
            await trio.sleep(0.01)

        assert (during, alive, said) == ({"alpha": ["s"]}, 1, [("done", False)])
        while await world.leases():
            await trio.sleep(0.01)
        assert await client.tools() == OWN
