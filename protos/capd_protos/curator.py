"""Messages of the curators: sessions, their active sets and their surfaces."""

from typing import Literal

import msgspec

from capd_protos.finder import PolicyTable
from capd_protos.socket import Hello
from capd_protos.tokens import SessionTokens
from capd_protos.types import (
    CapabilityId,
    Decision,
    MemorySpec,
    RoutingLabel,
    ServerName,
    SessionKey,
    ToolName,
)

CallOutcome = Literal["result", "error", "not_found", "not_sent", "outcome_unknown", "refused"]
TokensState = Literal["", "counted", "counting", "not_listed", "not_counted"]
RefusalCode = Literal[
    "session_unknown",
    "session_ambiguous",
    "session_in_use",
    "resume_refused",
    "overloaded",
    "bad_hello",
    "unlinked",
    "stopping",
    "no_sampling",
    "not_sampled",
    "no_approval",
]
ApprovalAnswer = Literal["once", "session", "always", "refuse"]
ApprovalHint = Literal["destructive", "not said", "not destructive", "read-only"]


class OpenSession(msgspec.Struct, frozen=True, tag="curator.open"):
    """Serve a connection whose hello was read; the stream itself waits under `connection`."""

    connection: int
    hello: Hello
    peer_pid: int
    is_bare: bool = False
    """Whether what is switched on is shown under its servers' own names, and nothing of capd's."""
    bridge: str = ""
    """The bridge that the connection came over; empty for a local one."""
    far_project: str = ""
    """The project's path on the far side of the bridge, for a person to read."""


class SessionOpened(msgspec.Struct, frozen=True, tag="curator.opened"):
    """The session that the connection belongs to."""

    session: SessionKey
    resume: str
    resumed: bool


class TakeTurn(msgspec.Struct, frozen=True, tag="curator.turn"):
    """Hand a user's message to a session."""

    session: SessionKey
    text: str
    budget: int = 0
    """Tokens that what is switched on and told may take together; 0 where nobody counts."""
    has_no_output: bool = msgspec.field(default=False, name="is_mute")
    """Whether nothing that is answered reaches the model."""
    patience: float = 0.0
    """Seconds after which nobody hears the answer to a client's prompt; 0 for other turns."""
    longest: float = 0.0
    """Seconds for which the client can wait where the turn is held; 0 where it cannot."""
    is_again: bool = False
    """Whether this asks for a turn that was held."""


class LeftOut(msgspec.Struct, frozen=True):
    """What had no room in a turn's budget."""

    kind: Literal["capability", "tool", "memory"]
    name: str
    tokens: int | None
    reason: str


class TurnTaken(msgspec.Struct, frozen=True, tag="curator.turned"):
    """What the message led to."""

    session: SessionKey
    decision: Decision
    added: list[str]
    """Wire names that joined the surface."""
    removed: list[str]
    ms: float
    problem: str = ""
    """Why the chosen capability could not be switched on."""
    suggestion: str = ""
    """What the model is told of capabilities that may be meant; empty where it knows already."""
    context: str = ""
    """What a prompt hook hands to the model: what came on, and how it is called."""
    tools: list[str] = []
    """Wire names of single tools that fit and were not listed: told in `suggestion`."""
    memories: str = ""
    """What the model is told of what came on, from memories; each once in a conversation."""
    bootstrap: str = ""
    """The project's own files, with the first message of a conversation."""
    left_out: list[LeftOut] = []
    """Where the turn had a budget."""
    budgeted: int | None = None
    """What is on and told for it takes of that."""
    index: str = ""
    """What is installed, once a session, where the client hands its model no instructions."""
    is_held: bool = False
    """Whether the turn is not decided yet: the client asks for it again, with `is_again`."""


class TakeHookTurn(msgspec.Struct, frozen=True, tag="curator.hook"):
    """Hand a user's message to the session that a prompt hook speaks for."""

    text: str
    client: str
    client_session: str
    project: str
    peer_pid: int
    """The hook's process, by the kernel's word."""
    turn: str = ""
    """The client's own id of the prompt."""
    has_no_output: bool = msgspec.field(default=False, name="is_mute")
    """Whether nothing that is answered reaches the model."""
    patience: float = 0.0
    """Seconds after which nobody hears the answer; 0 where it is waited for."""
    longest: float = 0.0
    """Seconds for which the client can wait where the turn is held; 0 where it cannot."""
    is_again: bool = False
    """Whether this asks for a turn that was held."""


class EnableCapability(msgspec.Struct, frozen=True, tag="curator.enable"):
    """Switch a capability on in a session."""

    session: SessionKey
    name: str


