"""The finder: finds every known tool by words and by meaning, without running any server.

    nobody uses capd ──a search, or 10 s after the first session began──> the steps below begin
    a saved list or the catalog changes ──> indexed by words at once ──> vectors in the background
    a query without vectors or without the model ──> answered by words alone

The finder reads the saved tool lists of the catalog's servers, and embeds new texts. A query's text
is embedded and not stored.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog
import trio

from capd.actor_clients.definitions import DefinitionsClient
from capd.actor_clients.names import FINDER
from capd.actor_clients.registry import RegistryClient
from capd.actors.finder.indexing import distinct, index_servers, index_session
from capd.actors.finder.skill_search import MOST_BESIDE_TOOLS, SkillFinder
from capd.actors.finder.tool_sets import ToolSet, ToolSets
from capd.actors.finder.tool_tokens import ToolTokens
from capd.actors.finder.tool_vectors import ToolVectors
from capd.adapters.catalog_memory import trim_after_load
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.tokens.counted_texts import CountedTexts, Counts
from capd.adapters.tokens.piece_counts import PieceCounts
from capd.adapters.tool_lists import ToolLists
from capd.core.index.token_costs import TokenCosts
from capd.core.sessions.policy import Policy, PolicyRules
from capd.core.sessions.turn_cards import (
    RemainingTools,
    fitting_cards,
    further_cards,
    possible_cards,
)
from capd.core.sessions.whole_list import model_bytes
from capd.core.tools import search_answers
from capd.core.tools.call_cards import call_card
from capd.core.tools.curation import Field, curated, curated_by_keywords, ranked_within
from capd.core.tools.known_tools import KnownTools, Source, lacks
from capd.core.tools.tool_question import BadQuestionError, Selection, question
from capd.core.trust.project_tap import project_of
from capd.runtime.boundary import contained, kept_running
from capd.runtime.bus import ActorUnavailableError, Bus
from capd.runtime.mailbox import serve
from capd_protos import definitions, registry
from capd_protos import finder as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import SessionStarted
from capd_protos.supervisor import ToolListKept
from capd_protos.types import (
    CapabilityName,
    CapabilitySpec,
    ServerIdentity,
    ServerName,
    ServerSpec,
    ToolDefinition,
    ToolName,
    WireName,
)

if TYPE_CHECKING:
    from capd.core.tools.tool_search import Vectors

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
Hint = ToolListKept | registry.CatalogChanged | definitions.DefinitionsReviewed | SessionStarted
HINTS: MsgpackCodec[Hint] = MsgpackCodec(Hint)
MOST_MEASURED = 8
"""If the definitions of all tools have more than this many times the bytes that a list of all tools
may have, the exact size of that list is not computed. Definitions of fewer bytes may fit even if
they are over the limit, because their output schemas do not count: a model does not read them."""

TOPICS = ("server.listed", "registry.changed", "definitions.settled", "session.started")
USE_AFTER = 10.0
"""Seconds from the first session until searches are prepared, unless a search comes earlier.

