"""Methods that only read: each returns one document."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import trio

from capd.actors.control import documents
from capd.actors.control import index_documents as index_report
from capd.actors.control.actors import (
    ASK_TIMEOUT,
    LEDGER_TIMEOUT,
    Actors,
    accepted,
)
from capd.actors.control.definitions import summary
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.core.tools.overall_ranking import Match
from capd.core.trust.project_tap import project_of
from capd.runtime.bus import ActorUnavailableError
from capd_protos import curator, finder, registry
from capd_protos import index as messages
from capd_protos import socket as frames
from capd_protos.types import CapabilityId, CapabilityName, SessionKey

FIND_TIMEOUT = 2.0
MOST_OF_BEST = 3
"""How many tools of the best capability a search adds to its result, if that capability clearly
fits the query."""
MOST_RANKED = 20
"""The least number of tools that are ranked together with capabilities and skills, even if fewer
results are requested."""
INDEX_TIMEOUT = 2.0
EMBEDDER_TIMEOUT = 0.05
"""Seconds. The status does not wait for a model that is busy or stopped."""
TOKENS_WITHIN = 3.0
"""Seconds for which `tokens` waits for texts that are not counted yet."""


class QueryMethods:
    """The control methods that only read."""

    def __init__(
        self,
        actors: Actors,
        environments: SessionEnvironments,
        daemon: Callable[[], dict[str, Any]],
        bridges: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        """Create the methods.

        `daemon` returns the daemon's own part of the status, `bridges` the open bridges.
        """
        self._bridges = bridges
        self._actors = actors
        self._environments = environments
        self._daemon = daemon
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "status": self._status,
            "secrets": self._secrets,
            "caps": self._caps,
            "servers": self._servers,
            "sessions": self._sessions,
            "tools": self._tools,
            "discover": self._discover,
            "search": self._search,
            "tokens": self._tokens,
            "config": self._config,
        }

    async def _status(self, _: frames.NoParams) -> dict[str, Any]:
        described = await self._actors.registry.describe()
        model = None
        if described.embedder_state in {"ready", "loading"}:
            with suppress(ActorUnavailableError):
                model = await self._actors.embedder.describe(timeout=EMBEDDER_TIMEOUT)
        daemon = self._daemon()
        daemon["degraded"] = [*daemon["degraded"], *_degraded(described)]
        daemon["degraded"] += self._environments.stored.problems()
        kept = None
        with suppress(ActorUnavailableError):
            kept = await self._actors.ledger.describe(timeout=LEDGER_TIMEOUT)
        daemon["degraded"] += [kept.problem] if kept and kept.problem else []
        index = await self._index()
        daemon["degraded"] += [index.problem] if index and index.problem else []
        sessions = await self._actors.curator.sessions()
        servers = await self._actors.supervisor.servers()
        daemon["degraded"] += sessions.problem.splitlines()
        vetted: dict[str, Any] = {}
        with suppress(ActorUnavailableError):
            vetted = await summary(self._actors.definitions)
            daemon["degraded"] += vetted["problems"]
        document = documents.status(daemon, described, model, sessions, servers)
        document["sessions"] = await self._with_profiles(document["sessions"])
        with suppress(ActorUnavailableError):
            listed = await self._actors.registry.capabilities(all_projects=True)
            usable = documents.usable(listed, self._keys(sessions))
            document["taps"] = [
                {**tap, "usable": usable.get(tap["name"], 0)} for tap in document["taps"]
            ]
        with suppress(ActorUnavailableError):
            progress = await self._actors.registry.progress()
            document["embedder"]["percent"] = progress.percent
        return {
            **document,
            "ledger": documents.ledger(kept),
            "definitions": vetted,
            "index": index_report.status(index),
            "bridges": self._bridges(),
        }

    async def _caps(self, _: frames.NoParams) -> dict[str, Any]:
        listed = await self._actors.registry.capabilities(all_projects=True)
        sessions = await self._actors.curator.sessions()
        index = await self._index()
        metrics = index_report.metrics(index) if index is not None else {}
        made = partial(documents.caps, listed, sessions.sessions, self._keys(sessions), metrics)
        return await trio.to_thread.run_sync(made)

    async def _index(self) -> messages.IndexDescribed | None:
        with suppress(ActorUnavailableError):
            return await self._actors.index.describe(timeout=INDEX_TIMEOUT)
        return None

    async def _servers(self, _: frames.NoParams) -> dict[str, Any]:
        return documents.servers(await self._actors.supervisor.servers())

    async def _sessions(self, _: frames.NoParams) -> dict[str, Any]:
        document = documents.sessions(await self._actors.curator.sessions())
        document["sessions"] = await self._with_profiles(document["sessions"])
        return document

    async def _with_profiles(self, sessions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the sessions, each with its profile and the problem with the profile, if any."""
        listed = await self._actors.curator.profiles()
        known = {each.session: each for each in listed.sessions}
        return [
            {
                **session,
                "profile": found.profile if (found := known.get(session["key"])) else "",
                "profile_problem": found.problem if found else "",
            }
            for session in sessions
        ]

    async def _tokens(self, _: frames.NoParams) -> dict[str, Any]:
        described = await self._actors.curator.tokens(
            TOKENS_WITHIN, timeout=TOKENS_WITHIN + ASK_TIMEOUT
        )
        return documents.tokens(described)

    async def _secrets(self, _: frames.NoParams) -> dict[str, Any]:
        listed = await self._actors.registry.capabilities()
        sessions = await self._actors.curator.sessions()
        keys = [SessionKey(session.key) for session in sessions.sessions]
        own = {key: self._environments.own(key).keys() for key in keys}
        return documents.secrets(listed, self._environments.stored, own)

    async def _tools(self, params: frames.SessionParams) -> dict[str, Any]:
        tools = accepted(await self._actors.curator.tools(SessionKey(params.session)))
        return {
            "schema": documents.SCHEMA,
            "session": tools.session,
            "tools": [msgspec.Raw(tool) for tool in tools.tools],
        }

    async def _discover(self, params: frames.DiscoverParams) -> dict[str, Any]:
        request = registry.DiscoverCapabilities(params.intent, params.limit)
        found = accepted(await self._actors.registry.discover(request))
        sessions = await self._actors.curator.sessions()
        skills: list[finder.SkillHit] = []
        with suppress(ActorUnavailableError):
            skills = await self._actors.finder.find_skills(params.intent, timeout=FIND_TIMEOUT)
        return documents.discovered(found, skills, sessions.sessions, self._keys(sessions))

    async def _search(self, params: frames.SearchParams) -> dict[str, Any]:
        # Fetch more tools than requested, because the joint ranking may reorder them.
        most = max(params.limit, MOST_RANKED)
        request = finder.FindTools(params.query, most)
        if params.session:
            reach = accepted(await self._actors.curator.reach(SessionKey(params.session)))
            request = finder.FindTools(
                params.query,
                most,
                rules=reach.rules,
                keys=reach.keys,
                domain=reach.domain,
            )
        found = accepted(await self._actors.finder.find_tools(request))
        others = [] if found.mode == "selected" else await self._capabilities(request)
        return documents.found(found, others, params.limit)

    async def _capabilities(self, request: finder.FindTools) -> list[Match]:
        """Return the fitting capabilities that the request's session may use.

        If the best one clearly fits, its best tools follow them.
        """
        try:
            known = await self._actors.finder.capabilities(timeout=FIND_TIMEOUT)
            denied: list[CapabilityId] = []
            if request.rules:
                listed = await self._actors.finder.denied(request.rules, timeout=FIND_TIMEOUT)
                denied = [each.id for each in listed.capabilities]
            profile = (await self._actors.registry.describe()).profile
            ranked = await self._actors.registry.discover(
                registry.DiscoverCapabilities(
                    request.query, request.max_results, domain=request.domain, denied=denied
                )
            )
        except ActorUnavailableError:
            return []
        if not isinstance(ranked, registry.CapabilitiesFound):
            # Without a model no capability may be found; the answer's text says so.
            return []
        described = {each.capability.id: each.capability for each in known.capabilities}
        matches = [documents.capability_match(hit, described.get(hit.id)) for hit in ranked.hits]
        # From this score on, routing would switch the capability on.
        if ranked.hits and ranked.hits[0].score >= float(profile["threshold"]):
            matches += await self._best_tools_of(ranked.hits[0].id.name, request)
        return matches

    async def _best_tools_of(
        self, capability: CapabilityName, request: finder.FindTools
    ) -> list[Match]:
        inside = msgspec.structs.replace(request, capability=capability, max_results=MOST_OF_BEST)
        with suppress(ActorUnavailableError):
            found = await self._actors.finder.find_tools(inside)
            if isinstance(found, finder.ToolsFound):
                return [documents.tool_match(hit, capability) for hit in found.hits]
        return []

    async def _config(self, params: frames.ConfigParams) -> dict[str, Any]:
        described = await self._actors.settings.describe(params.project)
        return documents.config_document(params.project, described)

    def _keys(self, sessions: curator.SessionsListed) -> frozenset[str]:
        """Return the names of the secrets for which a value is stored or a live session has one."""
        own = (self._environments.own(SessionKey(s.key)) for s in sessions.sessions)
        return frozenset(self._environments.stored.values()).union(*own)


def _degraded(described: registry.RegistryDescribed) -> list[str]:
    # An error in a project's files is shown with its tap; the daemon itself works.
    found = [tap.error for tap in described.taps if tap.error and not project_of(tap.name)]
    if described.trust_problem:
        found.append(described.trust_problem)
    if described.embedder_state == "unusable":
        found.append(f"no routing: {described.embedder_reason}")
    return found
