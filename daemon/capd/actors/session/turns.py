"""Takes a user's message: routes it, switches tools on, and makes the texts for the model.

message ──> the registry decides ──> a capability is switched on ──> single tools that fit
        ──> the texts for the model

These texts are call cards, memories and the index. A call card is one line with a tool's name and
arguments, from which the model can call the tool although the tool is not on the list.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import msgspec
import structlog
import trio

from capd.actor_clients.client import ANSWER_TIMEOUT
from capd.actor_clients.names import REGISTRY
from capd.actors.session.activation import Resolved
from capd.actors.session.asking import must_answer
from capd.actors.session.curation import Curation, CurationResult, ToolCandidate
from capd.actors.session.memories import MOST_OF_A_TURN
from capd.actors.session.parts import SessionParts
from capd.actors.session.task_budget import TaskBudget, TurnPlan
from capd.adapters.clients.turn_document import turn_document, turn_words
from capd.core.back_references import weakly
from capd.core.protocol.outcomes import text_result
from capd.core.routing.cleaning import is_system_content
from capd.core.sessions import hook_context
from capd.core.sessions.active_set import Grant
from capd.core.sessions.conversations import Conversation
from capd.core.sessions.recent_prompts import RecentPrompts
from capd.core.sessions.server_instructions import instructions_text, room_in_turn
from capd.core.sessions.session import Step
from capd.core.sessions.session_place import NotActivatedError, Outcome
from capd.core.sessions.turn_cards import RemainingTools, fitting_cards, possible_cards
from capd_protos import curator as messages
from capd_protos import finder, registry
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import CapabilityId, Decision, DecisionReason, UnusableCapability, WireName

MOST_UNUSABLE = 1
"""How many capabilities a turn names that fit but cannot be used: only the best one."""
OVER_BUDGET: DecisionReason = "over_budget"
"""Why a capability that a message asks for is not switched on as a whole, in a turn with a budget.
"""

log = structlog.get_logger(actor="curator")


FEW_TOOLS = 2
"""How many tools of a capability are named if its tools could not be ranked."""

UNDECIDED: frozenset[DecisionReason] = frozenset(
    {"no_candidates", "below_threshold", "below_margin", "near_tie", "model_not_ready"}
)
"""The reasons for abstaining after which a message may go on with the last used capability."""

MODEL_PATIENCE = 4.0
"""Seconds for which a hook's turn waits for a model that is loading. Loading takes 1.2 to 1.8 s."""
LONGEST_PATIENCE = 60.0
"""The most seconds for which a turn waits for the model, if its hook says that it can wait longer
than `MODEL_PATIENCE`."""
RELIST_TIMEOUT = 1.0
"""Seconds for which a hook on the session's own connection waits for the client to re-list. A
client that re-lists takes 8 to 26 ms (docs/design/clients.md, finding 1)."""

_TURN_ARGUMENTS: JsonCodec[hook_context.TurnArguments] = JsonCodec(hook_context.TurnArguments)


@dataclass(slots=True)
class TurnContext:
    """The facts about one turn: its message, its decision, and where its text goes."""

    is_delivered: bool = True
    """Whether the text reaches the model; only then does it count as delivered."""
    is_hook: bool = False
    """Whether a prompt hook takes the text, so that the model reads the text before it answers."""
    longest: float = 0.0
    """Seconds for which the hook can wait if the turn is held."""
    decision: Decision | None = None
    conversation: Conversation | None = None
    """The conversation that the message is part of."""
    text: str = ""
    """The user's message."""
    is_decided: trio.Event = field(default_factory=trio.Event)
    """Set when `decision` is known."""
    is_claimed: trio.Event | None = None
    """Of a held turn: set once its hook has asked again, or the turn is given up. From then on
    `is_delivered` says whether anybody reads the text. None for a turn that is not held."""

    @property
    def waits(self) -> float:
        """The most seconds that the turn waits for a model that is loading."""
        # A hook answers when its patience ends, and the turn goes on without it.
        longest = min(self.longest, LONGEST_PATIENCE)
        return max(MODEL_PATIENCE, longest) if self.is_hook else 0.0

    async def claim(self) -> float:
        """Wait until a held turn's hook has asked again, or the turn is given up.

        Return the seconds waited. A turn is held if it waits for the model: capd asks its hook to
        ask again. The wait here is a second at most. Without this wait, the texts of a turn that
        ends sooner would count as delivered, although no hook has taken them.
        """
        began_at = time.monotonic()
        if self.is_claimed is not None:
            await self.is_claimed.wait()
        return time.monotonic() - began_at

    def decide(self, decision: Decision | None) -> None:
        """Set the decision. With None it stays unknown, and `is_decided` is not set."""
        self.decision = decision
        if decision is not None:
            self.is_decided.set()