Computing the vectors of new tools takes the model a second, and the user's first message would have
to wait for that.
"""

CATALOG_TIMEOUT = 10.0
DESCRIBE_TIMEOUT = 3.0
CATCH_UP_TIMEOUT = 2.0
"""Seconds for which the look-up of an unknown tool waits for a catalog that has just changed."""
CLEAR_SKILL = 0.45
"""A turn's text for the model names a skill that nobody searched for, if its score, of meaning and
words together, is at least this."""

DEBOUNCE = 0.2
"""Seconds to wait for further changes, because many lists arrive together after a start."""

log = structlog.get_logger(actor="finder")


class ToolFinder:
    """Searches the tools and skills that a session may use, by meaning and by words."""

    def __init__(
        self,
        bus: Bus,
        lists: ToolLists,
        environments: SessionEnvironments,
        cache_file: Path,
        counts: Counts | None = None,
        *,
        pieces: PieceCounts | None = None,
        is_screened: bool = False,
    ) -> None:
        """Create it. The vectors of tools are saved in `cache_file`, those of skills beside it.

        `counts` counts the tokens of tool definitions, `pieces` those of call cards. With
        `is_screened`, the finder asks the definitions actor which tools of a saved list are
        withheld.
        """
        self._tokens = ToolTokens(counts or CountedTexts())
        self._is_screened = is_screened
        self._bus = bus
        self._definitions = DefinitionsClient(bus)
        self._registry = RegistryClient(bus)
        self._lists = lists
        self._environments = environments
        self._vectors = ToolVectors(bus, cache_file)
        self._sets = ToolSets(
            ToolSet(self._vectors),
            lambda name: ToolVectors(
                bus,
                cache_file.with_name(f"tool_vectors.{name}.bin"),
                # Events of a project's vectors would reveal how many tools it has.
                announces=False,
                users=self._vectors,
            ),
        )
        self._skills = SkillFinder(bus, cache_file.with_name("skill_vectors.bin"))
        self._pieces = pieces or PieceCounts()
        self._has_other_cards = trio.Event()
        self._was_read = trio.Event()
        self._read: list[CapabilitySpec] = []
        self._made_of: (
            tuple[
                list[CapabilitySpec],
                dict[ServerIdentity, list[ToolDefinition]],
                frozenset[ServerIdentity],
            ]
            | None
        ) = None
        """The capabilities and tool lists from which the present tool sets are made; None at
        first."""
        self._reading = trio.Lock()
        self._changed = trio.Event()
        self._caught_up = trio.Event()
        self._in_use = trio.Event()
        """Set at the first search, or `USE_AFTER` seconds after the first session begins. Before
        that, nothing is prepared for searches."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer requests until cancelled."""
        self._changed.set()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            keep = partial(kept_running, log=log)
            nursery.start_soon(keep, "hints", self._listen)
            nursery.start_soon(keep, "catalog", self._follow)
            nursery.start_soon(keep, "uses", self._follow_use)
            nursery.start_soon(keep, "card counts", self._count_cards)
            nursery.start_soon(keep, "tool vectors", self._vectors.follow)
            nursery.start_soon(keep, "skill vectors", self._skills.follow)
            await serve(
                self._bus,
                FINDER,
                REQUESTS,
                self._replied,
                log=log,
                task_status=task_status,
                # This reply grows with the catalog.
                offers=(messages.CapabilitiesDescribed,),
            )

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.FindTools():
                return await self._find(request)
            case messages.FindSkills():
                return await self._skills_found(request)
            case messages.IndexServers():
                return await self._index_servers(request)
            case messages.LookUpTool():
                return await self._look_up(request)
            case messages.CurateTools():
                return await self._curate(request)
            case messages.RankTools():
                return await self._rank(request)
            case messages.DescribeTools():
                return await self._described(request)
            case messages.ListDenied():
                return await self._denied(request)
            case messages.CountTools():
                return await self._count(request)
            case messages.ListGranted():
                return await self._granted(request)
            case messages.DescribeCapabilities():
                return await self._capabilities_described(request)

    async def _skills_found(self, request: messages.FindSkills) -> messages.Reply:
        words = request.query.strip()
        self._in_use.set()
        await self._skills.prepare()
        vector = await self._vectors.of_query(words) if self._skills.has_any else None
        most = max(1, request.max_results)
        return messages.SkillsFound(self._skills.found(words, most, vector))

    # Search

    async def _find(self, request: messages.FindTools) -> messages.Reply:
        try:
            asked = question(request.query, request.max_results)
        except BadQuestionError as error:
            return messages.FinderRefused(str(error))
        policy = _policy(request.rules)
        tools = await self._searchable(request.project)
        barred = tools.restrictions(policy, request.keys, request.domain)
        if isinstance(asked, Selection):
            selected = tools.index.selected(asked.names, request.cap, barred)
            hits = [hit_of(tools.known.sources[each.wire_name]) for each in selected.tools]
            text = search_answers.unresolved(selected, tools.searched(policy))
            unknown = " ".join(name.partition("__")[0] for name in selected.unknown)
            text = _with_locked(text, tools.locked(unknown, request, policy))
            return messages.ToolsFound(hits, text, len(tools.index.tools), "selected")
        vector: Vectors | None = None
        if tools.index.tools or self._skills.has_any:
            vector = await self._vectors.of_query(asked.words)
        index, known = tools.index, tools.known
        inside = known.of_capabilities(request.capability, request.category)
        found = index.ranked(
            asked.words, asked.limit, vector, barred, required=asked.required, inside=inside
        )
        text = search_answers.withheld(found.withheld)
        if not found.hits:
            text = search_answers.missed(asked.words, found, tools.searched(policy))
        elif found.is_lexical:
            text = f"{search_answers.WORDS_ALONE} {text}".rstrip()
        text = _with_locked(text, tools.locked(asked.words, request, policy))
        return messages.ToolsFound(
            [hit_of(known.sources[hit.tool.wire_name], hit.score) for hit in found.hits],
            text,
            len(index.tools),
            "lexical" if found.is_lexical else "fused",
            self._skills.found(asked.words, MOST_BESIDE_TOOLS, vector),
        )

    async def _curate(self, request: messages.CurateTools) -> messages.ToolsCurated:
        tools = await self._searchable(request.project)
        index, known = tools.index, tools.known
        if not index.tools or not request.text.strip():
            return messages.ToolsCurated([])
        is_hybrid = request.scorer == "hybrid"
        asks_model = is_hybrid and request.asks_model and index.has_vectors
        vector = await self._vectors.of_query(request.text, waits=False) if asks_model else None
        barred = tools.restrictions(_policy(request.rules), request.keys, request.domain)
        left_out = {*barred, *known.granted_by(frozenset(request.active))}
        used = ((known.source(use.tool, use.identity), use.count) for use in request.uses)
        field = Field(
            left_out,
            [source.wire_name for source in known.matching(request.pins, barred)],
            {source.wire_name: count for source, count in used if source is not None},
        )
        if is_hybrid:
            best = curated(index, request.text, request.k, field, vector)
        else:
            # In a thread: 20,000 descriptions take 40 ms.
            asked = (known.tools, request.text, request.k, field)
            best = await trio.to_thread.run_sync(curated_by_keywords, *asked)
        return messages.ToolsCurated(
            [
                messages.CuratedTool(
                    hit_of(known.sources[each.tool.wire_name], each.score),
                    each.is_clear,
                    each.is_pinned,
                )
                for each in best
            ]
        )

    async def _rank(self, request: messages.RankTools) -> messages.ToolsRanked:
        tools = await self._searchable(request.project)
        index, known = tools.index, tools.known
        is_known = all(known.lists(id_) for id_ in request.capabilities)
        barred = tools.restrictions(_policy(request.rules), request.keys, request.domain)
        inside = known.granted_by(frozenset(request.capabilities)) - barred.keys()
        has_any = index.has_vectors or self._skills.has_any
        asks_model = request.asks_model and has_any and bool(request.text.strip())
        vector = await self._vectors.of_query(request.text, waits=False) if asks_model else None
        skills = [
            each
            for each in self._skills.found(request.text, 1, vector)
            if vector is not None and each.score >= CLEAR_SKILL
        ]
        if not inside:
            return messages.ToolsRanked([], 0, is_known, skills)
        used = ((known.source(use.tool, use.identity), use.count) for use in request.uses)
        uses = {source.wire_name: count for source, count in used if source is not None}
        best = ranked_within(
            index, request.text, inside, most=request.most, uses=uses, vector=vector
        )
        hits = [hit_of(known.sources[each.wire_name]) for each in best.tools]
        return messages.ToolsRanked(hits, len(inside), is_known, skills, best.is_spoken_of)

    async def _look_up(self, request: messages.LookUpTool) -> messages.ToolLookedUp:
        looked_up = await self._known_by_name(request)
        if looked_up.hit is None and self._is_behind:
            # `capd call` may come immediately after `capd add`.
            with trio.move_on_after(CATCH_UP_TIMEOUT):
                while self._is_behind:
                    await self._caught_up.wait()
            looked_up = await self._known_by_name(request)
        return looked_up

    @property
    def _is_behind(self) -> bool:
        """Whether the catalog or a tool list has changed since the finder last read it."""
        return self._changed.is_set() or self._reading.locked()

    async def _known_by_name(self, request: messages.LookUpTool) -> messages.ToolLookedUp:
        policy = _policy(request.rules)
        tools = await self._sets.of(request.project)
        searched, unlisted = len(tools.index.tools), len(tools.unlisted_for(policy))
        barred = tools.restrictions(policy, request.keys, request.domain)
        source = tools.known.source(request.name, request.identity)
        if source is None and not request.identity and ":" in request.name:
            source = tools.known.find(request.name)
        if source is None and not request.identity:
            meant = tools.index.named(request.name)
            source = tools.known.source(meant) if meant is not None else None
        if source is None:
            await tools.prepare()
            near = list(tools.index.near(request.name, barred))
            server = request.name.partition("__")[0]
            locked = tools.locked(server, request, policy).get(ServerName(server))
            # The name may be of a server whose tools are unknown because it lacks a secret.
            lacking = lacks(locked) if locked else None
            return messages.ToolLookedUp(
                restriction=messages.ToolRestriction(lacking.code, lacking.reason)
                if lacking
                else None,
                near=near,
                searched=searched,
                unlisted=unlisted,
            )
        restriction = barred.get(source.wire_name)
        reason = (
            messages.ToolRestriction(restriction.code, restriction.reason) if restriction else None
        )
        hit = hit_of(source)
        if source.listed is not None:
            hit = msgspec.structs.replace(hit, listed=source.listed.json)
        return messages.ToolLookedUp(hit, reason, searched=searched, unlisted=unlisted)

    async def _described(self, request: messages.DescribeTools) -> messages.ToolsDescribed:
        if request.waits:
            await self._read_once()
        tools, policy = await self._sets.of(request.project), _policy(request.rules)
        known, barred = tools.known, tools.restrictions(policy, None, request.domain)
        # The session's mode depends on the tools that servers have listed. Tools that only taps
        # record do not count.
        unseen = tools.unseen_tools()
        permitted = [
            source
            for wire, source in known.sources.items()
            if wire not in barred and wire not in unseen
        ]
        eager = known.eager(policy, request.domain).values()
        never_listed = len(tools.never_listed(policy))
        size_bytes = sum(len(source.definition.json) for source in permitted)
        # Measured exactly only for a small catalog; a large one exceeds the limit in any case.
        is_small = 0 < size_bytes <= MOST_MEASURED * request.whole_bytes
        read_bytes = size_bytes
        if is_small:
            read_bytes = sum(model_bytes(source.definition.json) for source in permitted)
        is_whole = is_small and not never_listed and read_bytes <= request.whole_bytes
        return messages.ToolsDescribed(
            self._was_read.is_set(),
            len(permitted),
            size_bytes,
            never_listed,
            [hit_of(source) for source in known.matching(request.patterns, barred)],
            [messages.EagerServer(each.spec, each.capability.id) for each in eager],
            read_bytes,
            self._skills.count,
            [hit_of(source) for source in permitted] if is_whole else [],
        )

    async def _denied(self, request: messages.ListDenied) -> messages.DeniedListed:
        await self._read_once()
        known = (await self._sets.of(request.project)).known
        denied = known.denied_capabilities(_policy(request.rules))
        return messages.DeniedListed(
            self._was_read.is_set(),
            [
                messages.DeniedCapability(id_, restriction.reason)
                for id_, restriction in denied.items()
            ],
        )

    async def _granted(self, request: messages.ListGranted) -> messages.GrantedListed:
        tools = await self._sets.of(request.project)
        barred = tools.restrictions(_policy(request.rules), request.keys, request.domain)
        known = tools.known
        return messages.GrantedListed(
            [
                messages.Granted(
                    id_,
                    [
                        hit_of(known.sources[wire])
                        for wire in sorted(known.granted_by({id_}))
                        if wire not in barred
                    ],
                    known.lists(id_),
                )
                for id_ in request.capabilities
            ]
        )

    async def _read_once(self) -> None:
        with trio.move_on_after(DESCRIBE_TIMEOUT):
            await self._was_read.wait()

    async def _count(self, request: messages.CountTools) -> messages.ToolsCounted:
        if not self._was_read.is_set():
            return messages.ToolsCounted(is_known=False)
        tools, policy = await self._sets.of(request.project), _policy(request.rules)
        known, unlisted = tools.known, tools.never_listed(policy)
        # Tools that only a tap records are left out: no client would have listed them.
        barred = tools.restrictions(policy, None).keys() | tools.unseen_tools()
        permitted = sum(wire not in barred for wire in known.sources)
        tokens = await self._tokens.of_permitted(known, barred)
        return messages.ToolsCounted(True, permitted, tokens, unlisted)

    async def _capabilities_described(
        self, request: messages.DescribeCapabilities
    ) -> messages.CapabilitiesDescribed:
        if request.waits:
            await self._read_once()
        if not self._was_read.is_set():
            return messages.CapabilitiesDescribed(is_known=False)
        known = (await self._sets.of(request.project)).known
        own = {"", await self._sets.paths.of(request.project)}
        tokens = await self._tokens.of_each(known) if request.counts else None
        of_project = [each for each in self._read if project_of(each.id.tap) in own]
        described = await trio.to_thread.run_sync(capability_tools, of_project, known, tokens)
        return messages.CapabilitiesDescribed(True, described)

    # The catalog

    async def _listen(self) -> None:
        async with self._bus.subscribe(HINTS, *TOPICS) as hints:
            async for hint in hints:
                if not isinstance(hint, SessionStarted):
                    self._changed.set()
                elif not self._in_use.is_set():
                    self._nursery.start_soon(self._use_soon)

    async def _use_soon(self) -> None:
        await trio.sleep(USE_AFTER)
        self._in_use.set()

    async def _follow_use(self) -> None:
        await self._in_use.wait()
        await contained("prepare", self._prepare, log=log)

    async def _prepare(self) -> None:
        async with self._reading:
            await self._sets.use()
            await self._skills.use()

    async def _searchable(self, project: str) -> ToolSet:
        """Return the tools that sessions of a project can find, ready to be searched."""
        self._in_use.set()
        await self._skills.prepare()
        return await self._sets.searchable(project)

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            # No debounce the first time, because the first client waits.
            if self._was_read.is_set():
                await trio.sleep(DEBOUNCE)
            self._changed = trio.Event()
            await contained("refresh", self._refresh, log=log)
            self._caught_up.set()
            self._caught_up = trio.Event()

    async def _refresh(self) -> None:
        """Index the saved tool lists of the catalog's servers."""
        async with self._reading:
            await self._read_catalog()

    async def _read_catalog(self) -> None:
        started_at = trio.current_time()
        try:
            skills = await self._registry.skills(timeout=CATALOG_TIMEOUT)
            capabilities = await self._capabilities()
            servers = await trio.to_thread.run_sync(_servers_of, capabilities)
            lists = await self._screened(list(servers))
            snapshots = await self._registry.tool_snapshots(timeout=CATALOG_TIMEOUT)
        except ActorUnavailableError as error:
            log.warning("catalog_not_read", reason=str(error))
            self._changed.set()
            return
        await self._skills.take(skills)
        # A server's own list replaces the one that its tap records.
        unseen = {i: tools for i, tools in snapshots.items() if i in servers and i not in lists}
        shown = {**unseen, **lists}
        made_of = (capabilities, shown, frozenset(unseen))
        # `capd reload` also causes an event if nothing has changed. Making the sets of ten thousand
        # capabilities again takes a second.
        is_other = self._made_of != made_of
        if is_other:
            await self._sets.take(capabilities, shown, self._nursery, frozenset(unseen))
            self._made_of = made_of
            await trio.to_thread.run_sync(trim_after_load, len(capabilities))
        self._sets.paths.forget()
        self._read = capabilities
        self._was_read.set()
        if is_other:
            self._has_other_cards.set()
        index = self._sets.users.index
        self._bus.publish(messages.ToolsIndexed(len(index.tools), index.servers))
        log.info(
            "tools_indexed",
            tools=len(index.tools),
            servers=len(lists),
            unlisted=len(self._sets.users.unlisted),
            seconds=round(trio.current_time() - started_at, 3),
        )

    async def _count_cards(self) -> None:
        """Until cancelled, count the tokens of call cards before a turn needs the counts."""
        await self._in_use.wait()
        while True:
            await self._has_other_cards.wait()
            self._has_other_cards = trio.Event()
            known = self._sets.users.known
            texts = await trio.to_thread.run_sync(_card_texts, known)
            await self._pieces.learn(texts)

    async def _screened(
        self, servers: list[ServerIdentity]
    ) -> dict[ServerIdentity, list[ToolDefinition]]:
        """Return the saved tool lists of servers, without tools that are withheld."""
        kept = {i: each.tools for i, each in (await self._lists.load_all(servers)).items()}
        if not self._is_screened or not kept:
            return kept
        names = {i: [t.name for t in kept[i]] for i in kept}
        withheld = await self._definitions.screen(names, timeout=CATALOG_TIMEOUT)
        barred = {identity: frozenset(names) for identity, names in withheld.items()}
        none: frozenset[ToolName] = frozenset()
        return {i: [t for t in kept[i] if t.name not in barred.get(i, none)] for i in kept}

    async def _capabilities(self) -> list[CapabilitySpec]:
        """Return the capabilities of the user's taps, and of projects if they are trusted."""
        return await self._registry.specs(timeout=CATALOG_TIMEOUT)

    # capd index

    async def _index_servers(self, request: messages.IndexServers) -> messages.ServersIndexed:
        self._in_use.set()
        own = {"", await self._sets.paths.of(request.project)}
        capabilities = [c for c in await self._capabilities() if project_of(c.id.tap) in own]
        servers = distinct(server for c in capabilities for server in c.servers)
        session = index_session()
        self._environments.put(session, self._environments.values(request.session))
        try:
            indexed = await index_servers(self._bus, servers, session, request.project)
        finally:
            self._environments.drop(session)
        # Refresh now, so that the next request finds the new tools.
        await contained("refresh", self._refresh, log=log)
        return messages.ServersIndexed(indexed)


