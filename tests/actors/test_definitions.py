"""Changed tool definitions are reported, withheld if necessary, and decided on by a person."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from capd.actors.control import definitions as definition_methods
from capd.actors.definitions import TRY_AGAIN
from capd.core.definitions.baseline import Baseline
from capd_protos import definitions
from capd_protos.codec import MsgpackCodec
from capd_protos.definitions import (
    DefinitionsChanged,
    ListedTool,
    ScreenTools,
    ToolsVetted,
    VetTools,
)
from capd_protos.types import (
    ActorName,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    TapName,
    ToolName,
)

from .fakes import tool
from .world import Client, World, running_world, world

ECHO, DIE = "alpha__echo", "alpha__die"
DEFINITIONS = ActorName("definitions")
REPLIES: MsgpackCodec[definitions.Reply] = MsgpackCodec(definitions.Reply)


async def shown(client: Client) -> dict[str, str]:
    tools = (await client.result("tools/list"))["tools"]
    return {each["name"]: each["description"] for each in tools if "__" in each["name"]}


async def pinned(world: World, scope: str = "shared") -> None:
    """Make the server one of a pinned version."""
    folder = world.folder / "tap" / "capabilities" / "alpha"
    folder.joinpath("default.toml").write_text(
        '[[mcp.servers]]\nname = "alpha"\ncommand = "npx"\nargs = ["-y", "alpha@1.2.3"]\n'
        f'scope = "{scope}"\n'
    )
    world.machine.scripts["npx"] = world.machine.scripts["alpha"]
    await world.reload()


async def changes(world: World, *tools: dict[str, Any]) -> None:
    """Change the server's tool list; a running server announces the change."""
    world.machine.scripts["alpha"].tools = list(tools)
    for process in world.machine.processes:
        await process.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