class DisableCapability(msgspec.Struct, frozen=True, tag="curator.disable"):
    """Switch a capability off in a session."""

    session: SessionKey
    name: str


class SwitchCapability(msgspec.Struct, frozen=True, tag="curator.switch"):
    """Switch a capability on or off in a session, for a person of whom routing learns."""

    session: SessionKey
    name: str
    is_on: bool


class CapabilityAnswered(msgspec.Struct, frozen=True, tag="curator.answered"):
    """The outcome in the words that a model gets as well."""

    session: SessionKey
    is_ok: bool
    text: str
    added: list[str] = []
    removed: list[str] = []


class CallTool(msgspec.Struct, frozen=True, tag="curator.call"):
    """Call a tool as the session would; for the command line, not for the hot path."""

    session: SessionKey
    name: str
    arguments: bytes
    """A JSON object."""


class ToolCalled(msgspec.Struct, frozen=True, tag="curator.called"):
    """The call's one outcome."""

    session: SessionKey
    outcome: CallOutcome
    result: bytes = b"{}"
    """The result as JSON, where there is one."""
    message: str = ""


class ListTools(msgspec.Struct, frozen=True, tag="curator.tools"):
    """Give a session's surface."""

    session: SessionKey


class ToolsListed(msgspec.Struct, frozen=True, tag="curator.tools_listed"):
    """The surface in its order, each tool as the JSON that the client gets."""

    session: SessionKey
    tools: list[bytes]


class ListSessions(msgspec.Struct, frozen=True, tag="curator.sessions"):
    """List every session."""


class ActiveEntry(msgspec.Struct, frozen=True):
    """One activation."""

    kind: str
    id: CapabilityId
    last_used_at: float
    """Seconds since the epoch."""
    tools: list[str]


class SessionEntry(msgspec.Struct, frozen=True):
    """One session."""

    key: SessionKey
    client: str
    pid: int
    project: str
    mode: str
    is_connected: bool
    age: float
    active: list[ActiveEntry]
    cap: int
    surface: int
    available: int
    surface_chars: int
    client_sessions: list[str] = []
    """Ids under which the client itself knows the conversation."""
    linked_by: str = ""
    """How the last prompt hook found this session."""
    compacted: int = 0
    """Results that were too long and came back short, with a handle."""
    characters_in: int = 0
    """How long those were."""
    characters_out: int = 0
    """How long they came back."""
    not_kept: int = 0
    """Results that were too long and passed whole, because they could not be stored."""
    tool_cap: int = 0
    mode_reason: str = ""
    """Why the surface has this mode."""
    unlisted: int = 0
    """Tools that are on and not on the list: callable by name, or through `tool_call`."""
    parent: str = ""
    """The session that it was started by, if one started it."""
    tokens: int | None = None
    """What its surface costs."""
    tokens_saved: int | None = None
    """What is left of what it is smaller than a list of everything; below 0 is a loss."""
    tokens_state: TokensState = ""
    """`not_listed` where the client never asked."""
    memories: int = 0
    """Memories that its conversation was told."""
    memories_left_out: int = 0
    """Those that its budget had no room for."""
    memory_tokens: int = 0
    memory_budget: int = 0
    calls: int = 0
    """Tool calls that succeeded."""
    client_title: str = ""
    """What a person calls the client; empty where it is not in the table of clients."""
    client_line: str = ""
    """Its line in that table."""
    index_listed: int = 0
    """Capabilities that the model was told of at the session's beginning."""
    index_left_out: int = 0
    """Those that there was no room for."""
    index_tokens: int = 0
    suggestions_left_out: int = 0
    """Capabilities that fitted a message and that its turn had no room for."""
    bridge: str = ""
    """The bridge that it came over; empty for a local session."""
    far_project: str = ""
    """Its project's path on the far side of the bridge."""


class HookCount(msgspec.Struct, frozen=True):
    """How many prompt hooks of one client found the session that they speak for."""

    client: str
    linked: int
    unlinked: int
    reason: Literal["", "none", "ambiguous"] = ""
    """Why the last one that found none did not."""


class SessionsListed(msgspec.Struct, frozen=True, tag="curator.sessions_listed"):
    """All sessions, oldest first."""

    sessions: list[SessionEntry]
    hooks: list[HookCount] = []
    problem: str = ""
    """Why a restart would not find all that they have, or nothing."""


class CuratorRefused(msgspec.Struct, frozen=True, tag="curator.refused"):
    """Nothing was done, and why."""

    code: RefusalCode
    message: str


class SessionStarted(msgspec.Struct, frozen=True, tag="session.started"):
    """A session is served."""

    session: SessionKey
    client: str


