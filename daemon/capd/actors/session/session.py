"""One session: its parts, and what follows when one part changes what is on.

what a connection asks ──> calls       what a user says ──> turns
what is saved ───────────> snapshot    what is on ────────> activation
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property

import msgspec
import structlog

from capd.actors.session.activation import Activation
from capd.actors.session.calls import SessionCalls
from capd.actors.session.client_skills import ClientSkills, reads_skills
from capd.actors.session.held_turns import HeldTurns
from capd.actors.session.index import SessionIndex
from capd.actors.session.initial_tools import InitialTools
from capd.actors.session.memories import counts_of
from capd.actors.session.parts import SessionHosting, SessionParts
from capd.actors.session.policy import rules_of
from capd.actors.session.profile import SessionProfile
from capd.actors.session.results import ResultCounts
from capd.actors.session.services import SessionContext, SessionServices
from capd.actors.session.store import SessionSnapshot
from capd.actors.session.sub_agents import AgentSession, SessionAgents
from capd.actors.session.token_accounting import SessionTokenCount
from capd.actors.session.tool_search import described
from capd.actors.session.turns import AnswerInTime, SessionTurns
from capd.adapters.clients.client_connection import ClientConnection
from capd.adapters.clients.sub_agent_connection import SubAgentConnection
from capd.core.back_references import weakly
from capd.core.memories.delivery import MemoryDelivery
from capd.core.sessions.active_set import ActiveSet
from capd.core.sessions.profiles import unknown
from capd.core.sessions.routing_switch import switched
from capd.core.sessions.session import SessionState, Step
from capd.core.sessions.session_place import Outcome, SessionPlace
from capd.core.sessions.session_record import SessionRecord
from capd.core.sessions.session_rules import SessionRules
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.surface import Surface
from capd_protos import curator as messages
from capd_protos.types import CapabilityId, CapabilityName, WireName


def session_entry(
    place: SessionPlace, state: SessionState, view: SessionView
) -> messages.SessionEntry:
    """Return the entry of a session in the list of sessions, without facts about its connection."""
    return messages.SessionEntry(
        key=place.key,
        client=place.client,
        pid=0,
        project=place.project,
        mode=view.plan.mode,
        is_connected=False,
        age=0.0,
        active=[*_capabilities(state), *_single_tools(state)],
        cap=state.active.cap,
        surface=len(state.surface),
        available=state.available,
        surface_chars=len(state.surface.listing()),
        tool_cap=state.active.tool_cap,
        mode_reason=view.reason,
        unlisted=len(state.surface.shown) - len(state.surface.listed),
        parent=place.parent,
        calls=state.active.uses,
        client_title=view.traits.title,
        client_line=view.line,
        bridge=place.bridge,
        far_project=place.far_project,
    )


def _capabilities(state: SessionState) -> list[messages.ActiveEntry]:
    return [
        messages.ActiveEntry(
            "capability" if activation.servers else "dependencies",
            activation.id,
            activation.last_used_at,
            list(state.tools_of(activation.id)),
        )
        for activation in state.active.activations
    ]


def _single_tools(state: SessionState) -> list[messages.ActiveEntry]:
    entries: list[messages.ActiveEntry] = []
    for grant, used_at in state.active.tools.items():
        name, lease = state.surface.names[grant], state.lease_on(grant.server)
        assert lease is not None
        id_ = CapabilityId(lease.spec.tap, CapabilityName(name))
        entries.append(messages.ActiveEntry("tool", id_, used_at, [name]))
    return entries


class Session:
    """One client's or sub-agent's session. It may outlive the client's connection."""

    def __init__(
        self,
        place: SessionPlace,
        view: SessionView,
        services: SessionServices,
        on_change: Callable[[], None] = lambda: None,
        profile: SessionProfile | None = None,
        *,
        connection: ClientConnection | None = None,
    ) -> None:
        """Create it. `on_change` is called when the session has to be saved.

        `connection` is given for a sub-agent, which has no connection of its own.
        """
        self.profile = profile or SessionProfile(
            services.profiles,
            services.environments,
            services.settings.profiles,
            project=place.project,
            bridge=place.bridge,
            bridges=services.settings.bridges,
        )
        self.profile.attach(place.key)
        surface = Surface((), is_bare=view.is_bare)
        view.decide(surface)
        active = ActiveSet(view.rules.cap, view.rules.tool_cap)
        state = SessionState(active, surface, view.policy)
        connection = connection or ClientConnection(place.key)
        context = SessionContext(place, state, view, connection, services, on_change)
        self._parts = SessionParts(context, self.profile)
        self._parts.begin(self)
        self._answering: Callable[[Session], AnswerInTime] | None = None
        if not view.is_bare:
            surface.note = weakly(self._parts.note)
        self.place = place
        self.view = view
        self.connection = connection

    # Its parts, each created when it is first needed

    @property
    def activation(self) -> Activation:
        """The part that switches capabilities on and off."""
        return self._parts.activation

    @property
    def agents(self) -> SessionAgents:
        """The sub-agents that this session's conversation has started."""
        return self._parts.agents

    @property
    def client_skills(self) -> ClientSkills:
        """The part that finds and uses the client's own skills."""
        return self._parts.client_skills

    @property
    def initial_tools(self) -> InitialTools:
        """The part that sets up the tools that are on when the session opens."""
        return self._parts.initial_tools

    @property
    def index(self) -> SessionIndex:
        """The short texts about installed capabilities that this session may get."""
        return self._parts.index

    @property
    def tokens(self) -> SessionTokenCount:
        """The part that notes the texts that cost the session tokens."""
        return self._parts.tokens

    @property
    def snapshot(self) -> SessionSnapshot:
        """The part that creates the session's saved record, and restores the session from it."""
        return SessionSnapshot(self._parts)

    @cached_property
    def turns(self) -> SessionTurns:
        """The part that handles the user's messages."""
        turns = SessionTurns(self._parts, weakly(self.follow_profile))
        if self._answering is not None:
            turns.answer_in_time = self._answering(self)
        return turns

    @cached_property
    def held_turns(self) -> HeldTurns:
        """The turns whose hooks were told to ask again later."""
        return HeldTurns()

    @cached_property
    def calls(self) -> SessionCalls:
        """The part that answers what the session's connection requests."""
        return SessionCalls(self._parts, weakly(self._own_turns))

    def _own_turns(self) -> SessionTurns:
        return self.turns

    def host(self, hosting: SessionHosting, answering: Callable[["Session"], AnswerInTime]) -> None:
        """Set what the curator gives this session, such as a place for long tasks (`hosting`).

        `answering` returns the function that handles prompts from the session's own connection, and
        answers each prompt before the hook that sent it gives up.
        """
        self._parts.hosting, self._answering = hosting, answering

    @property
    def may_hold_servers(self) -> bool:
        """Whether the session may hold a server. If not, changes of servers do not concern it."""
        return self._parts.is_made("activation") or bool(self._parts.context.state.servers)

    async def read_client_skills(self) -> None:
        """Read the client's own skills before the first message."""
        if reads_skills(self._parts.context):
            project = self.place.project
            await self._parts.context.services.client_skills.read_ahead(project)

    # Its sub-agents

    def record_now(self) -> SessionRecord:
        """Return the session's record: its active capabilities, tools and settings."""
        return self.snapshot.record("")

    def begin_as(self, conversation: "Session", record: SessionRecord) -> None:
        """Begin as a sub-agent of `conversation`.

        `record` has what was on in the conversation when the sub-agent began.
        """
        context = self._parts.context
        environments = context.services.environments
        environments.put(self.place.key, environments.own(conversation.place.key))
        self.calls.on_client_info(conversation.connection.client)
        for held, patterns in conversation.activation.pinned:
            context.state.pin(held, patterns)
        self.snapshot.restore(record, is_same_client=False)

    def as_agent(self) -> AgentSession:
        """Return the parts of this sub-agent's session that the conversation's session uses."""
        return AgentSession(
            self.place.key, self.calls, self.client_skills, self.tokens, self._follow_conversation
        )

    def _follow_conversation(self) -> None:
        self.view.follow_shared()
        if isinstance(self.connection, SubAgentConnection):
            self.connection.follow()

    # capd's own tools, in a session that opened without them

    def result_reader(self) -> WireName | None:
        """Return the tool that reads long results, and put it on the list if it is not there.

        Return None if the session cannot have it.
        """
        if self.view.reader is None:
            self._offer_own(self.view.late_own(for_results=True))
        return self.view.reader

    async def on_tools_indexed(self) -> None:
        """Add capd's search tools to the list once more tools exist than the list shows."""
        context = self._parts.context
        if not self.view.plan.is_whole or self.view.has_caller:
            return
        found = await described(context.services.finder, self.view)
        if found is None or not found.is_known:
            return
        if found.unlisted or found.skills or found.tools > len(context.state.surface.listed):
            self._offer_own(self.view.late_own())

    def _offer_own(self, late: list[tuple[WireName, bytes]]) -> None:
        if late:
            self._parts.context.state.surface.append_own(late)
            self.turns.on_step(Step(tuple(name for name, _ in late), changes_list=True))

    # Changes

    def on_step(self, step: Step) -> None:
        """Do what follows from a change of what is on, such as notifying the client."""
        context = self._parts.context
        context.on_change()
        for what in self.activation.leases.changed_lists():
            self.connection.tell(f"notifications/{what}/list_changed", b"")
        if self._parts.is_made("memories"):
            self._parts.memories.on_step()
        self.turns.on_step(step)

    def on_rules(self, rules: SessionRules) -> None:
        """Apply new settings, as far as these may change after the client has listed its tools."""
        rules = self.profile.applied(rules)
        state = self._parts.context.state
        self.view.follow(rules)
        state.active.cap, state.active.tool_cap = rules.cap, rules.tool_cap
        if self._parts.is_made("conversations"):
            self._parts.conversations.follow(rules.memory_tokens)
        if self.view.policy != state.policy:
            self.activation.restrict(self.view.policy)

    def on_skills_changed(self) -> None:
        """Notify the client that its prompts have changed, because skills are prompts."""
        if self._parts.skills.are_listed:
            self.connection.tell("notifications/prompts/list_changed", b"")

    async def on_memories_changed(self) -> None:
        """Remove the texts of memories that no longer exist from the descriptions of tools."""
        if self._parts.is_made("memories") and self._parts.memories.drop_notes():
            # Applying the same policy again changes no tool, but renews all descriptions.
            state = self._parts.context.state
            await self.activation.step(lambda: state.restrict(state.policy))

    async def switch(self, name: str, *, is_on: bool) -> Outcome:
        """Switch a capability on or off for a person, and let routing learn from it."""
        state, feedback = self._parts.context.state, self._parts.feedback
        before = state.find_active(name)
        if is_on:
            outcome = await self.activation.enable(name, by="person")
            came_on = state.find_active(name)
            if before is None and came_on is not None:
                feedback.on_enabled(came_on)
            return outcome
        outcome = await self.activation.disable(name, by="person")
        if before is not None and before not in state.active:
            feedback.on_disabled(before)
        return outcome

    async def follow_profile(self) -> None:
        """Choose the session's profile again; if it is another one now, apply it."""
        change = await self.profile.refresh(self.view.names)
        if change is None:
            return
        settings = self._parts.context.services.settings
        self.on_rules(settings.rules(self.place.project))
        if change.has_other_secrets or change.has_other_sandbox:
            await self.activation.leave_instances(are_all=change.has_other_sandbox)
        await self.activation.release_left()
        await self.enable_of_profile()

    async def enable_of_profile(self) -> None:
        """Switch on the capabilities that the profile names; switch off those that it forbids."""
        profile = self.profile.choice.profile
        for each in self._parts.context.state.active.activations:
            if self.view.policy.restrict_capability(each.id) is not None:
                await self.activation.disable(str(each.id), by="profile")
        for name in profile.on if profile is not None else ():
            outcome = await self.activation.enable(name, by="profile")
            if not outcome.is_ok:
                log = structlog.get_logger(actor="curator", session=self.place.key)
                log.warning("not_enabled", capability=name, reason=outcome.text)

    async def use_profile(self, name: str) -> Outcome:
        """Give the session the profile `name`, as a person chose; return the outcome.

        If `name` is empty, capd chooses the profile by its rules again.
        """
        profiles = self._parts.context.services.settings.profiles()
        if name and name not in profiles:
            return Outcome(unknown(profiles, name), is_ok=False)
        self.profile.by_hand = name
        await self.follow_profile()
        choice = self.profile.choice
        return Outcome(f"{self.place.key}: profile {choice.name or 'none'} ({choice.why})")

    def switch_routing(self, *, is_on: bool) -> Outcome:
        """Set whether the session's messages may switch capabilities on; return the outcome."""
        self.view.own_routing = is_on
        self._parts.context.on_change()
        return Outcome(switched(is_on=is_on))

    # Descriptions of the session

    def reach(self) -> messages.ReachDescribed:
        """Return the session's policy, the names of the secrets that it has, and its domain.

        A domain, such as `work`, limits which capabilities a session may use.
        """
        keys = self._parts.context.services.environments.keys(self.place.key)
        return messages.ReachDescribed(self.place.key, rules_of(self.view), keys, self.place.domain)

    def entry(self, now: float, opened_at: float, pid: int) -> messages.SessionEntry:
        """Return the session's entry in the list of sessions; times are seconds since the epoch."""
        parts, connection = self._parts, self.connection
        state = parts.context.state
        return msgspec.structs.replace(
            session_entry(self.place, state, self.view),
            pid=pid,
            age=now - opened_at,
            is_connected=connection.is_connected,
            client_sessions=sorted(connection.client_sessions),
            linked_by=connection.linked_by,
            available=max(state.available, len(state.surface.own) + parts.tokens.known_tools),
            **parts.tokens.entry(),
            **self._memory_counts(),
            **parts.index.entry(),
            **asdict(parts.results.counts if parts.is_made("results") else ResultCounts()),
        )

    def _memory_counts(self) -> Mapping[str, int]:
        if self._parts.is_made("memories") or self.view.is_bare:
            return self._parts.memories.counts
        return counts_of(MemoryDelivery(self.view.rules.memory_tokens))