def _servers_of(capabilities: Sequence[CapabilitySpec]) -> dict[ServerIdentity, ServerSpec]:
    return distinct(server for each in capabilities for server in each.servers)


def _card_texts(known: KnownTools) -> list[str]:
    cards = [call_card(wire, source.definition.json) for wire, source in known.sources.items()]
    remaining = RemainingTools(CapabilityName("a"), frozenset(), 1, "capd_tool_search")
    room = 1 << 30
    frame = fitting_cards(cards[:1], "capd_tool_call", TokenCosts(), room=room, remaining=remaining)
    possible = possible_cards(cards[:1], "capd_tool_call", TokenCosts(), room=room)
    related = further_cards(cards[:1], TokenCosts(), room)
    # Count each line with the beginning of the next one, because a token may span two lines.
    lines = [f"{text}\n-" for card in cards for text in (card.line, card.short_line)]
    return [frame.text, possible.text, related.text, *lines]


def _with_locked(text: str, those: Mapping[ServerName, Sequence[str]]) -> str:
    return " ".join(part for part in (text, search_answers.locked(those)) if part)


def _policy(rules: Sequence[messages.PolicyTable]) -> Policy:
    return Policy(
        tuple(
            PolicyRules(
                each.place,
                tuple(each.allow),
                tuple(each.deny),
                capabilities=None if each.capabilities is None else tuple(each.capabilities),
            )
            for each in rules
        )
    )