@dataclass(frozen=True, slots=True)
class _HookText:
    """The part of a turn's text that is about tools, and the call cards and skills in it."""

    text: str = ""
    cards: tuple[tuple[Grant, str], ...] = ()
    skills: tuple[WireName, ...] = ()

    def note_in(self, conversation: Conversation) -> None:
        """Note that the model has got these call cards and skills in `conversation`."""
        conversation.note_cards(self.cards)
        conversation.skills.update(dict.fromkeys(self.skills))


AnswerInTime = Callable[[str, TurnContext], Awaitable[messages.TurnTaken]]
"""Takes the text of a prompt. Returns the result of its turn, or what is known of the turn when the
hook must be answered."""


class SessionTurns:
    """Handles the messages of the user of one session. Several turns may be in progress."""

    def __init__(self, parts: SessionParts, follow_profile: Callable[[], Awaitable[None]]) -> None:
        """Create it. `follow_profile` chooses the session's profile again, and applies it."""
        context = parts.context
        self._parts = parts
        self._follow_profile = follow_profile
        self._context = context
        self._place = context.place
        self._state = context.state
        self._view = context.view
        self._environments = context.services.environments
        self._registry = context.services.registry
        self._curation = Curation(context, parts.activation)
        self._budget = TaskBudget(context, parts.memories)
        self.recent_prompts = RecentPrompts()
        self.answer_in_time: AnswerInTime = weakly(self.take)
        """Takes a prompt of the session's own connection. Returns the turn's result, or what is
        known of it when the client stops waiting."""
        self._under_way = 0
        # The changes of turns in progress. They are announced together when one of them ends.
        self._gathered = Step()

    # Changes of the session

    def on_step(self, step: Step) -> None:
        """Announce to the client and on the bus that the list of tools has changed.

        Changes during a turn are announced together when the turn ends.
        """
        # A turn that waits for a server has changed nothing yet, so it does not delay others.
        if self._under_way > self._parts.activation.turns_waiting:
            self._gathered = self._gathered.then(step)
        else:
            self._deliver(step)

    def _deliver_gathered(self) -> None:
        changed, self._gathered = self._gathered, Step()
        self._deliver(changed)

    def _deliver(self, step: Step) -> None:
        if not step.changes_list:
            return
        self._context.connection.on_list_changed()
        self._context.notify_tools_changed()
        self._context.services.bus.publish(
            messages.SurfaceChanged(self._place.key, list(step.added), list(step.removed))
        )

    # Where a message comes from

    def on_client_session(self, client_session: str) -> None:
        """Note in which of the client's own conversations the next message was sent.

        An empty id means that this is not known.
        """
        if not client_session:
            return
        self._context.connection.client_sessions[client_session] = None
        if client_session != self._parts.conversations.current.id:
            self._parts.conversations.continue_in(client_session)
            self._context.on_change()

    async def take_own(self, text: str) -> bytes:
        """Handle a message from the session's own connection; return the answer as JSON."""
        # Note the prompt, so that a hook that sends the same text later is seen as a repetition.
        self.recent_prompts.is_again(text, "", time.monotonic())
        taken = await self.take(text)
        self._parts.tokens.turned(turn_words(taken))
        return msgspec.json.encode(turn_document(taken))

    async def call_turn(self, arguments: msgspec.Raw) -> bytes:
        """Answer a call of `capd_turn`, which a hook makes on the session's own connection."""
        try:
            hook = _TURN_ARGUMENTS.decode(arguments if len(arguments) else b"{}")
        except MalformedError as error:
            return text_result(f"The arguments are wrong: {error}", is_error=True)
        self.on_client_session(hook.session_id)
        connection = self._context.connection
        connection.linked_by = "its own connection"
        match hook.event:
            case hook_context.AGENT_BEGINS:
                self._parts.agents.begin(hook.agent_id)
                return text_result(hook_context.hook_output(""))
            case hook_context.AGENT_ENDS:
                self._parts.agents.stop(hook.agent_id)
                # The text is empty, because any text would make the agent continue.
                return text_result(hook_context.hook_output(""))
            case hook_context.TOOL_EVENT if hook.skill:
                return await self._call_skill(hook)
            case hook_context.TOOL_EVENT:
                self._parts.agents.announce(hook.agent_id, hook.tool_use_id)
                return text_result(hook_context.hook_output(""))
        if self.recent_prompts.is_again(hook.prompt, "", time.monotonic()):
            return text_result(hook_context.hook_output(""))
        taken = await self.answer_in_time(hook.prompt, TurnContext(is_hook=True))
        is_awaited = self._view.lists_at_once(at_border=True)
        if is_awaited and (taken.added or taken.removed):
            # If the hook were answered now, the client would ask its model with the old list.
            with trio.move_on_after(RELIST_TIMEOUT):
                await connection.until_listed()
        text = self._parts.tokens.turned(turn_words(taken))
        return text_result(hook_context.hook_output(text, taken.notice))

    def notice(self, decision: Decision, problem: str = "") -> str:
        """Return the line that the user sees of a turn.

        The line is empty if `decision` activates nothing, or with `surface.notices = false`.
        `problem` is why the capability could not be switched on; empty if it could.
        """
        return hook_context.notice(decision, problem) if self._view.rules.shows_notices else ""

    async def _call_skill(self, hook: hook_context.TurnArguments) -> bytes:
        """Answer the hook that reports which of the client's skills its model uses."""
        for_agent = await self._parts.agents.use_skill(hook.agent_id, hook.skill)
        if for_agent is not None:
            used, agent = for_agent
            text = agent.tokens.turned(used.text)
            return text_result(hook_context.hook_output(text, event=hook_context.TOOL_EVENT))
        used = await self._parts.client_skills.use(hook.skill)
        if used.added and self._view.lists_at_once(at_border=False):
            with trio.move_on_after(RELIST_TIMEOUT):
                await self._context.connection.until_listed()
        text = self._parts.tokens.turned(used.text)
        return text_result(hook_context.hook_output(text, event=hook_context.TOOL_EVENT))

    # What it does

    async def take(
        self, text: str, turn_context: TurnContext | None = None, *, budget: int = 0
    ) -> messages.TurnTaken:
        """Route a user's message, switch on the tools that it asks for, and make the turn's texts.

        With a `budget` above 0, tools and memories of the turn take at most that many tokens.
        """
        self._context.probe_relisting()
        started_at = time.monotonic()
        turn_context = turn_context or TurnContext()
        turn_context.text = text
        conversation = turn_context.conversation = self._parts.conversations.current
        self._view.turned()
        await self._follow_profile()
        decision, resolved = await self._route(text, turn_context.waits)
        # With a budget, only the plan decides what is switched on.
        turn_context.decide(None if budget else decision)
        tools = await self._curation.ranked(text, decision, is_planned=budget > 0)
        plan = await self._budget.plan(decision, tools, budget) if budget else None
        if plan is not None:
            tools = list(plan.tools)
            if decision.outcome == "activate" and decision.id not in plan.capabilities:
                outcome_of_it = "activate" if decision.id in plan.in_part else "abstain"
                decision = msgspec.structs.replace(
                    decision, outcome=outcome_of_it, reason=OVER_BUDGET
                )
        turn_context.decide(decision)
        self._parts.feedback.on_decided(decision)
        # Tools evicted since the last turn leave the list with this turn's changes, so that it
        # changes only once.
        self._state.is_mid_turn = False
        self._under_way += 1
        try:
            outcome, came_on = await self._switch_on(decision, resolved, plan)
            await self._parts.activation.step(self._state.begin_turn)
            suggested = self._suggested(decision, conversation)
            curated, of_skills = await self._bring_singles(text, tools, is_planned=plan is not None)
            unusable = _unusable(decision, conversation)
            lacking = hook_context.unusable_words(unusable)
            possible = await self._possible_cards(turn_context, suggested, conversation)
            suggestion = "" if possible.text else self._suggestion(suggested)
            beside = hook_context.join_texts(suggestion, possible.text, lacking)
            words = await self._hook_text(turn_context, decision, came_on, curated, beside)
            context = self._with_instructions(words.text, came_on, beside)
            context = hook_context.join_texts(of_skills.text, context, possible.text, lacking)
        finally:
            self._state.is_mid_turn = True
            self._under_way -= 1
            self._deliver_gathered()
        # The tools are on. The words of a held turn wait until it is known whether they are read.
        started_at += await turn_context.claim()
        bootstrap = await self._bootstrap_text(turn_context)
        # Nothing is awaited from here on, so `is_delivered` cannot change halfway.
        index = self._index_text(turn_context)
        if index or bootstrap:
            self._context.on_change()
        if turn_context.is_delivered:
            # Another conversation may have become the current one meanwhile.
            self._parts.conversations.make_current(conversation)
            words.note_in(conversation)
            possible.note_in(conversation)
            conversation.suggested = suggested or conversation.suggested
            conversation.unusable.update(each.id for each in unusable)
        return messages.TurnTaken(
            session=self._place.key,
            decision=decision,
            added=[*outcome.added, *curated.added, *of_skills.added],
            removed=[*outcome.removed, *curated.removed],
            ms=round((time.monotonic() - started_at) * 1000, 3),
            problem=outcome.problem,
            suggestion=suggestion,
            context=context,
            tools=[each.card.name for each in curated.fitting if each.key in words.cards],
            memories=self._memory_text(bootstrap, plan) if turn_context.is_delivered else "",
            bootstrap=bootstrap,
            index=index,
            left_out=list(plan.left_out) if plan is not None else [],
            budgeted=plan.tokens if plan is not None else None,
            notice=self.notice(decision, outcome.problem),
        )

    async def _bring_singles(
        self, text: str, tools: list[finder.CuratedTool], *, is_planned: bool
    ) -> tuple[CurationResult, Outcome]:
        """Switch on single tools, and the tools of client skills that the message names.

        In a turn with a token budget, `is_planned` is true: only `tools` are switched on, and no
        skill is used.
        """
        curated = await self._curation.activate_ranked(tools, is_planned=is_planned)
        if is_planned or not self._view.is_routed or is_system_content(text):
            return curated, Outcome("")
        return curated, await self._parts.client_skills.use_named(text)

    async def _switch_on(
        self, decision: Decision, resolved: Resolved | None, plan: TurnPlan | None
    ) -> tuple[Outcome, dict[CapabilityId, tuple[WireName, ...]]]:
        """Switch on the capability that routing decided on, or all capabilities of the plan.

        There is a plan if the turn has a token budget. Return the outcome, and the new tools by
        capability.
        """
        if plan is not None:
            return await self._enable_planned(plan)
        if decision.id is not None and decision.outcome == "activate":
            outcome = await self._parts.activation.enable(
                str(decision.id), by="turn", known=resolved
            )
            return outcome, {decision.id: outcome.added}
        if decision.id is not None:
            self._state.active.touch(decision.id, time.time())
        return Outcome(""), {}

    async def _enable_planned(
        self, plan: TurnPlan
    ) -> tuple[Outcome, dict[CapabilityId, tuple[WireName, ...]]]:
        """Switch on the plan's capabilities; return the joint outcome, and their new tools."""
        outcomes = [
            await self._parts.activation.enable(str(each), by="turn") for each in plan.capabilities
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

    def index_text(self, turn_context: TurnContext) -> str:
        """Return the index of what is installed, once in each conversation.

        The session is saved afterwards, so that the index is not sent again.
        """
        text = self._index_text(turn_context)
        if text:
            self._context.on_change()
        return text

    async def project_files(self, turn_context: TurnContext) -> str:
        """Return the project's bootstrap files as a text, once in each conversation.

        The session is saved afterwards, so that they are not sent again.
        """
        text = await self._bootstrap_text(turn_context)
        if text:
            self._context.on_change()
        return text

    def _index_text(self, turn_context: TurnContext) -> str:
        """Return the index, once in each conversation.

        Empty if no hook takes the turn's text, or if the model gets the index in instructions.
        """
        conversation = turn_context.conversation or self._parts.conversations.current
        if conversation.is_index_delivered or not (
            turn_context.is_hook and turn_context.is_delivered
        ):
            return ""
        text = self._parts.index.map_for_hook()
        conversation.is_index_delivered = bool(text)
        return text

    async def _bootstrap_text(self, turn_context: TurnContext) -> str:
        """Return the project's bootstrap files, once in each conversation.

        Empty unless a hook takes the turn's text.
        """
        if not (turn_context.is_hook and turn_context.is_delivered):
            return ""
        conversation = turn_context.conversation or self._parts.conversations.current
        if conversation.is_bootstrapped:
            return ""
        words = await self._parts.bootstrap.words()
        # Meanwhile the hook may have given up, or another hook may have got the files.
        if not turn_context.is_delivered or conversation.is_bootstrapped:
            return ""
        conversation.is_bootstrapped = True
        return words

    def _memory_text(self, bootstrap: str, plan: TurnPlan | None) -> str:
        """Return the text of memories, as far as there is room beside the bootstrap files.

        With a plan, the memories are those that it has chosen.
        """
        if plan is not None:
            return self._parts.memories.deliver_only(plan.memories)
        return self._parts.memories.deliver_due(max(0, MOST_OF_A_TURN - len(bootstrap)))

    async def _hook_text(
        self,
        turn_context: TurnContext,
        decision: Decision,
        came_on: Mapping[CapabilityId, Sequence[WireName]],
        curated: CurationResult,
        beside: str,
    ) -> "_HookText":
        """Return a prompt hook's text about tools: those that the client lists now, or call cards.

        `beside` is the rest of the turn's text. Both together share the turn's tokens.
        """
        conversation = turn_context.conversation or self._parts.conversations.current
        if self._view.lists_in_turn or not self._view.has_caller:
            named = [(each.name, added) for each, added in came_on.items()]
            listed = hook_context.contexts(named, self._parts.index.costs)
            if not curated.fitting or not self._view.has_caller:
                return _HookText(listed)
            # Tools for which the list has no room are called by their cards.
            nothing = finder.ToolsRanked([])
            whole = hook_context.join_texts(beside, listed)
            words = self._cards(decision, nothing, curated.fitting, conversation, whole)
            return replace(words, text=hook_context.join_texts(listed, words.text))
        # A capability that is not on (it failed, or user or budget hold it back) is not offered.
        is_on = decision.id is not None and decision.id in self._state.active
        meant = decision if is_on else msgspec.structs.replace(decision, id=None)
        ranked = await self._curation.within(turn_context.text, meant)
        if meant.id is None and (last := self._last_used(decision)) is not None:
            going_on = msgspec.structs.replace(meant, id=last)
            of_last = await self._curation.within(turn_context.text, going_on)
            if of_last.is_spoken_of:
                meant, ranked = going_on, of_last
        inside = self._curation.candidates(ranked.hits)
        if not inside:
            # The finder does not know tools that a server has just listed for the first time.
            names = [name for added in came_on.values() for name in added[:FEW_TOOLS]]
            inside = self._curation.listed_candidates(names)
        fitting = [*inside, *curated.fitting]
        return self._cards(meant, ranked, fitting, conversation, beside)

    def _last_used(self, decision: Decision) -> CapabilityId | None:
        """Return the capability that was used last, if routing was undecided; otherwise None."""
        if decision.outcome != "abstain" or decision.reason not in UNDECIDED:
            return None
        on = self._state.active.activations
        return max(on, key=lambda each: each.last_used_at).id if on else None

    async def _possible_cards(
        self,
        turn_context: TurnContext,
        suggested: Sequence[CapabilityId],
        conversation: Conversation,
    ) -> "_HookText":
        """Return call cards for tools of suggested capabilities.

        Empty if the client lists new tools within the turn, if no hook takes the turn's text, or if
        the session has no tool that calls others by name. With a card, the model can call the tool
        directly. With a suggestion alone, it needs one more request, to switch the capability on.
        """
        is_read = turn_context.is_hook and turn_context.is_delivered
        if not suggested or not is_read or self._view.lists_in_turn or not self._view.has_caller:
            return _HookText()
        of_each: list[list[ToolCandidate]] = []
        for id_ in suggested:
            meant = Decision("suggest", id=id_)
            ranked = await self._curation.within(turn_context.text, meant)
            best = self._curation.candidates(ranked.hits)
            of_each.append([each for each in best if each.key not in conversation.cards])
        # The best of each capability come before the second best of any.
        found = [each for row in zip_longest(*of_each) for each in row if each is not None]
        keys = {each.card.name: each.key for each in found}
        cards = possible_cards(
            [each.card for each in found],
            self._view.name_for_client(self._view.caller),
            self._parts.index.costs,
            used=frozenset(each.card.name for each in found if each.is_used),
            read_only_caller=self._read_only_caller(),
        )
        return _HookText(cards.text, tuple(keys[name] for name in cards.names))

    def _cards(
        self,
        decision: Decision,
        ranked: finder.ToolsRanked,
        fitting: Sequence[ToolCandidate],
        conversation: Conversation,
        beside: str,
    ) -> "_HookText":
        """Return the call cards that this conversation has not got yet, as far as there is room.

        `beside` is the rest of the turn's text, with which they share the turn's tokens.
        """
        new = {each.card.name: each for each in fitting if each.key not in conversation.cards}
        skill = next(iter(ranked.skills), None)
        skill_words = ""
        if skill is not None and skill.prompt not in conversation.skills:
            skill_words = hook_context.skill_text(
                skill.prompt,
                skill.skill.description,
                self._view.name_for_client(self._view.enabler),
                self._parts.index.costs,
            )
        beside = hook_context.join_texts(beside, skill_words)
        cards = fitting_cards(
            [each.card for each in new.values()],
            self._view.name_for_client(self._view.caller),
            self._parts.index.costs,
            beside=beside,
            remaining=self._remaining(decision, ranked, conversation),
            used=frozenset(each.card.name for each in new.values() if each.is_used),
            read_only_caller=self._read_only_caller(),
        )
        text = hook_context.join_texts(cards.text, skill_words)
        skills = (skill.prompt,) if skill is not None and skill_words else ()
        return _HookText(text, tuple(new[name].key for name in cards.names), skills)

    def _read_only_caller(self) -> str:
        caller = self._view.read_only_caller
        return self._view.name_for_client(caller) if caller is not None else ""

    def _remaining(
        self, decision: Decision, ranked: finder.ToolsRanked, conversation: Conversation
    ) -> RemainingTools | None:
        """Return the tools of the decided capability that have no card in the conversation yet.

        Of tools beyond `ranked.hits`, only the number is returned. None if the decision names no
        capability.
        """
        if decision.id is None:
            return None
        inside = self._curation.candidates(ranked.hits)
        return RemainingTools(
            decision.id.name,
            frozenset(each.card.name for each in inside if each.key not in conversation.cards),
            ranked.total - len(inside),
            self._view.name_for_client(self._view.searcher),
        )

    async def coming(self, turn_context: TurnContext) -> str:
        """Return the text about tools whose servers still start, for a hook answered early."""
        decision = turn_context.decision
        if decision is None or decision.id is None or decision.outcome != "activate":
            return ""
        if not self._view.has_caller:
            return ""
        conversation = turn_context.conversation or self._parts.conversations.current
        ranked = await self._curation.within(turn_context.text, decision)
        inside = self._curation.candidates(ranked.hits)
        if not inside:
            return hook_context.coming(
                decision.id.name, self._view.name_for_client(self._view.enabler)
            )
        words = self._cards(decision, ranked, inside, conversation, "")
        words.note_in(conversation)
        return words.text

    def _with_instructions(
        self, context: str, came_on: Iterable[CapabilityId], suggestion: str
    ) -> str:
        if not context:
            return context
        said = [line for each in came_on for line in self._parts.activation.instructions_of(each)]
        if not said:
            return context
        words = instructions_text(said, room_in_turn(context, suggestion))
        return f"{context}\n{words}" if words else context

    def _suggested(
        self, decision: Decision, conversation: Conversation
    ) -> tuple[CapabilityId, ...]:
        """Return the capabilities to suggest; none if the last turn suggested the same ones."""
        # With a budget, the plan may have switched on some of the suggested capabilities.
        suggested = tuple(each for each in decision.suggested if each not in self._state.active)
        return suggested if suggested != conversation.suggested else ()

    def _suggestion(self, suggested: Sequence[CapabilityId]) -> str:
        """Return a text on how to switch suggested capabilities on.

        Empty if the client has no tool for that.
        """
        return (
            self._parts.index.suggestions(suggested) if suggested and self._view.has_enabler else ""
        )

    async def _route(self, text: str, waits: float) -> tuple[Decision, Resolved | None]:
        """Ask the registry about a message; return its decision and the capability to switch on.

        `waits` is how many seconds the registry may wait for the model. The capability is None if
        none has to be switched on.
        """
        activation = self._parts.activation
        changes = activation.changes
        try:
            request = registry.RouteMessage(
                session=self._place.key,
                text=text,
                active=[each.id for each in self._state.active.activations],
                keys=self._environments.keys(self._place.key),
                domain=self._place.domain,
                is_enabled=self._view.is_routed,
                project=self._place.project,
                denied=await self._parts.index.denied(),
                restrictions=self._parts.index.restrictions(),
                waits=waits,
            )
            with must_answer(REGISTRY):
                reply = await self._registry.route(request, timeout=waits + ANSWER_TIMEOUT)
        except NotActivatedError as error:
            log.warning("not_routed", session=self._place.key, reason=str(error))
            return Decision("abstain", "model_not_ready"), None
        known = Resolved(reply.resolved, changes) if reply.resolved is not None else None
        return reply.decision, known


def _unusable(decision: Decision, conversation: Conversation) -> list[UnusableCapability]:
    """Return fitting capabilities that cannot be switched on and were not named before."""
    new = [each for each in decision.unusable if each.id not in conversation.unusable]
    return new[:MOST_UNUSABLE]
