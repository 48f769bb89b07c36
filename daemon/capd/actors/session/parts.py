"""The parts of one session, each created when it is first needed.

An idle session has few parts: most open clients send nothing, and all parts of a session together
take 12 KB. A part that does not exist yet has nothing to report. So code that only reads a part
checks `is_made` first, and does not create the part.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol
from weakref import ref

import trio

from capd.actors.session.activation import Activation
from capd.actors.session.approvals import SessionApprovals
from capd.actors.session.bootstrap import Bootstrapping
from capd.actors.session.call_notes import CallNotes
from capd.actors.session.client_skills import ClientSkills
from capd.actors.session.feedback import SessionFeedback
from capd.actors.session.index import SessionIndex
from capd.actors.session.initial_tools import InitialTools
from capd.actors.session.memories import NoMemories, SessionMemories
from capd.actors.session.policy import Denials
from capd.actors.session.profile import SessionProfile
from capd.actors.session.results import NoResults, NoResultStore, SessionResults
from capd.actors.session.server_requests import ServerRequests
from capd.actors.session.services import SessionContext
from capd.actors.session.skills import NoSkills, Skills
from capd.actors.session.sub_agents import AgentSession, SessionAgents
from capd.actors.session.token_accounting import SessionTokenCount
from capd.actors.session.tool_search import ToolSearch
from capd.actors.session.withheld import WithheldTools
from capd.core.back_references import weakly
from capd.core.memories.bootstrap import BootstrapRules
from capd.core.sessions.active_set import Grant
from capd.core.sessions.conversations import Conversations
from capd.core.sessions.session import Step
from capd.core.sessions.session_record import SessionRecord
from capd.core.sessions.sub_agents import AgentId
from capd_protos.types import SessionKey, WireName


@dataclass(frozen=True, slots=True)
class SessionHosting:
    """What the curator gives each session: a place for long tasks, and sessions for sub-agents."""

    nursery: trio.Nursery
    """Runs what takes longer than an answer may wait."""
    open_agent: Callable[[SessionKey, AgentId, SessionRecord], Awaitable[AgentSession | None]]
    end_agent: Callable[[SessionKey], None]


class PartsOwner(Protocol):
    """The methods of a session that its parts call."""

    def on_step(self, step: Step) -> None:
        """Do what follows from a change of what is on, such as notifying the client."""
        ...

    def record_now(self) -> SessionRecord:
        """Return the session's record: its active capabilities, tools and settings."""
        ...

    def result_reader(self) -> WireName | None:
        """Return the tool that reads stored results; None if the session cannot have it."""
        ...


