"""Selects single tools for a turn (one message of the user): the finder ranks, the core selects.

A tool that fits and does not join the session's list is offered by a call card: one line with its
name and arguments, from which the model can call it. The plan of a turn with a token budget
(`task_budget`) decides what fits into the budget.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog
from structlog.typing import FilteringBoundLogger

from capd.actors.session.activation import Activation
from capd.actors.session.policy import rules_of
from capd.actors.session.services import SessionContext
from capd.core.routing.gates import before_model
from capd.core.sessions.active_set import Grant
from capd.core.sessions.conversations import card_key
from capd.core.sessions.curated_turn import Ranked, TurnTools, activate_planned, activate_ranked
from capd.core.sessions.session import SingleTool, Step
from capd.core.sessions.turn_cards import MOST_SIGNATURES
from capd.core.tools.call_cards import CallCard, call_card
from capd.runtime.bus import ActorUnavailableError
from capd_protos import finder
from capd_protos.types import Decision, ServerIdentity, ToolDefinition, ToolName, WireName

RANK_TIMEOUT = 1.0
"""Seconds for which a user's message waits for the ranking of tools."""


@dataclass(frozen=True, slots=True)
class ToolCandidate:
    """A tool that fits a message, with the card by which it is called."""

    grant: Grant
    definition: bytes
    card: CallCard
    is_used: bool = False
    """Whether the tool was used in the last day."""

    @property
    def key(self) -> tuple[Grant, str]:
        """The key under which a conversation remembers that its model got the card.

        If the tool's definition changes, so does the key.
        """
        return card_key(self.grant, self.definition)


@dataclass(frozen=True, slots=True)
class CurationResult:
    """The tools that a turn added or removed, and the fitting tools that it did not add."""

    added: tuple[WireName, ...] = ()
    removed: tuple[WireName, ...] = ()
    fitting: tuple[ToolCandidate, ...] = ()
    """Tools that fit and did not join the list, best first."""


