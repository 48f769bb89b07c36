"""What a user's message does in a session: routed, switched on, curated, put in words.

message ──> registry decides ──> capability on ──> single tools that fit ──> what is told
"""

import time
from collections.abc import Callable

import structlog

from capd.actors.activation import Activation
from capd.actors.curating import Curating
from capd.actors.denials import Denials
from capd.actors.holds import NotActivatedError
from capd.actors.recent_uses import RecentUses
from capd.actors.session_index import SessionIndex
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.core.sessions import hook_context
from capd.core.sessions.session import SessionState, Step
from capd.core.sessions.session_place import Outcome, SessionPlace
from capd.core.sessions.session_view import SessionView
from capd.runtime.bus import Bus
from capd_protos import curator as messages
from capd_protos import registry
from capd_protos.types import CapabilityId, Decision

log = structlog.get_logger(actor="curator")


class Turns:
    """The turns of one session; several may be under way."""

    def __init__(
        self,
        place: SessionPlace,
        state: SessionState,
        view: SessionView,
        activation: Activation,
        *,
        bus: Bus,
        environments: SessionEnvironments,
        uses: RecentUses,
        denials: Denials,
        index: SessionIndex,
        on_change: Callable[[Step], None],
    ) -> None:
        """`on_change` is told what changes: within a turn once, when it ends."""
        self._place = place
        self._state = state
        self._view = view
        self._activation = activation
        self._environments = environments
        self._denials = denials
        self._index = index
        self._curating = Curating(
            *(place, state, view, activation),
            bus=bus,
            environments=environments,
            uses=uses,
            costs=index.costs,
        )
        self._on_change = on_change
        self._under_way = 0
        # What turns under way have changed so far: told once, when one of them ends.
        self._gathered = Step()
        self._suggested: tuple[CapabilityId, ...] = ()

    def stepped(self, step: Step) -> None:
        """Take note of a change of the session, whoever made it."""
        if self._under_way:
            self._gathered = self._gathered.then(step)
        else:
            self._on_change(step)

    async def taken(self, text: str) -> messages.TurnTaken:
        """Decide on a user's message, and switch on what it asks for."""
        started_at = time.monotonic()
        self._view.turned()
        decision = await self._routed(text)
        tools = await self._curating.ranked(text, decision)
        outcome = Outcome("")
        # What was evicted during the turn before goes with what this one brings: one change.
        self._state.is_mid_turn = False
        self._under_way += 1
        try:
            if decision.id is not None and decision.outcome == "activate":
                outcome = await self._activation.enable(str(decision.id), by="turn")
            elif decision.id is not None:
                self._state.active.touch(decision.id, time.time())
            await self._activation.step(self._state.turn_border)
            context = self._context(decision, outcome)
            suggestion = self._suggestion(decision)
            said = await self._curating.bring(tools, context=context, suggestion=suggestion)
        finally:
            self._state.is_mid_turn = True
            self._under_way -= 1
            changed, self._gathered = self._gathered, Step()
            self._on_change(changed)
        return messages.TurnTaken(
            session=self._place.key,
            decision=decision,
            added=[*outcome.added, *said.added],
            removed=[*outcome.removed, *said.removed],
            ms=round((time.monotonic() - started_at) * 1000, 3),
            problem="" if outcome.is_ok else outcome.text,
            suggestion=said.suggestion,
            context=context,
            tools=list(said.tools),
        )

    def _context(self, decision: Decision, outcome: Outcome) -> str:
        """Return what a prompt hook hands to the model."""
        if decision.id is None:
            return ""
        is_listed = self._view.lists_at_once(at_border=True)
        caller = "" if is_listed else self._view.caller
        costs = self._index.costs
        return hook_context.context(decision.id.name, outcome.added, costs, caller)

    def _suggestion(self, decision: Decision) -> str:
        """Return the words for what is suggested, unless they were the last that were said."""
        if not decision.suggested or decision.suggested == self._suggested:
            return ""
        self._suggested = decision.suggested
        return self._index.suggested(decision.suggested)

    async def _routed(self, text: str) -> Decision:
        try:
            request = registry.RouteMessage(
                session=self._place.key,
                text=text,
                active=[activation.id for activation in self._state.active.activations],
                keys=self._environments.keys(self._place.key),
                domain=self._place.domain,
                is_enabled=self._view.is_routed,
                project=self._place.project,
                denied=await self._denials.all(),
                bars=self._index.bars(),
            )
            reply = await self._activation.holds.ask_registry(request)
        except NotActivatedError as error:
            log.warning("not_routed", session=self._place.key, reason=str(error))
            return Decision("abstain", "model_not_ready")
        assert isinstance(reply, registry.MessageRouted)
        return reply.decision