class SessionEnded(msgspec.Struct, frozen=True, tag="session.ended"):
    """A session is over and holds nothing."""

    session: SessionKey


class SurfaceChanged(msgspec.Struct, frozen=True, tag="session.surface_changed"):
    """A session's list of tools is another one."""

    session: SessionKey
    added: list[str]
    removed: list[str]


class CapabilityUsed(msgspec.Struct, frozen=True, tag="session.capability_used"):
    """A capability came on in a session, or a call through it succeeded."""

    session: SessionKey
    project: str
    capability: CapabilityId


class RoutingTaught(msgspec.Struct, frozen=True, tag="session.routing_taught"):
    """What followed a message says whether routing was right."""

    session: SessionKey
    label: RoutingLabel


class ResultCompacted(msgspec.Struct, frozen=True, tag="session.result_compacted"):
    """A result over its limit came back short; it is kept whole for the session."""

    session: SessionKey
    tool: str
    characters_in: int
    characters_out: int


class ApprovalAsked(msgspec.Struct, frozen=True, tag="session.approval_asked"):
    """A call waits for a person."""

    session: SessionKey
    number: int
    tool: str


class ApprovalEnded(msgspec.Struct, frozen=True, tag="session.approval_ended"):
    """A call does not wait for a person any more."""

    session: SessionKey
    number: int
    tool: str
    answer: str
    """Empty if nobody answered."""


class DaemonStopping(msgspec.Struct, frozen=True, tag="daemon.stopping"):
    """The daemon ends on purpose; clients are told before their connections close."""


class DrainSessions(msgspec.Struct, frozen=True, tag="curator.drain"):
    """Begin nothing more, let what is under way end, and send clients to the next daemon."""

    within: float
    """Seconds after which what is left is cut."""
    is_for_good: bool = False
    """Whether there is no next daemon: clients are told not to come back."""


class SessionsDrained(msgspec.Struct, frozen=True, tag="curator.drained"):
    """Nothing of any client is under way here."""

    cut: int
    """Connections with requests that did not end in time."""


class DescribeReach(msgspec.Struct, frozen=True, tag="curator.reach"):
    """Say what a session may use, for a question that is asked in its place."""

    session: SessionKey


class ReachDescribed(msgspec.Struct, frozen=True, tag="curator.reaches"):
    """What it may use."""

    session: SessionKey
    rules: list[PolicyTable]
    keys: list[str]
    """Environment keys that it has values for."""
    domain: str = ""


class SwitchRouting(msgspec.Struct, frozen=True, tag="curator.routing"):
    """Have the session's messages switch capabilities on by themselves, or not."""

    session: SessionKey
    is_on: bool


class DescribeTokens(msgspec.Struct, frozen=True, tag="curator.tokens"):
    """Say what every session costs, waiting a moment for what is yet to be counted."""

    within: float = 0.0
    """Seconds, at most."""


class TokensDescribed(msgspec.Struct, frozen=True, tag="curator.tokens_described"):
    """All sessions, oldest first."""

    vocabulary: str
    sessions: list[SessionTokens]
    problem: str = ""
    """Why nothing is counted, where nothing is."""


class DescribeMemories(msgspec.Struct, frozen=True, tag="curator.memories"):
    """Say what is known of capabilities and tools, and what came of it."""

    project: str = ""


class MemoryEntry(msgspec.Struct, frozen=True):
    """One memory, and how often it was of use."""

    memory: MemorySpec
    tokens: int
    told: int = 0
    refused: int = 0
    """Calls that it refused."""
    worked: int = 0
    """Next calls, after it was told or refused one, that worked."""


class LessonEntry(msgspec.Struct, frozen=True):
    """What failed calls have taught."""

    server: ServerName
    tool: ToolName
    content: str
    schema: bytes
    """The mistake as a JSON Schema; empty where something was missing."""
    count: int


class MemoriesDescribed(msgspec.Struct, frozen=True, tag="curator.memories_described"):
    """All of it."""

    memories: list[MemoryEntry]
    lessons: list[LessonEntry] = []
    """The most frequent first."""


class LeaveProject(msgspec.Struct, frozen=True, tag="curator.leave_project"):
    """Have every session let go of what a project's files define."""

    project: str
    """Its real path."""


class ProjectLeft(msgspec.Struct, frozen=True, tag="curator.project_left"):
    """No session has anything of it."""


class EndBridge(msgspec.Struct, frozen=True, tag="curator.end_bridge"):
    """End every session of a bridge, and forget what is saved of them."""

    bridge: str