def capability_tools(
    capabilities: Iterable[CapabilitySpec],
    known: KnownTools,
    tokens: Mapping[WireName, int] | None,
) -> list[messages.CapabilityTools]:
    """Return each of `capabilities` with its tools.

    Of two capabilities with the same name, only the first tap's is returned. `tokens` are the token
    counts of all tools; None leaves the counts out.
    """
    winners: dict[CapabilityName, CapabilitySpec] = {}
    for each in capabilities:
        winners.setdefault(each.id.name, each)
    return [_described(each, known.tools_of(each.id), tokens) for each in winners.values()]


def _described(
    capability: CapabilitySpec,
    tools: list[WireName] | None,
    tokens: Mapping[WireName, int] | None,
) -> messages.CapabilityTools:
    if tools is None and not capability.servers:
        tools = []
    if tools is None or tokens is None:
        return messages.CapabilityTools(capability, tools)
    return messages.CapabilityTools(capability, tools, sum(tokens[wire] for wire in tools))


def hit_of(source: Source, score: float = 0.0) -> messages.ToolHit:
    """Return a tool as the `ToolHit` that the finder replies with."""
    return messages.ToolHit(
        source.wire_name,
        source.definition.name,
        source.spec.name,
        source.identity,
        source.definition.json,
        score,
        source.spec,
        source.capabilities[0],
        source.definition.edit,
    )
