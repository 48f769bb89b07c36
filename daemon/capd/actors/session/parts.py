"""The parts of one session, as `Session` makes them for its calls, turns, scripts and own tools."""

from dataclasses import dataclass

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
from capd.actors.session.results import NoResults, SessionResults
from capd.actors.session.server_requests import ServerRequests
from capd.actors.session.services import SessionContext
from capd.actors.session.skills import NoSkills, Skills
from capd.actors.session.sub_agents import SessionAgents
from capd.actors.session.token_accounting import SessionTokenCount
from capd.actors.session.tool_search import ToolSearch
from capd.actors.session.withheld import Withheld
from capd.core.sessions.conversations import Conversations


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The parts of one session; created by `Session`."""

    context: SessionContext
    activation: Activation
    agents: SessionAgents
    approvals: SessionApprovals
    client_skills: ClientSkills
    bootstrap: Bootstrapping
    conversations: Conversations
    denials: Denials
    feedback: SessionFeedback
    index: SessionIndex
    initial_tools: InitialTools
    memories: SessionMemories | NoMemories
    notes: CallNotes
    profile: SessionProfile
    requests: ServerRequests
    results: SessionResults | NoResults
    search: ToolSearch
    skills: Skills | NoSkills
    tokens: SessionTokenCount
    withheld: Withheld