@pytest.fixture(autouse=True)
def a_person(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this process, which runs the daemon and has no terminal, for a person."""
    if "as_itself" not in request.fixturenames:
        monkeypatch.setattr(definition_methods, "check_person", takes_anybody)


async def takes_anybody(_method: str, _peer: object) -> None:
    """Ask for no terminal."""


@pytest.fixture
def as_itself() -> None:
    """Do nothing to this process."""


async def found(control: Client, **params: Any) -> dict[str, Any]:
    result = await control.result("definitions", server="alpha", **params)
    return dict(result["servers"][0])


async def decide(control: Client, *, accept: bool) -> dict[str, Any]:
    server = await found(control)
    digests = {each["tool"]: each["digest"] for each in server["changes"]}
    return await control.result(
        "trust_definitions", identity=server["identity"], digests=digests, accept=accept
    )


async def until_shown(client: Client, expected: dict[str, str]) -> None:
    while await shown(client) != expected:
        await trio.sleep(0.01)


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    return autojump_clock


async def test_an_ordinary_server_that_changes_goes_on_and_is_told_of(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("one"), await world.controller()
        await client.capability("enable", "alpha")

        await changes(world, tool("echo", "v2"), tool("more"))

        await until_shown(client, {ECHO: "v2", "alpha__more": ""})
        (event,) = [e for e in world.bus.events if isinstance(e, DefinitionsChanged)]
        assert (event.added, event.changed, event.removed, event.withheld) == (
            ["more"],
            ["echo"],
            ["die"],
            [],
        )
        assert await client.call(ECHO, x="1") == ('{"x": "1"}', False)
        status = (await control.result("status"))["definitions"]
        assert status == {
            "mode": "notify",
            "trusted": 2,
            "changed": 1,
            "added": 1,
            "removed": 1,
            "withheld": 0,
            "servers": ["alpha"],
            "withheld_of": [],
            "lost": [],
            "problems": [],
        }


async def test_a_pinned_version_that_changes_loses_that_tool_alone_until_it_is_accepted(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        await pinned(world)
        client, control = await world.session("one"), await world.controller()
        other = await world.session("two")
        await client.capability("enable", "alpha")
        await other.capability("enable", "beta")

        await changes(world, tool("echo", "v2"), tool("die"), tool("more"))

        await until_shown(client, {DIE: "", "alpha__more": ""})

        refused, is_error = await client.call(ECHO, x="1")
        assert is_error
        assert refused == (
            "echo of alpha is withheld: it is not defined as it was when it was trusted. The "
            "person sees the difference, and accepts it, with: capd trust definitions alpha "
            "The call was not sent."
        )
        assert await shown(other) == {"beta__echo": "", "beta__die": ""}
        difference = (await found(control, differences=True))["changes"][0]["difference"]
        assert '+  "description": "v2",' in difference.split("\n")
        assert (await decide(control, accept=True))["decided"] == ["echo", "more"]
        await until_shown(client, {DIE: "", "alpha__more": "", ECHO: "v2"})
        assert (await client.call(ECHO, x="1"))[1] is False


async def test_a_server_that_comes_back_changed_does_not_get_the_call_that_started_it(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        await pinned(world)
        client = await world.session("one")
        await client.capability("enable", "alpha")
        world.machine.scripts["alpha"].tools = [tool("echo", "v2"), tool("die")]
        await client.call(DIE)
        (process,) = world.machine.processes
        await process.wait()

        text, is_error = await client.call(ECHO, x="1")

        assert (is_error, "is withheld" in text) == (True, True)
        assert world.machine.processes[-1].asked_for("tools/call") == []
        assert (await client.call(DIE))[1]
        assert len(world.machine.processes[-1].asked_for("tools/call")) == 1


async def test_in_quarantine_nothing_is_seen_found_or_called_before_it_is_accepted(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path, mode="quarantine") as world:
        client, control = await world.session("one"), await world.controller()
        said = await client.capability("enable", "alpha")

        before = await shown(client)
        text, is_error = await client.call(ECHO, x="1")
        hits = (await control.result("search", query="alpha echo"))["hits"]

        assert (before, is_error, hits) == ({}, True, [])
        assert "is not among the tools that were trusted" in text
        note = "The person sees why with: capd trust definitions alpha"
        offers = "Capability 'alpha' is on. Its servers offer no tools."
        assert said == (f"{offers} Withheld for their definitions: echo, die. {note}", False)
        await decide(control, accept=True)
        await until_shown(client, {ECHO: "", DIE: ""})
        assert (await client.call(ECHO, x="1"))[1] is False


async def test_nobody_is_asked_why_a_tool_is_withheld_where_none_is(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("one")
        world.bus.bytes_seen.clear()

        await client.capability("enable", "alpha")

        tags = [msgspec.msgpack.decode(each)["type"] for each in world.bus.bytes_seen]
        assert (tags.count("definitions.vet"), tags.count("definitions.list")) == (1, 0)


async def test_what_was_found_before_quarantine_is_not_found_in_it_by_its_old_list(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("one")
        await client.capability("enable", "alpha")
        await changes(world, tool("echo", "v2"), tool("die"))
        await until_shown(client, {ECHO: "v2", DIE: ""})
        kept = world.kept_definitions.baselines
    async with world_in_quarantine(tmp_path, kept) as later:
        control = await later.controller()

        hits = (await control.result("search", query="alpha"))["hits"]
        while not hits:
            await trio.sleep(0.01)
            hits = (await control.result("search", query="alpha"))["hits"]

        assert [hit["name"] for hit in hits] == [DIE]


@asynccontextmanager
async def world_in_quarantine(
    folder: Path, kept: dict[ServerIdentity, Baseline]
) -> AsyncIterator[World]:
    """Yield the next daemon on the same folders."""
    async with world(folder, mode="quarantine") as made:
        made.kept_definitions.baselines.update(kept)
        await made.start()
        yield made


async def test_a_rejected_change_is_withheld_and_nobody_else_is_concerned(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("one"), await world.controller()
        await client.capability("enable", "both")
        await changes(world, tool("echo", "v2"), tool("die"))
        rest = {DIE: "", "beta__echo": "", "beta__die": ""}
        await until_shown(client, {ECHO: "v2", **rest})

        decided = await decide(control, accept=False)

        assert decided == {"schema": 1, "decided": ["echo"], "stale": [], "problem": ""}
        await until_shown(client, rest)
        text, is_error = await client.call(ECHO, x="1")
        assert (is_error, "a person has rejected its definition" in text) == (True, True)
        assert (await client.call("beta__echo", x="1"))[1] is False


async def test_what_is_not_as_it_was_shown_is_not_decided_on(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("one"), await world.controller()
        await client.capability("enable", "alpha")
        identity = (await found(control))["identity"]

        result = await control.result(
            "trust_definitions", identity=identity, digests={"echo": "0" * 64}, accept=True
        )

        assert result == {"schema": 1, "decided": [], "stale": ["echo"], "problem": ""}


async def test_a_definition_that_cannot_be_read_is_withheld_and_costs_no_other(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        spec = ServerSpec(ServerName("odd"), "stdio", TapName("t"), command="odd")
        tools = [
            ListedTool(ToolName("odd"), b'{"name":"odd","_meta":{"n":1e400}}'),
            ListedTool(ToolName("good"), b'{"name":"good"}'),
        ]
        request = VetTools(spec, ServerIdentity("0dd"), tools)

        got = await world.bus.ask(DEFINITIONS, request, REPLIES, 5.0)

        assert got == ToolsVetted([ToolName("odd")])
        (kept,) = world.kept_definitions.baselines.values()
        assert list(kept.known) == ["good"]


class Vetting:
    """A server of a pinned version, whose instances list by their projects' roots."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.spec = ServerSpec(
            ServerName("roots"), "stdio", TapName("t"), command="npx", args=("-y", "roots@1.2.3")
        )
        self.running: list[InstanceId] = []

    async def lists(self, instance: str, root: str) -> list[str]:
        """Let an instance list `ls` of its root; return which tools are withheld."""
        name = InstanceId(instance)
        self.running = list(dict.fromkeys([*self.running, name]))
        tools = [ListedTool(ToolName("ls"), b'{"name":"ls","description":"%s"}' % root.encode())]
        request = VetTools(self.spec, ServerIdentity("4007"), tools, name, self.running)
        reply = await self.world.bus.ask(DEFINITIONS, request, REPLIES, 5.0)
        assert isinstance(reply, ToolsVetted)
        return list(reply.withheld)

    @property
    def undecided(self) -> list[str]:
        (kept,) = self.world.kept_definitions.baselines.values()
        return list(kept.changes)

    @property
    def events(self) -> int:
        return sum(isinstance(each, DefinitionsChanged) for each in self.world.bus.events)


