"""The finder: every tool that is known, found by words and by meaning, with no server running.

    lists kept, catalog changed ──> index by words (at once) ──> vectors, in the background
    a query before the vectors are there, or without the model, is answered by words alone

It reads the tool lists that the supervisor keeps, for the servers that the catalog names, and
embeds what it has not embedded before. A query's text is embedded and forgotten.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio

from capd.actors.skill_finder import MOST_BESIDE_TOOLS, SkillFinder
from capd.actors.tool_indexing import distinct, index_servers, index_session
from capd.actors.tool_vectors import ToolVectors
from capd.adapters import platform
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.tool_lists import ToolLists
from capd.core.sessions.policy import Policy, PolicyRules
from capd.core.tools import search_answers
from capd.core.tools.known_tools import KnownTools, Source
from capd.core.tools.tool_question import BadQuestionError, Selection, question
from capd.core.tools.tool_search import Bar, ToolIndex
from capd.core.tools.tool_text import Tool
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd.runtime.serving import serve
from capd_protos import definitions, registry
from capd_protos import finder as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.supervisor import ToolListKept
from capd_protos.types import (
    ActorName,
    CapabilitySpec,
    ServerIdentity,
    ServerName,
    ToolDefinition,
    ToolName,
    WireName,
)

if TYPE_CHECKING:
    from capd.core.tools.tool_search import Vectors

NAME = ActorName("finder")
REGISTRY = ActorName("registry")
REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
REGISTRY_REPLIES: MsgpackCodec[registry.Reply] = MsgpackCodec(registry.Reply)
DEFINITIONS = ActorName("definitions")
DEFINITION_REPLIES: MsgpackCodec[definitions.Reply] = MsgpackCodec(definitions.Reply)
Hint = ToolListKept | registry.CatalogChanged | definitions.DefinitionsSettled
HINTS: MsgpackCodec[Hint] = MsgpackCodec(Hint)
TOPICS = ("server.listed", "registry.changed", "definitions.settled")

CATALOG_TIMEOUT = 10.0
DESCRIBE_TIMEOUT = 3.0
SETTLE = 0.2
"""Seconds for which further changes are awaited: a start-up brings many lists at once."""

log = structlog.get_logger(actor="finder")

_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)


class ToolFinder:
    """Message in, tools out."""

    def __init__(
        self,
        bus: Bus,
        lists: ToolLists,
        environments: SessionEnvironments,
        cache_file: Path,
        *,
        is_screened: bool = False,
    ) -> None:
        """`cache_file` is for the vectors of tools; those of skills are beside it.

        `is_screened` asks which tools of a kept list are withheld.
        """
        self._is_screened = is_screened
        self._bus = bus
        self._lists = lists
        self._environments = environments
        self._vectors = ToolVectors(bus, cache_file)
        self._skills = SkillFinder(bus, cache_file.with_name("skill_vectors.bin"))
        self._index = ToolIndex()
        self._known = KnownTools()
        self._unlisted: list[ServerName] = []
        self._was_read = trio.Event()
        self._changed = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        self._changed.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            nursery.start_soon(self._follow)
            nursery.start_soon(self._vectors.follow)
            nursery.start_soon(self._skills.follow)
            await serve(self._bus, NAME, REQUESTS, self._replied, log=log, task_status=task_status)

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.FindTools():
                return await self._find(request)
            case messages.FindSkills(query, most):
                words = query.strip()
                vector = await self._vectors.of_query(words) if self._skills.has_any else None
                return messages.SkillsFound(self._skills.found(words, max(1, most), vector))
            case messages.IndexServers():
                return await self._index_servers(request)
            case messages.LookUpTool():
                return self._looked_up(request)
            case messages.DescribeTools():
                if request.waits:
                    with trio.move_on_after(DESCRIBE_TIMEOUT):
                        await self._was_read.wait()
                return self._described(request)

    # Search

    async def _find(self, request: messages.FindTools) -> messages.Reply:
        try:
            asked = question(request.query, request.max_results)
        except BadQuestionError as error:
            return messages.FinderRefused(str(error))
        given = {name: Bar(bar.code, bar.reason) for name, bar in request.barred.items()}
        barred = {**self._bars(request.rules, request.keys), **given}
        if isinstance(asked, Selection):
            selected = self._index.selected(asked.names, request.cap, barred)
            hits = [self._hit(each) for each in selected.tools]
            text = search_answers.unresolved(selected, self._searched())
            return messages.ToolsFound(hits, text, len(self._index.tools), "selected")
        vector: Vectors | None = None
        if self._index.tools or self._skills.has_any:
            vector = await self._vectors.of_query(asked.words)
        index = self._index
        found = index.ranked(asked.words, asked.limit, vector, barred)
        text = search_answers.withheld(found.withheld)
        if not found.hits:
            text = search_answers.missed(asked.words, found, self._searched())
        elif found.is_lexical:
            text = f"{search_answers.WORDS_ALONE} {text}".rstrip()
        return messages.ToolsFound(
            [self._hit(hit.tool, hit.score) for hit in found.hits],
            text,
            len(index.tools),
            "lexical" if found.is_lexical else "fused",
            self._skills.found(asked.words, MOST_BESIDE_TOOLS, vector),
        )

    def _searched(self) -> search_answers.Searched:
        return search_answers.searched(self._index, self._unlisted)

    def _bars(
        self, rules: Sequence[messages.PolicyTable], keys: Sequence[str] | None
    ) -> dict[WireName, Bar]:
        tables = (PolicyRules(r.place, tuple(r.allow), tuple(r.deny)) for r in rules)
        return self._known.bars(Policy(tuple(tables)), None if keys is None else frozenset(keys))

    def _hit(self, found: Tool, score: float = 0.0) -> messages.ToolHit:
        return hit_of(self._known.sources[found.wire_name], score)

    def _looked_up(self, request: messages.LookUpTool) -> messages.ToolLookedUp:
        searched, unlisted = len(self._index.tools), len(self._unlisted)
        barred = self._bars(request.rules, request.keys)
        source = self._known.source(request.name, request.identity)
        if source is None:
            near = list(self._index.near(request.name, barred))
            return messages.ToolLookedUp(near=near, searched=searched, unlisted=unlisted)
        bar = barred.get(source.wire_name)
        told = messages.ToolBar(bar.code, bar.reason) if bar else None
        return messages.ToolLookedUp(hit_of(source), told, searched=searched, unlisted=unlisted)

    def _described(self, request: messages.DescribeTools) -> messages.ToolsDescribed:
        known = self._known
        barred = self._bars(request.rules, None)
        permitted = [source for wire, source in known.sources.items() if wire not in barred]
        return messages.ToolsDescribed(
            self._was_read.is_set(),
            len(permitted),
            sum(len(source.definition.json) for source in permitted),
            len(self._unlisted),
            [hit_of(source) for source in known.matching(request.patterns, barred)],
            [messages.EagerServer(spec, via) for spec, via in known.eager.values()],
        )

    # What there is

    async def _listen(self) -> None:
        async with self._bus.subscribe(HINTS, *TOPICS) as hints:
            async for _ in hints:
                self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await trio.sleep(SETTLE)
            self._changed = trio.Event()
            await contained("refresh", self._refresh, log=log)

    async def _refresh(self) -> None:
        """Index what the catalog's servers listed last."""
        started_at = trio.current_time()
        try:
            skills = await self._bus.ask(
                REGISTRY, registry.ListSkills(), REGISTRY_REPLIES, CATALOG_TIMEOUT
            )
            capabilities = await self._capabilities()
            servers = distinct(server for c in capabilities for server in c.servers)
            lists = await self._screened(list(servers))
        except _UNANSWERED as error:
            log.warning("catalog_not_read", reason=str(error))
            self._changed.set()
            return
        assert isinstance(skills, registry.SkillsListed)
        await self._skills.take(skills)
        known = KnownTools(capabilities, lists)
        self._unlisted = sorted({s.name for i, s in servers.items() if i not in lists})
        index = await trio.to_thread.run_sync(ToolIndex, known.tools)
        platform.trim_memory()
        self._index, self._known = index, known
        self._was_read.set()
        self._bus.publish(messages.ToolsIndexed(len(index.tools), index.servers))
        self._vectors.wanted(index)
        log.info(
            "tools_indexed",
            tools=len(index.tools),
            servers=len(lists),
            unlisted=len(self._unlisted),
            seconds=round(trio.current_time() - started_at, 3),
        )

    async def _screened(
        self, servers: list[ServerIdentity]
    ) -> dict[ServerIdentity, list[ToolDefinition]]:
        """Return what these servers listed last, without what is withheld."""
        kept = {i: each.tools for i, each in (await self._lists.load_all(servers)).items()}
        if not self._is_screened or not kept:
            return kept
        request = definitions.ScreenTools({i: [t.name for t in kept[i]] for i in kept})
        reply = await self._bus.ask(DEFINITIONS, request, DEFINITION_REPLIES, CATALOG_TIMEOUT)
        assert isinstance(reply, definitions.ToolsScreened)
        barred = {identity: frozenset(names) for identity, names in reply.withheld.items()}
        none: frozenset[ToolName] = frozenset()
        return {i: [t for t in kept[i] if t.name not in barred.get(i, none)] for i in kept}

    async def _capabilities(self) -> list[CapabilitySpec]:
        listed = await self._bus.ask(
            REGISTRY, registry.ListCapabilities(), REGISTRY_REPLIES, CATALOG_TIMEOUT
        )
        assert isinstance(listed, registry.CapabilitiesListed)
        found: list[CapabilitySpec] = []
        for entry in listed.capabilities:
            if not entry.is_routable:
                continue
            request = registry.ResolveCapability(f"{entry.tap}/{entry.name}")
            reply = await self._bus.ask(REGISTRY, request, REGISTRY_REPLIES, CATALOG_TIMEOUT)
            if isinstance(reply, registry.CapabilityResolved):
                found.append(reply.capability)
        return found

    # capd index

    async def _index_servers(self, request: messages.IndexServers) -> messages.ServersIndexed:
        capabilities = await self._capabilities()
        servers = distinct(server for c in capabilities for server in c.servers)
        session = index_session()
        self._environments.put(session, self._environments.values(request.session))
        try:
            indexed = await index_servers(self._bus, servers, session, request.project)
        finally:
            self._environments.drop(session)
        return messages.ServersIndexed(indexed)


def hit_of(source: Source, score: float = 0.0) -> messages.ToolHit:
    """Return a tool as it is told to others."""
    return messages.ToolHit(
        source.wire_name,
        source.definition.name,
        source.spec.name,
        source.identity,
        source.definition.json,
        score,
        source.spec,
        source.capabilities[0],
    )
