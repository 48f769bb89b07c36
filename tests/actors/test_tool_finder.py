"""Every known tool is found, whether or not its server runs."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
import trio
import trio.testing

from capd.actor_clients.names import FINDER
from capd.actors.finder.finder import ToolFinder
from capd.actors.finder.indexing import AT_ONCE
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.tool_lists import ToolLists
from capd.core.servers.identity import server_identity
from capd.core.tools.search_answers import WORDS_ALONE
from capd.runtime.mailbox import serve
from capd_protos import embedder, finder, registry, supervisor
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import SessionStarted
from capd_protos.types import (
    ActorName,
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    SkillSpec,
    TapName,
    ToolDefinition,
    ToolName,
    WireName,
)

from .fakes import RecordingBus, server
from .world import FakeEmbedder

REPLIES: MsgpackCodec[finder.Reply] = MsgpackCodec(finder.Reply)
EVENTS: MsgpackCodec[finder.Event] = MsgpackCodec(finder.Event)
REGISTRY_REQUESTS: MsgpackCodec[registry.Request] = MsgpackCodec(registry.Request)
SUPERVISOR_REQUESTS: MsgpackCodec[supervisor.Request] = MsgpackCodec(supervisor.Request)
REGISTRY, SUPERVISOR = ActorName("registry"), ActorName("supervisor")
TAP, FS = TapName("mine"), ServerName("fs")
LOG = structlog.get_logger()


def definition(name: str, description: str) -> ToolDefinition:
    content = msgspec.json.encode({"name": name, "description": description})
    return ToolDefinition(ToolName(name), content)


FILES = [definition("read", "Read a file."), definition("drop", "Delete a file.")]
MAILS = [definition("send", "Send a message.")]


class FakeRegistry:
    """A registry with the catalog that the test sets."""

    def __init__(self) -> None:
        self.capabilities: dict[str, CapabilitySpec] = {}
        self.skills: list[registry.SkillEntry] = []
        self.snapshots: dict[ServerIdentity, list[ToolDefinition]] = {}

    def add(
        self,
        name: str,
        *servers: ServerSpec,
        allowed: tuple[str, ...] | None = None,
        tap: TapName = TAP,
    ) -> None:
        id_ = CapabilityId(tap, CapabilityName(name))
        self.capabilities[name] = CapabilitySpec(id_, "x", servers=servers, allowed_tools=allowed)

    async def replied(self, request: registry.Request) -> registry.Reply:
        if isinstance(request, registry.ResolveCapability):
            name = request.name.rpartition("/")[2]
            return registry.CapabilityResolved(self.capabilities[name])
        if isinstance(request, registry.ListSpecs):
            return registry.SpecsListed(list(self.capabilities.values()))
        if isinstance(request, registry.ListSkills):
            return registry.SkillsListed(self.skills)
        if isinstance(request, registry.ListToolSnapshots):
            return registry.ToolSnapshotsListed(self.snapshots)
        entries = [
            registry.CapabilityEntry(each.id.tap, each.id.name, "x", is_routable=True)
            for each in self.capabilities.values()
        ]
        return registry.CapabilitiesListed(entries)


class FakeSupervisor:
    """A supervisor with scripted tool lists, and a journal of the requests."""

    def __init__(self) -> None:
        self.tools: dict[str, list[ToolDefinition]] = {}
        self.silent: set[str] = set()
        self.journal: list[str] = []
        self.running = 0
        self.most_running = 0

    async def replied(self, request: supervisor.Request) -> supervisor.Reply:
        match request:
            case supervisor.AcquireServer(server=spec):
                self.journal.append(f"acquire {spec.name}")
                if spec.name in self.silent:
                    await trio.sleep_forever()
                if spec.name not in self.tools:
                    return supervisor.ServerRefused(spec.name, "cannot_start", "it broke", ["no!"])
                self.running += 1
                self.most_running = max(self.most_running, self.running)
                await trio.sleep(1)
                identity = server_identity(spec)
                id_ = InstanceId(f"{spec.name}-1")
                return supervisor.ServerReady(id_, identity, spec.name, 1, self.tools[spec.name])
            case supervisor.ReleaseServer():
                self.running -= 1
                self.journal.append(f"release {request.instance} at_once={request.at_once}")
            case supervisor.ReleaseSession():
                self.journal.append("release session")
        return supervisor.LeasesReleased()


class Stage:
    """A finder with fakes around it."""

    def __init__(self, bus: RecordingBus, folder: Path) -> None:
        self.bus = bus
        self.registry = FakeRegistry()
        self.supervisor = FakeSupervisor()
        self.embedder = FakeEmbedder(bus)
        self.lists = ToolLists(folder / "tools")
        self.finder = ToolFinder(
            bus, self.lists, SessionEnvironments(), folder / "tool_vectors.bin"
        )
        self.heard: list[finder.ToolsIndexed] = []
        self._news = trio.Event()

    async def keep(self, spec: ServerSpec, tools: list[ToolDefinition]) -> None:
        await self.lists.keep(server_identity(spec), spec.name, "1", tools)

    async def start(self, nursery: trio.Nursery, *, is_used: bool = True) -> None:
        await nursery.start(self._listen)
        await nursery.start(self.embedder.run)
        await nursery.start(
            partial(serve, self.bus, REGISTRY, REGISTRY_REQUESTS, self.registry.replied, log=LOG)
        )
        await nursery.start(
            partial(
                serve, self.bus, SUPERVISOR, SUPERVISOR_REQUESTS, self.supervisor.replied, log=LOG
            )
        )
        await nursery.start(self.finder.run)
        if is_used:
            await trio.testing.wait_all_tasks_blocked()
            self.begin_session()

    def begin_session(self) -> None:
        self.bus.publish(SessionStarted(SessionKey("s1"), "claude-code"))

    async def until(self, tools: int, *, has_vectors: bool) -> None:
        while not any((e.tools, e.has_vectors) == (tools, has_vectors) for e in self.heard):
            await self._news.wait()

    async def _listen(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with self.bus.subscribe(EVENTS, "index.tools") as events:
            task_status.started()
            async for event in events:
                assert isinstance(event, finder.ToolsIndexed)
                self.heard.append(event)
                self._news.set()
                self._news = trio.Event()

    async def find(self, query: str, **more: Any) -> finder.ToolsFound:
        reply = await self.ask(finder.FindTools(query, **more))
        assert isinstance(reply, finder.ToolsFound), reply
        return reply

    async def ask(self, request: finder.Request) -> finder.Reply:
        return await self.bus.ask(FINDER, request, REPLIES, 10_000.0)


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[tuple[Stage, trio.Nursery]]:
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        yield Stage(bus, folder), nursery
        nursery.cancel_scope.cancel()


async def test_kept_lists_are_searched_with_no_server_running(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"), allowed=("read",))
        stage.registry.add("mails", server("mail"))
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery)
        await stage.until(1, has_vectors=True)

        got = await stage.find("read a file")

        identity = server_identity(server("fs"))
        hit = finder.ToolHit(
            WireName("fs__read"),
            FILES[0].name,
            FS,
            identity,
            FILES[0].json,
            got.hits[0].score,
            server("fs"),
            CapabilityId(TAP, CapabilityName("files")),
        )
        assert got == finder.ToolsFound([hit], "", 1, "fused")
        assert stage.supervisor.journal == []


async def test_what_a_search_needs_is_made_from_the_first_session_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"))
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery, is_used=False)
        await stage.until(2, has_vectors=False)
        await trio.sleep(3600)
        assert stage.embedder.texts == []
        assert not stage.finder._sets.users.index.is_prepared

        stage.begin_session()

        await stage.until(2, has_vectors=True)
        # The words are indexed in a thread, meanwhile, and under this lock.
        async with stage.finder._reading:
            assert stage.finder._sets.users.index.is_prepared


async def test_a_search_without_a_session_finds_by_words_and_has_the_vectors_made(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"))
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery, is_used=False)
        await stage.until(2, has_vectors=False)

        got = await stage.find("delete a file")

        assert [hit.name for hit in got.hits] == ["drop", "read"]
        await stage.until(2, has_vectors=True)


async def test_the_first_reading_waits_for_no_further_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capd.actors.finder.finder.DEBOUNCE", math.inf)
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"))
        await stage.keep(server("fs"), FILES)

        await stage.start(nursery)

        with trio.fail_after(60):
            await stage.until(2, has_vectors=False)


async def test_a_server_that_lists_other_tools_is_searched_by_them(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"))
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery)
        await stage.until(2, has_vectors=True)

        await stage.keep(server("fs"), MAILS)
        stage.bus.publish(supervisor.ToolListKept(FS, server_identity(server("fs"))))

        await stage.until(1, has_vectors=True)
        assert [hit.name for hit in (await stage.find("message")).hits] == ["send"]


async def test_a_catalog_that_changed_is_searched(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery)
        await stage.until(0, has_vectors=False)

        stage.registry.add("files", server("fs"))
        stage.bus.publish(registry.CatalogChanged([]))

        await stage.until(2, has_vectors=True)
        assert (await stage.find("select:fs__drop")).hits[0].name == "drop"


async def test_without_the_model_words_decide_and_it_is_said(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.embedder.is_loading, stage.embedder.reason = True, "it is broken"
        stage.registry.add("files", server("fs"))
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery)
        await stage.until(2, has_vectors=False)

        got = await stage.find("delete a file", max_results=1)

        assert ([hit.name for hit in got.hits], got.text, got.mode) == (
            ["drop"],
            WORDS_ALONE,
            "lexical",
        )


async def test_a_query_that_found_no_model_brings_it_up(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"))
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery)
        await stage.until(2, has_vectors=True)
        stage.embedder.is_loading = True
        stage.bus.events.clear()

        got = await stage.find("read")

        await trio.testing.wait_all_tasks_blocked()
        assert got.mode == "lexical"
        assert embedder.EmbedderNeeded() in stage.bus.events


async def test_vectors_are_not_made_again_after_a_restart(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"))
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery)
        await stage.until(2, has_vectors=True)

    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"))
        await stage.start(nursery)

        await stage.until(2, has_vectors=True)

        assert stage.embedder.texts == []
        assert embedder.EmbedderNeeded() not in stage.bus.events


async def test_a_query_that_is_none_is_refused(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        await stage.start(nursery)

        got = await stage.ask(finder.FindTools("  "))

        assert isinstance(got, finder.FinderRefused)
        assert got.message.startswith("`query` is empty")


async def test_each_server_is_asked_once_a_few_at_a_time_and_let_go(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        names = [f"s{number}" for number in range(9)]
        for name in names:
            stage.supervisor.tools[name] = FILES
            # Two capabilities share each server.
            stage.registry.add(f"{name}-one", server(name))
            stage.registry.add(f"{name}-two", server(name))
        await stage.start(nursery)

        got = await stage.ask(finder.IndexServers(SessionKey("")))

        assert isinstance(got, finder.ServersIndexed)
        assert [(each.name, each.tools, each.error) for each in got.servers] == [
            (name, 2, "") for name in names
        ]
        assert sorted(stage.supervisor.journal) == sorted(
            [f"acquire {name}" for name in names]
            + [f"release {name}-1 at_once=True" for name in names]
            + ["release session"]
        )
        assert (stage.supervisor.most_running, stage.supervisor.running) == (AT_ONCE, 0)


async def test_a_server_that_fails_or_hangs_is_a_line_and_stops_no_other(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.supervisor.tools["good"] = FILES
        stage.supervisor.silent.add("mute")
        stage.registry.add("all", server("broken"), server("good"), server("mute"))
        await stage.start(nursery)

        got = await stage.ask(finder.IndexServers(SessionKey("")))

        assert isinstance(got, finder.ServersIndexed)
        assert [(each.name, each.tools, each.error) for each in got.servers] == [
            ("broken", 0, "it broke (last on stderr: no!)"),
            ("good", 2, ""),
            ("mute", 0, "it was not ready within 75 s"),
        ]
        assert finder.IndexStarted(3) in stage.bus.events
        progress = [e for e in stage.bus.events if isinstance(e, finder.ServerIndexed)]
        assert [(e.done, e.total) for e in progress] == [(1, 3), (2, 3), (3, 3)]
        assert stage.supervisor.journal[-1] == "release session"


REVIEW = registry.SkillEntry(
    WireName("review"),
    SkillSpec(TAP, "review", "/t/SKILL.md", "Walks through a change.", ("git",)),
)


async def test_skills_are_found_beside_tools_and_by_themselves(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.skills = [REVIEW]
        stage.registry.add("files", server("fs"))
        await stage.keep(server("fs"), FILES)
        await stage.start(nursery)
        await stage.until(2, has_vectors=True)

        beside = await stage.find("walk through a file")
        alone = await stage.ask(finder.FindSkills("what was changed"))

        assert isinstance(alone, finder.SkillsFound)
        assert {hit.wire_name for hit in beside.hits} == {"fs__read", "fs__drop"}
        assert [hit.prompt for hit in beside.skills] == ["review"]
        assert [(hit.prompt, hit.skill) for hit in alone.hits] == [("review", REVIEW.skill)]


async def test_skills_are_found_where_there_is_no_tool_at_all(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.skills = [REVIEW]
        await stage.start(nursery)
        await stage.until(0, has_vectors=False)

        found = await stage.find("walk through a change")

        assert (found.hits, [hit.prompt for hit in found.skills]) == ([], ["review"])


async def test_a_projects_tools_cost_the_model_nothing_that_everybody_has(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as (stage, nursery):
        stage.registry.add("files", server("fs"))
        stage.registry.add("mails", server("mail"), tap=TapName("project:/work"))
        await stage.keep(server("fs"), FILES)
        await stage.keep(server("mail"), MAILS)

        await stage.start(nursery)
        while (await stage.find("send", project="/work")).mode != "fused":
            await trio.sleep(1)

        embedded = [text for text in stage.embedder.texts if text != "send"]
        assert len(embedded) == len(FILES) + len(MAILS)
        assert {each.tools for each in stage.heard} == {len(FILES)}