class Curation:
    """Selects the single tools for the turns of one session."""

    def __init__(self, context: SessionContext, activation: Activation) -> None:
        self._place = context.place
        self._state = context.state
        self._view = context.view
        self._activation = activation
        self._finder = context.services.finder
        self._environments = context.services.environments
        self._uses = context.services.uses
        self._costs = context.services.index.costs
        self._used: set[Grant] = set()
        """The tools that were used in the last day, as of the last ranking."""

    @property
    def _log(self) -> FilteringBoundLogger:
        # Most sessions log nothing here, and a kept logger is 200 bytes.
        log: FilteringBoundLogger = structlog.get_logger(actor="curator", session=self._place.key)
        return log

    async def ranked(
        self, text: str, decision: Decision, *, is_planned: bool = False
    ) -> list[finder.CuratedTool]:
        """Return the tools that fit a message best.

        There are none if the text is not the user's own words, or if routing or the choice of
        single tools is switched off.

        The tools of a capability that the message switches on are left out, because they come with
        it. With `is_planned` they are included, because the plan for the turn's token budget
        selects among them. The tools of active capabilities are left out if the client lists active
        tools at once, because the model then has them already.
        """
        compared = before_model(text, is_enabled=self._view.is_curated)
        if isinstance(compared, Decision) or decision.reason == "disabled":
            return []
        rules = self._view.rules.curation
        is_seen = self._view.lists_at_once(at_border=True)
        active = [each.id for each in self._state.active.activations] if is_seen else []
        request = finder.CurateTools(
            compared.part(decision.part),
            rules.k,
            rules.scorer,
            active if decision.id is None or is_planned else [*active, decision.id],
            self._place.domain,
            list(self._view.rules.pins),
            await self._uses.known(),
            rules_of(self._view),
            self._environments.keys(self._place.key),
            self._place.project,
            # Routing has just waited for the model in vain; a message does not wait for it twice.
            asks_model=decision.reason != "model_not_ready",
        )
        policy = self._view.policy
        try:
            found = await self._finder.curate(request, timeout=RANK_TIMEOUT)
            # A capability that policy forbids as a whole adds no single tool either.
            return [
                each
                for each in found
                if each.hit.via is None or policy.restrict_capability(each.hit.via) is None
            ]
        except ActorUnavailableError as error:
            self._log.warning("not_curated", reason=str(error))
            return []

    async def within(self, text: str, decision: Decision) -> finder.ToolsRanked:
        """Return the tools of the capability in `decision`, those first that fit the message best.

        There are none if the decision names no capability.
        """
        compared = before_model(text, is_enabled=True)
        uses = await self._uses.known()
        self._used = {Grant(ServerIdentity(each.identity), ToolName(each.tool)) for each in uses}
        request = finder.RankTools(
            "" if isinstance(compared, Decision) else compared.part(decision.part),
            [] if decision.id is None else [decision.id],
            MOST_SIGNATURES,
            uses,
            rules_of(self._view),
            self._environments.keys(self._place.key),
            self._place.project,
            self._place.domain,
            asks_model=decision.reason != "model_not_ready",
        )
        try:
            return await self._finder.rank(request, timeout=RANK_TIMEOUT)
        except ActorUnavailableError as error:
            self._log.warning("tools_not_ranked", reason=str(error))
            return finder.ToolsRanked([], is_known=False)

    def candidates(self, hits: Iterable[finder.ToolHit]) -> list[ToolCandidate]:
        """Return the tools in `hits` as candidates, with their names in this session."""
        found: list[ToolCandidate] = []
        for hit in hits:
            grant = Grant(hit.identity, hit.name)
            card = call_card(self._name(grant, hit), hit.definition)
            found.append(ToolCandidate(grant, hit.definition, card, grant in self._used))
        return found

    def listed_candidates(self, names: Iterable[WireName]) -> list[ToolCandidate]:
        """Return active tools as candidates.

        This is for a capability that was just switched on, whose tools the finder does not know
        yet.
        """
        listed = (self._state.surface.find(name) for name in names)
        return [
            ToolCandidate(each.grant, each.definition, call_card(each.name, each.definition))
            for each in listed
            if each is not None
        ]

    async def activate_ranked(
        self, ranked: list[finder.CuratedTool], *, is_planned: bool = False
    ) -> CurationResult:
        """Switch on the tools that clearly fit; return them, and those that are only suggested.

        One turn adds at most `[curation] new_per_turn` tools to the list. With `is_planned` all of
        `ranked` are switched on, because they were chosen within the turn's token budget.
        """
        if not ranked:
            return CurationResult()
        hits = {Grant(each.hit.identity, each.hit.name): each.hit for each in ranked}
        brought = TurnTools()

        def decided() -> Step:
            nonlocal brought
            brought = self._planned(ranked) if is_planned else self._brought(ranked)
            return brought.step

        step = await self._activation.step(decided)
        fitting = self.candidates(hits[grant] for grant in brought.suggested)
        if step.added or fitting:
            self._log.info(
                "tools_curated",
                joined=list(step.added),
                suggested=[each.card.name for each in fitting],
            )
        return CurationResult(step.added, step.removed, tuple(fitting))

    def _brought(self, ranked: list[finder.CuratedTool]) -> TurnTools:
        return activate_ranked(
            self._state,
            [Ranked(single(each.hit), each.is_clear, each.is_pinned) for each in ranked],
            self._view.rules.curation.new_per_turn,
            time.time(),
            is_seen=self._view.lists_at_once(at_border=True),
        )

    def _planned(self, tools: list[finder.CuratedTool]) -> TurnTools:
        return activate_planned(
            self._state,
            [single(each.hit) for each in tools],
            time.time(),
            is_seen=self._view.lists_at_once(at_border=True),
        )

    def _name(self, grant: Grant, hit: finder.ToolHit) -> WireName:
        return self._state.surface.name(grant, hit.server, hit.shown_name)


def single(hit: finder.ToolHit) -> SingleTool:
    """Return the tool in `hit` in the form in which a session switches on single tools."""
    assert hit.spec is not None
    assert hit.via is not None
    definition = ToolDefinition(hit.name, hit.definition, hit.edit)
    return SingleTool(hit.spec, hit.identity, definition, hit.via)