class BridgeEnded(msgspec.Struct, frozen=True, tag="curator.bridge_ended"):
    """No session of the bridge is left, nor a record of one."""

    sessions: int
    """How many were open."""


class SampleText(msgspec.Struct, frozen=True, tag="curator.sample"):
    """Have the model of a session's client answer a question, where the client offers that."""

    session: SessionKey
    text: str
    system: str
    max_tokens: int


class TextSampled(msgspec.Struct, frozen=True, tag="curator.sampled"):
    """What it answered."""

    session: SessionKey
    text: str


class ListApprovals(msgspec.Struct, frozen=True, tag="curator.approvals"):
    """List the calls that wait for a person."""


class ApprovalEntry(msgspec.Struct, frozen=True):
    """One call that waits for a person."""

    number: int
    session: SessionKey
    client: str
    project: str
    server: ServerName
    tool: ToolName
    name: str
    """The tool's name in the session."""
    arguments: str
    """Short, and without secrets."""
    hint: ApprovalHint
    """What the tool's server says of what it changes."""
    rule: str
    place: str
    """The table of the rule."""
    until: float
    """When it is refused, in seconds since the epoch."""


class ApprovalsListed(msgspec.Struct, frozen=True, tag="curator.approvals_listed"):
    """The calls that wait, the oldest first, and the tools that are approved for always."""

    waiting: list[ApprovalEntry]
    always: list[str]
    problem: str
    """Why some of it was lost or will be; empty if none was."""


class AnswerApproval(msgspec.Struct, frozen=True, tag="curator.approve"):
    """A person's answer about a call that waits."""

    number: int
    answer: ApprovalAnswer


class ApprovalAnswered(msgspec.Struct, frozen=True, tag="curator.approved"):
    """The calls that it answers: an approval for longer may answer several."""

    numbers: list[int]


class ForgetApprovals(msgspec.Struct, frozen=True, tag="curator.forget_approvals"):
    """Ask again about tools that were approved for always: `server:tool`, or all of a server."""

    name: str


class ApprovalsForgotten(msgspec.Struct, frozen=True, tag="curator.approvals_forgotten"):
    """The tools that a person is asked about again."""

    names: list[str]


class ListProfiles(msgspec.Struct, frozen=True, tag="curator.profiles"):
    """List the profiles, and which session has which."""


class ProfileEntry(msgspec.Struct, frozen=True):
    """One profile of the configuration."""

    name: str
    folders: list[str]
    remotes: list[str]
    branches: list[str]
    clients: list[str]
    capabilities: list[str]
    """Those that are switched on with it."""
    secrets: str
    """The namespace of its secrets."""


class SessionProfile(msgspec.Struct, frozen=True):
    """The profile of one session."""

    session: SessionKey
    profile: str
    """Empty for none."""
    why: str
    problem: str
    """Why a profile that was named is not used."""


class ProfilesListed(msgspec.Struct, frozen=True, tag="curator.profiles_listed"):
    """The profiles in the order in which they are tried, and the open sessions."""

    profiles: list[ProfileEntry]
    sessions: list[SessionProfile]


class UseProfile(msgspec.Struct, frozen=True, tag="curator.use_profile"):
    """Give a session a profile by name; empty has it chosen by its conditions again."""

    session: SessionKey
    name: str


SessionRequest = (
    TakeTurn
    | EnableCapability
    | DisableCapability
    | SwitchCapability
    | CallTool
    | ListTools
    | DescribeReach
    | SwitchRouting
    | SampleText
    | UseProfile
)
"""What is asked of one session, which may be left out while there is one."""
Request = (
    OpenSession
    | TakeHookTurn
    | ListSessions
    | DrainSessions
    | DescribeTokens
    | DescribeMemories
    | LeaveProject
    | EndBridge
    | ListProfiles
    | ListApprovals
    | AnswerApproval
    | ForgetApprovals
    | SessionRequest
)
Reply = (
    SessionOpened
    | TurnTaken
    | CapabilityAnswered
    | ToolCalled
    | ToolsListed
    | SessionsListed
    | SessionsDrained
    | ReachDescribed
    | CuratorRefused
    | TokensDescribed
    | MemoriesDescribed
    | ProjectLeft
    | BridgeEnded
    | TextSampled
    | ProfilesListed
    | ApprovalsListed
    | ApprovalAnswered
    | ApprovalsForgotten
)
Event = (
    SessionStarted
    | SessionEnded
    | SurfaceChanged
    | CapabilityUsed
    | RoutingTaught
    | ResultCompacted
    | ApprovalAsked
    | ApprovalEnded
    | DaemonStopping
)