class SessionParts:
    """The parts of one session, each created when it is first needed."""

    def __init__(self, context: SessionContext, profile: SessionProfile) -> None:
        self.context = context
        self.profile = profile
        self.hosting: SessionHosting | None = None
        """None before the session is opened by a curator."""

    def begin(self, owner: PartsOwner) -> None:
        """Set the session whose methods the parts call; only a weak reference to it is kept."""
        # Parts refer to their session weakly, so that no garbage collection is needed to free it.
        self._owner_ref = ref(owner)

    @property
    def _owner(self) -> PartsOwner:
        owner = self._owner_ref()
        assert owner is not None, "whoever asks for a part has the session"
        return owner

    def is_made(self, part: str) -> bool:
        """Tell whether the part with this attribute name has been created."""
        return part in vars(self)

    @cached_property
    def activation(self) -> Activation:
        """The part that switches capabilities on and off."""
        return Activation(self.context, self.denials, weakly(self._owner.on_step))

    @cached_property
    def agents(self) -> SessionAgents:
        """The sub-agents of the session's conversation, each with a session of its own."""
        agents, hosting = SessionAgents(weakly(self._owner.record_now)), self.hosting
        if hosting is not None:
            key = self.context.place.key
            agents.open = lambda agent, record: hosting.open_agent(key, agent, record)
            agents.end = hosting.end_agent
        return agents

    @cached_property
    def approvals(self) -> SessionApprovals:
        """The part that asks a person about calls that need approval."""
        return SessionApprovals(self.context)

    @cached_property
    def bootstrap(self) -> Bootstrapping:
        """The part that gives the model the project's bootstrap files."""
        view = self.context.view

        def rules() -> BootstrapRules:
            return view.bootstrap

        return Bootstrapping(self.context.place, rules, self.context.services.memories.reads)

    @cached_property
    def client_skills(self) -> ClientSkills:
        """The part that finds and uses the client's own skills."""
        skills = ClientSkills(self.context, self.activation, self.search)
        skills.nursery = self.hosting.nursery if self.hosting is not None else None
        return skills

    @cached_property
    def conversations(self) -> Conversations:
        """What the model has got so far in each conversation of the client."""
        return Conversations(self.context.view.rules.memory_tokens)

    @cached_property
    def denials(self) -> Denials:
        """The part that finds out which capabilities policy and profile deny."""
        services = self.context.services
        return Denials(services.finder, services.registry, self.context.view)

    @cached_property
    def feedback(self) -> SessionFeedback:
        """The part that tells routing what followed a message, so that routing learns."""
        return SessionFeedback(self.context)

    @cached_property
    def index(self) -> SessionIndex:
        """The short texts about installed capabilities that this session may get."""
        context = self.context
        return SessionIndex(
            context.services.index, context.place, context.state, context.view, self.denials
        )

    @cached_property
    def initial_tools(self) -> InitialTools:
        """The part that sets up the tools that are on when the session opens."""
        return InitialTools(self.context, weakly(self._activation))

    def _activation(self) -> Activation:
        return self.activation

    @cached_property
    def memories(self) -> SessionMemories | NoMemories:
        """The part that delivers memories about what is on.

        In a bare session (`is_bare`) it does nothing.
        """
        context = self.context
        if context.view.is_bare:
            return NoMemories()
        return SessionMemories(
            context.services.memories,
            context.place,
            context.state,
            self.conversations,
            context.on_change,
        )

    def note(self, grant: Grant, name: WireName) -> str:
        """Return the text of memories that is added to a tool's description; empty for none."""
        memories = self.memories
        return "" if isinstance(memories, NoMemories) else memories.note(grant, name)

    @cached_property
    def notes(self) -> CallNotes:
        """The part that records each call in the ledger."""
        context = self.context
        return CallNotes(context.services.journal, context.place, context.state.active)

    @cached_property
    def requests(self) -> ServerRequests:
        """The part that sends requests to servers, and finds the server of a prompt or resource."""
        return ServerRequests(self.context, self.activation, self.skills, self.bootstrap)

    @cached_property
    def results(self) -> SessionResults | NoResults:
        """The part that stores results that are too long, and shortens them."""
        services = self.context.services
        store = services.results.store
        if self.context.view.is_bare or isinstance(store, NoResultStore):
            return NoResults()
        key, publish = self.context.place.key, services.bus.publish
        reader = weakly(self._owner.result_reader)
        return SessionResults(services.results, store, key, publish, reader)

    @cached_property
    def search(self) -> ToolSearch:
        """The part that finds tools by a search or by name, and switches them on."""
        return ToolSearch(
            self.context, self.activation, self.notes, self.withheld, self.conversations
        )

    @cached_property
    def skills(self) -> Skills | NoSkills:
        """The part that lists and uses the skills of taps.

        In a bare session (`is_bare`) it has none.
        """
        return NoSkills() if self.context.view.is_bare else Skills(self.context, self.activation)

    @cached_property
    def tokens(self) -> SessionTokenCount:
        """The part that notes the texts that cost the session tokens."""
        return SessionTokenCount(
            self.context.services.tokens, self.context.place, self.context.view
        )

    @cached_property
    def withheld(self) -> WithheldTools:
        """The part that refuses calls of tools whose definitions are not trusted."""
        return WithheldTools(self.context.services.definitions, self.context.state)
