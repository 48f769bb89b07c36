"""The sub-agents of one session: each has a session of its own inside the client's connection.

    SubagentStart ──> capd notes what is on in the conversation
    its first call ──> its session opens with the same tools on, and serves this and later calls
    SubagentStop, or the conversation ends ──> its session ends

`SubagentStart` and `SubagentStop` are events that the client's hooks report. An agent that neither
calls a tool through capd nor uses a skill gets no session. `core/sessions/sub_agents` finds out
which agent makes a call, and `opening` opens its session. A tool that is switched on in that
session is not listed: the client has one list for its connection, so the conversation would see the
tool, too.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
import trio

from capd.actors.session.client_skills import ClientSkills
from capd.actors.session.token_accounting import SessionTokenCount
from capd.adapters.clients.conversation import Conversation, Request
from capd.core.sessions.session_place import Outcome
from capd.core.sessions.session_record import SessionRecord
from capd.core.sessions.sub_agents import AgentId, SubAgents, agent_of
from capd_protos.types import SessionKey

log = structlog.get_logger(actor="curator")


@dataclass(frozen=True, slots=True)
class AgentSession:
    """What the session of a conversation uses of the session of one of its sub-agents."""

    key: SessionKey
    calls: Conversation
    client_skills: ClientSkills
    tokens: SessionTokenCount
    follow: Callable[[], None]
    """Copies what the client has told the conversation, such as its log level, to the session."""


@dataclass(slots=True, eq=False)
class _Agent:
    begins_with: SessionRecord
    session: AgentSession | None = None
    opening: trio.Lock = field(default_factory=trio.Lock)
    is_over: bool = False


async def _none(agent: AgentId, record: SessionRecord) -> AgentSession | None:
    del agent, record
    await trio.lowlevel.checkpoint()
    return None


class SessionAgents:
    """Follows the sub-agents of one session by the client's hooks, and opens their sessions."""

    # Slots save memory: every idle session has one of these objects.
    __slots__ = ("_agents", "_known", "_record", "end", "has_any", "open")

    def __init__(self, record: Callable[[], SessionRecord]) -> None:
        """Create it. `record` returns what is on in the conversation at this moment."""
        self._record = record
        self._known: SubAgents | None = None
        self.has_any = False
        """Whether a hook has ever named a sub-agent; in most conversations none does."""
        self._agents: dict[AgentId, _Agent] = {}
        self.open: Callable[[AgentId, SessionRecord], Awaitable[AgentSession | None]] = _none
        """Opens the session of an agent; returns None if it gets none."""
        self.end: Callable[[SessionKey], None] = lambda _: None
        """Ends the session of an agent, without waiting for it."""

    @property
    def sessions(self) -> list[AgentSession]:
        """The open sessions of sub-agents."""
        return [each.session for each in self._agents.values() if each.session is not None]

    def begin(self, agent_id: str) -> None:
        """Note that a sub-agent starts, and what is on in the conversation at this moment."""
        if agent := agent_of(agent_id):
            self._over(self._known_agents().start(agent))
            # A resumed sub-agent keeps the session that it has.
            self._begun(agent)

    def announce(self, agent_id: str, tool_use: str) -> None:
        """Note that a sub-agent is about to make the call with the id `tool_use`."""
        if agent := agent_of(agent_id):
            self._over(self._known_agents().announce(tool_use, agent))
            self._begun(agent)

    def stop(self, agent_id: str) -> None:
        """Note that a sub-agent has ended."""
        agent = agent_of(agent_id)
        if self._known is not None and self._known.stop(agent):
            self._over([agent])

    async def use_skill(self, agent_id: str, skill: str) -> tuple[Outcome, AgentSession] | None:
        """Use a skill of the client for a sub-agent; return the outcome and the agent's session.

        None if the sub-agent has no session.
        """
        agent = agent_of(agent_id)
        if not agent:
            return None
        self._over(self._known_agents().start(agent))
        self._begun(agent)
        session = await self._opened(agent)
        return None if session is None else (await session.client_skills.use(skill), session)

    def is_agents(self, request: Request) -> bool:
        """Tell whether a sub-agent makes the call `request`."""
        return bool(self._caller(request))

    def open_session(self, request: Request) -> AgentSession | None:
        """Return the session of the sub-agent that makes a call; None if no session is open."""
        found = self._agents.get(self._caller(request))
        if found is not None and found.session is not None:
            found.session.follow()
        return found.session if found is not None else None

    async def session(self, request: Request) -> AgentSession | None:
        """Return the session of the sub-agent that makes a call.

        The session is opened if necessary. None if the conversation makes the call, or the agent
        gets no session.
        """
        agent = self._caller(request)
        return await self._opened(agent) if agent else None

    def _known_agents(self) -> SubAgents:
        if self._known is None:
            self._known = SubAgents()
            self.has_any = True
        return self._known

    def _caller(self, request: Request) -> AgentId:
        if not self._known or request.method != "tools/call":
            return AgentId("")
        return self._known.caller(bytes(request.members.get("_meta", b"")))

    def _begun(self, agent: AgentId) -> None:
        if agent not in self._agents:
            self._agents[agent] = _Agent(self._record())

    async def _opened(self, agent: AgentId) -> AgentSession | None:
        found = self._agents.get(agent)
        if found is None:
            return None
        async with found.opening:
            if found.session is None and not found.is_over:
                found.session = await self.open(agent, found.begins_with)
                if found.is_over and found.session is not None:
                    # It ended while its session was being opened.
                    self.end(found.session.key)
        if found.session is not None:
            found.session.follow()
        return found.session

    def _over(self, agents: list[AgentId]) -> None:
        for agent in agents:
            found = self._agents.pop(agent, None)
            if found is None:
                continue
            found.is_over = True
            if found.session is not None:
                self.end(found.session.key)
