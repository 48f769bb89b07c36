"""Brings single tools to a turn: ranked by the finder, chosen by the core."""

import time
from collections.abc import Container
from dataclasses import dataclass

import structlog

from capd.actors.session.activation import Activation
from capd.actors.session.policy import rules_of
from capd.actors.session.services import SessionContext
from capd.actors.session.tool_search import single
from capd.core.routing.gates import before_model, compared_part
from capd.core.servers.identity import server_identity
from capd.core.sessions import hook_context
from capd.core.sessions.active_set import Grant
from capd.core.sessions.curated_turn import Brought, Ranked, bring
from capd.core.sessions.reach import without_denied_servers
from capd.core.sessions.session import Step
from capd.core.sessions.session_place import NotActivatedError
from capd.core.tools.tool_filter import kept_tools
from capd.runtime.peer import ActorUnavailableError
from capd_protos import finder, registry
from capd_protos.types import CapabilityId, Decision, WireName

RANK_TIMEOUT = 1.0
"""Seconds that a user's message waits for its tools."""


@dataclass(frozen=True, slots=True)
class CurationResult:
    """What came of a turn's curation."""

    added: tuple[WireName, ...] = ()
    removed: tuple[WireName, ...] = ()
    tools: tuple[WireName, ...] = ()
    """What is told of."""
    suggestion: str = ""
    """The words for that, after those that were there."""
    grants: tuple[Grant, ...] = ()
    """The tools that the words name."""


class Curation:
    """The single tools of one session's turns."""

    def __init__(self, context: SessionContext, activation: Activation) -> None:
        self._place = context.place
        self._state = context.state
        self._view = context.view
        self._activation = activation
        self._finder = context.services.finder
        self._environments = context.services.environments
        self._uses = context.services.uses
        self._costs = context.services.index.costs
        self._log = structlog.get_logger(actor="curator", session=context.place.key)

    async def ranked(self, text: str, decision: Decision) -> list[finder.CuratedTool]:
        """Return the best tools for a message, none for one that is not a user's own words.

        Those of the capability that it switches on come with that.
        """
        cleaned = before_model(text, is_enabled=self._view.is_curated)
        if isinstance(cleaned, Decision) or decision.reason == "disabled":
            return []
        rules = self._view.rules.curation
        active = [each.id for each in self._state.active.activations]
        request = finder.CurateTools(
            compared_part(cleaned),
            rules.k,
            rules.scorer,
            active if decision.id is None else [*active, decision.id],
            self._place.domain,
            list(self._view.rules.pins),
            await self._uses.known(),
            rules_of(self._view),
            self._environments.keys(self._place.key),
            self._place.project,
            # Routing has just asked in vain: a message does not wait for the model twice.
            asks_model=decision.reason != "model_not_ready",
        )
        try:
            return await self._finder.curate(request, timeout=RANK_TIMEOUT)
        except ActorUnavailableError as error:
            self._log.warning("not_curated", reason=str(error))
            return []

    async def bring(
        self,
        ranked: list[finder.CuratedTool],
        *,
        context: str,
        suggestion: str,
        named: Container[Grant],
    ) -> CurationResult:
        """Have what fits join the list, or return the words for it, within the turn's budgets.

        Of what was `named` before there are no more words.
        """
        if not ranked:
            return CurationResult(suggestion=suggestion)
        hits = {Grant(each.hit.identity, each.hit.name): each.hit for each in ranked}
        brought = Brought()

        def decided() -> Step:
            nonlocal brought
            brought = self._brought(ranked, named)
            return brought.step

        step = await self._activation.step(decided)
        names = {self._name(grant, hits[grant]): grant for grant in brought.suggested}
        told, words = hook_context.tools_described(
            list(names),
            self._view.called(self._view.caller),
            self._costs,
            context=context,
            suggestion=suggestion,
        )
        if step.added or told:
            self._log.info("tools_curated", joined=list(step.added), suggested=told)
        grants = tuple(names[name] for name in told)
        return CurationResult(step.added, step.removed, tuple(told), words, grants)

    async def expected(self, id_: CapabilityId) -> list[WireName]:
        """Return the tools that a capability's servers had when they were listed last."""
        resolve = registry.ResolveCapability(str(id_), self._place.project)
        try:
            resolved = await self._activation.leases.ask_registry(resolve)
            if not isinstance(resolved, registry.CapabilityResolved):
                return []
            capability = without_denied_servers(resolved.capability, self._state.policy)
            request = finder.DescribeTools(
                [f"{server.name}:*" for server in capability.servers],
                rules_of(self._view),
                project=self._place.project,
                domain=self._place.domain,
            )
            reply = await self._finder.describe(request, timeout=RANK_TIMEOUT)
        except (ActorUnavailableError, NotActivatedError) as error:
            self._log.warning("tools_not_foretold", reason=str(error))
            return []
        names: list[WireName] = []
        for server in capability.servers:
            identity = server_identity(server)
            listed = [hit for hit in reply.matching if hit.identity == identity]
            kept = kept_tools(
                server.name,
                [hit.name for hit in listed],
                server.tools,
                capability.allowed_tools,
            )
            hits = {hit.name: hit for hit in listed}
            names += [self._name(Grant(identity, tool), hits[tool]) for tool in kept]
        return names

    def _brought(self, ranked: list[finder.CuratedTool], named: Container[Grant]) -> Brought:
        return bring(
            self._state,
            [Ranked(single(each.hit), each.is_clear, each.is_pinned) for each in ranked],
            self._view.rules.curation.new_per_turn,
            time.time(),
            is_seen=self._view.lists_at_once(at_border=True),
            told=named,
        )

    def _name(self, grant: Grant, hit: finder.ToolHit) -> WireName:
        return self._state.surface.name(grant, hit.server, hit.name)
