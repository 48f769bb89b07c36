"""What a user's message does in a session: routed, switched on, curated, put in words.

message ──> registry decides ──> capability on ──> single tools that fit ──> what is told
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from capd.actors.session.activation import Activation
from capd.actors.session.bootstrap import Bootstrapping
from capd.actors.session.curation import Curating
from capd.actors.session.index import SessionIndex
from capd.actors.session.leases import NotActivatedError
from capd.actors.session.memories import MOST_OF_A_TURN, SessionMemories
from capd.actors.session.recent_uses import RecentUses
from capd.actors.session.task_budget import Plan, TaskBudget
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.core.sessions import hook_context
from capd.core.sessions.conversations import Conversation, Conversations
from capd.core.sessions.server_instructions import passed_on, room_in_turn
from capd.core.sessions.session import SessionState, Step
from capd.core.sessions.session_place import Outcome, SessionPlace
from capd.core.sessions.session_view import SessionView
from capd.runtime.bus import Bus
from capd_protos import curator as messages
from capd_protos import registry
from capd_protos.types import CapabilityId, Decision, WireName

OVER_BUDGET = "over_budget"
"""Why what a message asks for is not switched on, where the turn had a budget."""

log = structlog.get_logger(actor="curator")


@dataclass(slots=True)
class TurnContext:
    """Who hears what a turn says, and what is known of it before it ends."""

    is_delivered: bool = True
    """Whether its words reach the model; what does not was not told."""
    is_hook: bool = False
    """Whether all of them are handed to the model before it answers."""
    decision: Decision | None = None
    conversation: Conversation | None = None
    """In which the message was said."""


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
        memories: SessionMemories | None,
        bootstrap: Bootstrapping | None,
        index: SessionIndex,
        conversations: Conversations,
        on_change: Callable[[Step], None],
    ) -> None:
        """`on_change` is told what changes: within a turn once, when it ends."""
        self._place = place
        self._state = state
        self._view = view
        self._activation = activation
        self._environments = environments
        self._memories = memories
        self._bootstrap = bootstrap
        self._index = index
        self._conversations = conversations
        self._curating = Curating(
            *(place, state, view, activation),
            bus=bus,
            environments=environments,
            uses=uses,
            costs=index.costs,
        )
        self._budget = TaskBudget(
            place, state, view, memories, bus=bus, environments=environments, uses=uses
        )
        self._on_change = on_change
        self._under_way = 0
        # What turns under way have changed so far: told once, when one of them ends.
        self._gathered = Step()

    def stepped(self, step: Step) -> None:
        """Take note of a change of the session, whoever made it."""
        if self._under_way:
            self._gathered = self._gathered.then(step)
        else:
            self._on_change(step)

    async def taken(
        self, text: str, turn_context: TurnContext | None = None, *, budget: int = 0
    ) -> messages.TurnTaken:
        """Decide on a user's message, and switch on what it asks for.

        With a `budget` no more comes on, and is told, than takes so many tokens.
        """
        started_at = time.monotonic()
        turn_context = turn_context or TurnContext()
        conversation = turn_context.conversation = self._conversations.current
        self._view.turned()
        decision = await self._routed(text)
        # With a budget it is not known before the plan what comes on.
        turn_context.decision = None if budget else decision
        tools = await self._curating.ranked(text, decision)
        plan = await self._budget.plan(decision, tools, budget) if budget else None
        if plan is not None:
            tools = list(plan.tools)
            if decision.outcome == "activate" and decision.id not in plan.capabilities:
                decision = msgspec.structs.replace(decision, outcome="abstain", reason=OVER_BUDGET)
        turn_context.decision = decision
        outcome = Outcome("")
        came_on: dict[CapabilityId, tuple[WireName, ...]] = {}
        # What was evicted during the turn before goes with what this one brings: one change.
        self._state.is_mid_turn = False
        self._under_way += 1
        try:
            if plan is not None:
                outcome, came_on = await self._enabled(plan)
            elif decision.id is not None and decision.outcome == "activate":
                outcome = await self._activation.enable(str(decision.id), by="turn")
                came_on = {decision.id: outcome.added}
            elif decision.id is not None:
                self._state.active.touch(decision.id, time.time())
            await self._activation.step(self._state.turn_border)
            context = self._context(came_on)
            suggested = self._suggested(decision, conversation)
            suggestion = self._index.suggested(suggested) if suggested else ""
            said = await self._curating.bring(
                tools, context=context, suggestion=suggestion, named=conversation.named
            )
            context = self._with_instructions(context, came_on, said.suggestion)
        finally:
            self._state.is_mid_turn = True
            self._under_way -= 1
            changed, self._gathered = self._gathered, Step()
            self._on_change(changed)
        bootstrap = await self.bootstrap(turn_context)
        # Nothing is awaited from here on: whoever hears the turn by now hears all of it.
        index = self.index(turn_context)
        if turn_context.is_delivered:
            # Another conversation may have spoken meanwhile.
            self._conversations.go_on(conversation)
            conversation.hears_of(said.grants, self._state.active.tool_cap)
            conversation.suggested = suggested or conversation.suggested
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
            memories=self._told(bootstrap, plan) if turn_context.is_delivered else "",
            bootstrap=bootstrap,
            index=index,
            left_out=list(plan.left_out) if plan is not None else [],
            budgeted=plan.tokens if plan is not None else None,
        )

    async def _enabled(
        self, plan: Plan
    ) -> tuple[Outcome, dict[CapabilityId, tuple[WireName, ...]]]:
        """Switch on what is planned; return what came of all of it, and which tools by which."""
        outcomes = [
            await self._activation.enable(str(each), by="turn") for each in plan.capabilities
        ]
        failed = next((each for each in outcomes if not each.is_ok), None)
        outcome = Outcome(
            failed.text if failed is not None else "",
            tuple(name for each in outcomes for name in each.added),
            tuple(name for each in outcomes for name in each.removed),
            is_ok=failed is None,
        )
        added = (each.added for each in outcomes)
        return outcome, dict(zip(plan.capabilities, added, strict=True))

    def index(self, turn_context: TurnContext) -> str:
        """Return what is installed, once, for a hook whose client shows no instructions."""
        conversation = turn_context.conversation or self._conversations.current
        if conversation.is_index_told or not (turn_context.is_hook and turn_context.is_delivered):
            return ""
        text = self._index.first_words()
        conversation.is_index_told = bool(text)
        return text

    async def bootstrap(self, turn_context: TurnContext) -> str:
        """Return the project's own files for a hook that hears them, once a conversation."""
        if self._bootstrap is None or not (turn_context.is_hook and turn_context.is_delivered):
            return ""
        conversation = turn_context.conversation or self._conversations.current
        if conversation.is_bootstrapped:
            return ""
        words = await self._bootstrap.words()
        # A hook may have given up meanwhile, and another one been told.
        if not turn_context.is_delivered or conversation.is_bootstrapped:
            return ""
        conversation.is_bootstrapped = True
        return words

    def _told(self, bootstrap: str, plan: Plan | None) -> str:
        """Return what memories say, as far as clients take it beside the bootstrap files."""
        if self._memories is None:
            return ""
        if plan is not None:
            return self._memories.told_alone(plan.memories)
        return self._memories.told(max(0, MOST_OF_A_TURN - len(bootstrap)))

    def _context(self, came_on: Mapping[CapabilityId, Sequence[WireName]]) -> str:
        """Return what a prompt hook hands to the model."""
        is_listed = self._view.lists_at_once(at_border=True)
        caller = "" if is_listed else self._view.called(self._view.caller)
        named = [(each.name, added) for each, added in came_on.items()]
        return hook_context.contexts(named, self._index.costs, caller)

    async def coming(self, turn_context: TurnContext) -> str:
        """Return what a prompt hook hands to the model that cannot wait for the turn's end."""
        decision = turn_context.decision
        if decision is None or decision.id is None or decision.outcome != "activate":
            return ""
        if not self._view.has_caller:
            return ""
        expected = await self._curating.expected(decision.id)
        return hook_context.coming(
            decision.id.name,
            expected,
            self._index.costs,
            self._view.called(self._view.caller),
            self._view.called(self._view.enabler),
        )

    def _with_instructions(
        self, context: str, came_on: Iterable[CapabilityId], suggestion: str
    ) -> str:
        if not context:
            return context
        said = [line for each in came_on for line in self._activation.said_by(each)]
        told = passed_on(said, room_in_turn(context, suggestion))
        return f"{context}\n{told}" if told else context

    def _suggested(
        self, decision: Decision, conversation: Conversation
    ) -> tuple[CapabilityId, ...]:
        """Return what is suggested, unless it was the last that was."""
        # A turn with a budget has switched on what there was room for.
        suggested = tuple(each for each in decision.suggested if each not in self._state.active)
        return suggested if suggested != conversation.suggested else ()

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
                denied=await self._index.denied(),
                restrictions=self._index.restrictions(),
            )
            reply = await self._activation.leases.ask_registry(request)
        except NotActivatedError as error:
            log.warning("not_routed", session=self._place.key, reason=str(error))
            return Decision("abstain", "model_not_ready")
        assert isinstance(reply, registry.MessageRouted)
        return reply.decision
