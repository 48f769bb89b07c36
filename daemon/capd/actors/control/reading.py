"""Methods that read: one document each, from what the actors say."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from capd.actors.control import documents
from capd.actors.control import index_documents as index_report
from capd.actors.control import token_document as token_report
from capd.actors.control.definitions import summary
from capd.actors.control.questions import (
    ASK_TIMEOUT,
    EMBEDDER,
    EMBEDDER_REPLIES,
    FINDER,
    FINDER_REPLIES,
    REGISTRY,
    REGISTRY_REPLIES,
    UNANSWERED,
    MethodError,
    Questions,
)
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.core.trust.project_tap import project_of
from capd_protos import curator, embedder, finder, ledger, registry, settings
from capd_protos import index as messages
from capd_protos import socket as frames
from capd_protos.types import SessionKey

FIND_TIMEOUT = 2.0
INDEX_TIMEOUT = 2.0
EMBEDDER_TIMEOUT = 0.05
"""The status does not wait for a model that is busy or stopped."""
TOKENS_WITHIN = 3.0
"""Who asks for tokens alone waits for what is yet to be counted."""


class Reading:
    """What changes nothing."""

    def __init__(
        self,
        questions: Questions,
        environments: SessionEnvironments,
        daemon: Callable[[], dict[str, Any]],
    ) -> None:
        """`daemon` returns the daemon's own part of the status."""
        self._ask = questions
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
        described = await self._ask.registry(
            registry.DescribeRegistry(), registry.RegistryDescribed
        )
        model = None
        if described.embedder_state in {"ready", "loading"}:
            with suppress(*UNANSWERED):
                reply = await self._ask.bus.ask(
                    EMBEDDER, embedder.DescribeEmbedder(), EMBEDDER_REPLIES, EMBEDDER_TIMEOUT
                )
                model = reply if isinstance(reply, embedder.EmbedderDescribed) else None
        daemon = self._daemon()
        daemon["degraded"] = [*daemon["degraded"], *_degraded(described)]
        daemon["degraded"] += self._environments.stored.problems()
        kept = None
        with suppress(*UNANSWERED, MethodError):
            kept = await self._ask.ledger(ledger.DescribeLedger(), ledger.LedgerDescribed)
        daemon["degraded"] += [kept.problem] if kept and kept.problem else []
        index = await self._index()
        daemon["degraded"] += [index.problem] if index and index.problem else []
        sessions, servers = await self._ask.sessions(), await self._ask.servers()
        daemon["degraded"] += sessions.problem.splitlines()
        vetted: dict[str, Any] = {}
        with suppress(*UNANSWERED):
            vetted = await summary(self._ask.bus)
            daemon["degraded"] += vetted["problems"]
        document = documents.status(daemon, described, model, sessions, servers)
        return {
            **document,
            "ledger": documents.ledger(kept),
            "definitions": vetted,
            "index": index_report.status(index),
        }

    async def _caps(self, _: frames.NoParams) -> dict[str, Any]:
        request = registry.ListCapabilities(all_projects=True)
        listed = await self._ask.registry(request, registry.CapabilitiesListed)
        sessions = await self._ask.sessions()
        index = await self._index()
        metrics = index_report.metrics(index) if index is not None else {}
        return documents.caps(listed, sessions.sessions, self._keys(sessions), metrics)

    async def _index(self) -> messages.IndexDescribed | None:
        with suppress(*UNANSWERED, MethodError):
            return await self._ask.index(
                messages.DescribeIndex(), messages.IndexDescribed, INDEX_TIMEOUT
            )
        return None

    async def _servers(self, _: frames.NoParams) -> dict[str, Any]:
        return documents.servers(await self._ask.servers())

    async def _sessions(self, _: frames.NoParams) -> dict[str, Any]:
        return documents.sessions(await self._ask.sessions())

    async def _tokens(self, _: frames.NoParams) -> dict[str, Any]:
        described = await self._ask.curator(
            curator.DescribeTokens(TOKENS_WITHIN),
            curator.TokensDescribed,
            TOKENS_WITHIN + ASK_TIMEOUT,
        )
        return token_report.tokens(described)

    async def _secrets(self, _: frames.NoParams) -> dict[str, Any]:
        listed = await self._ask.registry(registry.ListCapabilities(), registry.CapabilitiesListed)
        sessions = await self._ask.sessions()
        keys = [SessionKey(session.key) for session in sessions.sessions]
        own = {key: self._environments.own(key).keys() for key in keys}
        return documents.secrets(listed, self._environments.stored, own)

    async def _tools(self, params: frames.SessionParams) -> dict[str, Any]:
        request = curator.ListTools(SessionKey(params.session))
        tools = await self._ask.curator(request, curator.ToolsListed)
        return {
            "schema": documents.SCHEMA,
            "session": tools.session,
            "tools": [msgspec.Raw(tool) for tool in tools.tools],
        }

    async def _discover(self, params: frames.DiscoverParams) -> dict[str, Any]:
        request = registry.DiscoverCapabilities(params.intent, params.limit)
        found = await self._ask.bus.ask(REGISTRY, request, REGISTRY_REPLIES, ASK_TIMEOUT)
        if isinstance(found, registry.RegistryRefused):
            is_empty = found.code == "no_intent"
            code = frames.INVALID_PARAMS if is_empty else frames.UNAVAILABLE
            raise MethodError(code, found.message)
        assert isinstance(found, registry.CapabilitiesFound)
        sessions = await self._ask.sessions()
        skills: list[finder.SkillHit] = []
        with suppress(*UNANSWERED):
            reply = await self._ask.bus.ask(
                FINDER, finder.FindSkills(params.intent), FINDER_REPLIES, FIND_TIMEOUT
            )
            skills = reply.hits if isinstance(reply, finder.SkillsFound) else []
        return documents.discovered(found, skills, sessions.sessions, self._keys(sessions))

    async def _search(self, params: frames.SearchParams) -> dict[str, Any]:
        request = finder.FindTools(params.query, params.limit)
        if params.session:
            asked = curator.DescribeReach(SessionKey(params.session))
            reach = await self._ask.curator(asked, curator.ReachDescribed)
            request = finder.FindTools(
                params.query,
                params.limit,
                rules=reach.rules,
                keys=reach.keys,
                domain=reach.domain,
            )
        reply = await self._ask.bus.ask(FINDER, request, FINDER_REPLIES, ASK_TIMEOUT)
        if isinstance(reply, finder.FinderRefused):
            raise MethodError(frames.INVALID_PARAMS, reply.message)
        assert isinstance(reply, finder.ToolsFound)
        return documents.found_tools(reply)

    async def _config(self, params: frames.ConfigParams) -> dict[str, Any]:
        described = await self._ask.settings(settings.DescribeSettings(params.project))
        return documents.config_document(params.project, described)

    def _keys(self, sessions: curator.SessionsListed) -> frozenset[str]:
        """Return the keys that are stored, or that some live session has a value for."""
        own = (self._environments.own(SessionKey(s.key)) for s in sessions.sessions)
        return frozenset(self._environments.stored.values()).union(*own)


def _degraded(described: registry.RegistryDescribed) -> list[str]:
    # What is wrong with a project's files is told with its tap, and is no trouble of capd's.
    found = [tap.error for tap in described.taps if tap.error and not project_of(tap.name)]
    if described.trust_problem:
        found.append(described.trust_problem)
    if described.embedder_state == "unusable":
        found.append(f"no routing: {described.embedder_reason}")
    return found