async def test_what_one_instance_changed_stays_to_be_decided_on_while_another_lists_as_trusted(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        server = Vetting(world)
        await server.lists("a", "/A")
        of_b = await server.lists("b", "/B")

        of_a = await server.lists("a", "/A")

        assert (of_a, of_b, server.undecided, server.events) == ([], ["ls"], ["ls"], 1)
        screen = ScreenTools({ServerIdentity("4007"): [ToolName("ls")]})
        screened = await world.bus.ask(DEFINITIONS, screen, REPLIES, 5.0)
        assert screened == definitions.ToolsScreened({ServerIdentity("4007"): [ToolName("ls")]})


async def test_what_is_withheld_in_one_session_can_be_accepted_whatever_another_one_has_listed(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        await pinned(world, scope="session")
        one, control = await world.session("one"), await world.controller()
        await one.capability("enable", "alpha")
        two, script = await world.session("two"), world.machine.scripts["alpha"]
        script.tools = [tool("echo", "v2"), tool("die")]
        await two.capability("enable", "alpha")
        script.tools = [tool("echo"), tool("die"), tool("more")]
        of_one = world.machine.processes[0]

        await of_one.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

        await until_shown(one, {ECHO: "", DIE: "", "alpha__more": ""})
        assert await shown(two) == {DIE: ""}
        assert sorted((await decide(control, accept=True))["decided"]) == ["echo", "more"]
        await until_shown(two, {ECHO: "v2", DIE: ""})


async def test_what_no_running_instance_lists_is_no_change_and_is_told_once(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        server = Vetting(world)
        await server.lists("a", "/A")
        await server.lists("b", "/B")
        server.running.remove(InstanceId("b"))

        await server.lists("a", "/A")

        assert server.undecided == []
        assert await server.lists("c", "/B") == ["ls"]
        assert (server.undecided, server.events) == (["ls"], 1)


async def test_a_full_disk_withholds_nothing_more_and_is_said_and_heals(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("one"), await world.controller()
        world.kept_definitions.is_full = True
        await client.capability("enable", "alpha")
        full = (await control.result("status"))["daemon"]["degraded"]

        world.kept_definitions.is_full = False
        await changes(world, tool("echo", "v2"), tool("die"))
        await until_shown(client, {ECHO: "v2", DIE: ""})

        assert full == ["the trusted definitions of alpha are not saved: No space left on device"]
        assert (await control.result("status"))["daemon"]["degraded"] == []
        assert [each["kind"] for each in (await found(control))["changes"]] == ["changed"]


async def test_what_a_full_disk_did_not_take_is_written_down_when_there_is_room(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("one"), await world.controller()
        world.kept_definitions.is_full = True
        await client.capability("enable", "alpha")
        before = dict(world.kept_definitions.baselines)

        world.kept_definitions.is_full = False
        await trio.sleep(TRY_AGAIN + 1)

        [kept] = world.kept_definitions.baselines.values()
        assert before == {}
        assert [(tool, bool(known.text)) for tool, known in kept.known.items()] == [
            ("echo", True),
            ("die", True),
        ]
        assert (await control.result("status"))["daemon"]["degraded"] == []


async def test_a_pinned_server_whose_baseline_cannot_be_read_is_withheld_and_nothing_is_lost(
    tmp_path: Path, clock: MockClock
) -> None:
    async with running_world(tmp_path) as world:
        await pinned(world)
        client = await world.session("one")
        await client.capability("enable", "alpha")
        (identity,) = world.kept_definitions.baselines
        before = dict(world.kept_definitions.baselines)
        world.kept_definitions.problems[identity] = "alpha cannot be read"
        world.kept_definitions.baselines.clear()

        await changes(world, tool("echo", "v2"), tool("die"))

        await until_shown(client, {})
        text = "echo of alpha is withheld: what is trusted is not known (alpha cannot be read)."
        assert await client.call(ECHO, x="1") == (f"{text} The call was not sent.", True)
        assert world.kept_definitions.baselines == {}
        world.kept_definitions.problems.clear()
        world.kept_definitions.baselines.update(before)
        await changes(world, tool("echo"), tool("die"))
        await until_shown(client, {ECHO: "", DIE: ""})


@pytest.mark.usefixtures("as_itself")
async def test_only_a_person_decides_on_definitions(tmp_path: Path, clock: MockClock) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("one"), await world.controller()
        await client.capability("enable", "alpha")
        identity = (await found(control))["identity"]

        answer = await control.ask("trust_definitions", identity=identity, digests={}, accept=True)

        assert answer["error"]["message"] == "a process that capd started cannot ask this"
