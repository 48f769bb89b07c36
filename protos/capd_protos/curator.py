"""Messages of the curator, the actor that owns all sessions.

A session's active set is the capabilities and single tools that are switched on in it. Its surface
is the list of tools that its client is shown. A turn is one message of the user, and what it
changes in the session. Memories are short texts for the model about a capability or a tool. A wire
name is the name under which clients know a tool.
"""

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
    """Serve a client's connection whose hello was accepted.

    `connection` is the id under which the sender has put the connection's stream into a
    `HandleTable`: a message cannot contain a stream.
    """

    connection: int
    hello: Hello
    peer_pid: int
    is_bare: bool = False
    """Whether active tools keep the names that their servers give them, and capd's own tools are
    not listed."""
    bridge: str = ""
    """The bridge that the connection came over; empty for a local one."""
    far_project: str = ""
    """The project's path on the far side of the bridge, to show to a person."""
    far_folder: str = ""
    """The project's path on the far side, for servers that run there; empty if it is not an
    absolute path that they can use."""


class SessionOpened(msgspec.Struct, frozen=True, tag="curator.opened"):
    """Reply to `OpenSession`: the session that the connection belongs to."""

    session: SessionKey
    resume: str
    """The token with which the client can take the session over later; a secret."""
    resumed: bool
    """Whether the session existed already, and its active set was restored."""


class TakeTurn(msgspec.Struct, frozen=True, tag="curator.turn"):
    """Give a user's message to a session.

    A prompt hook waits `patience` seconds for the reply. If `longest` is more than `patience`, the
    turn may be held: if it is not decided soon, for example because the embedding model is still
    loading, the reply comes early and has `is_held`. The client then sends the message again, with
    `is_again`, and waits up to `longest` seconds for the result.
    """

    session: SessionKey
    text: str
    budget: int = 0
    """The most tokens that the turn's new tools and its texts for the model may take together; 0
    for no limit."""
    has_no_output: bool = msgspec.field(default=False, name="is_mute")
    """Whether the client discards the answer, so that its model never reads it."""
    patience: float = 0.0
    """Seconds after which the client's prompt hook stops waiting for the answer; 0 for other turns.
    """
    longest: float = 0.0
    """Seconds for which the client can wait if the turn is held; 0 if the turn may not be held."""
    is_again: bool = False
    """Whether this asks for the result of a turn that was held."""


class LeftOut(msgspec.Struct, frozen=True):
    """A tool or text that did not fit into the token budget of a turn."""

    kind: Literal["capability", "tool", "memory"]
    name: str
    tokens: int | None
    """The tokens that it would have taken; None if they were not counted."""
    reason: str


class TurnTaken(msgspec.Struct, frozen=True, tag="curator.turned"):
    """Reply to `TakeTurn` and `TakeHookTurn`: what capd did with the user's message.

    The reply also has texts that the model should read with the message.
    """

    session: SessionKey
    decision: Decision
    added: list[str]
    """Wire names of the tools that were added to the surface."""
    removed: list[str]
    ms: float
    """How long the turn took, in milliseconds."""
    problem: str = ""
    """Why the chosen capability could not be switched on."""
    suggestion: str = ""
    """Text for the model: capabilities that the user may have meant; empty if the last turn
    suggested the same ones."""
    context: str = ""
    """Text for the model, which a prompt hook passes on: what was switched on, and the names to
    call it by."""
    tools: list[str] = []
    """Wire names of single tools that fit the message and are not on the surface; `suggestion`
    names them."""
    memories: str = ""
    """Text for the model: the memories about what was switched on, each once in a conversation."""
    bootstrap: str = ""
    """Text for the model: the contents of the project's bootstrap files, given with the first
    message of a conversation (docs/memories.md)."""
    left_out: list[LeftOut] = []
    """What did not fit, if the turn had a budget."""
    budgeted: int | None = None
    """The tokens of the budget that were used; None if the turn had no budget."""
    index: str = ""
    """Text for the model: what is installed. Sent once in a conversation, to clients that ignore
    the `instructions` of an MCP server."""
    notice: str = ""
    """The line for the user when something is switched on; empty if the user wants none."""
    is_held: bool = False
    """Whether the turn is not decided yet: the client asks for it again, with `is_again`."""


class TakeHookTurn(msgspec.Struct, frozen=True, tag="curator.hook"):
    """Give a user's message to the session that the prompt hook belongs to.

    The turn may be held, as in `TakeTurn`.
    """

    text: str
    client: str
    client_session: str
    project: str
    peer_pid: int
    """The hook's process, as the kernel reports it."""
    turn: str = ""
    """The client's own id of the prompt."""
    has_no_output: bool = msgspec.field(default=False, name="is_mute")
    """Whether the client discards the answer, so that its model never reads it."""
    patience: float = 0.0
    """Seconds after which the hook stops waiting for the answer; 0 if it waits for as long as it
    takes."""
    longest: float = 0.0
    """Seconds for which the client can wait if the turn is held; 0 if the turn may not be held."""
    is_again: bool = False
    """Whether this asks for the result of a turn that was held."""


class EnableCapability(msgspec.Struct, frozen=True, tag="curator.enable"):
    """Switch a capability on in a session."""

    session: SessionKey
    name: str


class DisableCapability(msgspec.Struct, frozen=True, tag="curator.disable"):
    """Switch a capability off in a session."""

    session: SessionKey
    name: str


class SwitchCapability(msgspec.Struct, frozen=True, tag="curator.switch"):
    """Switch a capability on or off at a person's request, from which routing learns."""

    session: SessionKey
    name: str
    is_on: bool
    """Whether to switch it on; False switches it off."""


class CapabilityAnswered(msgspec.Struct, frozen=True, tag="curator.answered"):
    """Reply to a request that switches a capability on or off.

    `text` says in one sentence, for a model or a person, what was done.
    """

    session: SessionKey
    is_ok: bool
    text: str
    added: list[str] = []
    removed: list[str] = []


class CallTool(msgspec.Struct, frozen=True, tag="curator.call"):
    """Call a tool in a session for the command line. Calls of clients do not use this message."""

    session: SessionKey
    name: str
    arguments: bytes
    """A JSON object."""


class ToolCalled(msgspec.Struct, frozen=True, tag="curator.called"):
    """Reply to `CallTool`: how the call ended."""

    session: SessionKey
    outcome: CallOutcome
    result: bytes = b"{}"
    """The result as JSON, if there is one."""
    message: str = ""


class ListTools(msgspec.Struct, frozen=True, tag="curator.tools"):
    """List the tools on a session's surface."""

    session: SessionKey


class ToolsListed(msgspec.Struct, frozen=True, tag="curator.tools_listed"):
    """Reply to `ListTools`: the tools, in the order of the surface, as JSON for the client."""

    session: SessionKey
    tools: list[bytes]


class ListSessions(msgspec.Struct, frozen=True, tag="curator.sessions"):
    """List every session."""


class ActiveEntry(msgspec.Struct, frozen=True):
    """One capability or tool that is on in a session."""

    kind: str
    """`capability`, `dependencies` (a capability without servers), or `tool`."""
    id: CapabilityId
    last_used_at: float
    """Seconds since the epoch."""
    tools: list[str]


class SessionEntry(msgspec.Struct, frozen=True):
    """One session, as the status and the list of sessions show it."""

    key: SessionKey
    client: str
    pid: int
    project: str
    mode: str
    """The mode of its surface, such as `dynamic`."""
    is_connected: bool
    age: float
    """Seconds since it was opened."""
    active: list[ActiveEntry]
    cap: int
    """The most capabilities with tools that may be on at once."""
    surface: int
    """How many tools are on the surface, capd's own included."""
    available: int
    """How many tools the session may use, listed or not."""
    surface_chars: int
    """The size of the surface as JSON, in bytes."""
    client_sessions: list[str] = []
    """The client's own ids of the conversation."""
    linked_by: str = ""
    """How the last prompt hook was matched to this session."""
    compacted: int = 0
    """How many results exceeded their limit and were shortened, with a handle to read the rest."""
    characters_in: int = 0
    """Characters of the `compacted` results before they were shortened."""
    characters_out: int = 0
    """Characters of the `compacted` results after they were shortened."""
    not_kept: int = 0
    """How many results exceeded their limit and passed whole, because storing them failed."""
    tool_cap: int = 0
    """The most single tools that may be on at once."""
    mode_reason: str = ""
    """Why the surface has this mode."""
    unlisted: int = 0
    """How many active tools are not on the surface: the client calls them by name or through
    `tool_call`."""
    parent: str = ""
    """The session that started this one (a sub-agent's parent); empty if none did."""
    tokens: int | None = None
    """The tokens that its surface takes."""
    tokens_saved: int | None = None
    """Tokens saved compared with listing every tool, minus the tokens that capd added; negative if
    capd costs more."""
    tokens_state: TokensState = ""
    """Whether `tokens` is known; `not_listed` if the client has never asked for its tools."""
    memories: int = 0
    """How many memories its model has been given."""
    memories_left_out: int = 0
    """How many memories were left out, because a token budget had no room for them."""
    memory_tokens: int = 0
    memory_budget: int = 0
    calls: int = 0
    """Tool calls that succeeded."""
    client_title: str = ""
    """The client's name, to show to a person; empty if `clients.toml` has no entry for it."""
    client_line: str = ""
    """The key of the client's entry in `clients.toml`; empty if it has none."""
    index_listed: int = 0
    """How many capabilities the model was told about at the session's beginning."""
    index_left_out: int = 0
    """How many capabilities did not fit, so that the model was not told about them."""
    index_tokens: int = 0
    suggestions_left_out: int = 0
    """How many capabilities were relevant to a message, but did not fit into its turn's budget."""
    bridge: str = ""
    """The bridge that the session came over; empty for a local session."""
    far_project: str = ""
    """The project's path on the far side of the bridge."""


class HookCount(msgspec.Struct, frozen=True):
    """How many prompt hooks of one client were matched to their session, and how many were not."""

    client: str
    linked: int
    unlinked: int
    reason: Literal["", "none", "ambiguous"] = ""
    """Why the last unmatched hook could not be matched."""


class SessionsListed(msgspec.Struct, frozen=True, tag="curator.sessions_listed"):
    """Reply to `ListSessions`: all sessions, oldest first."""

    sessions: list[SessionEntry]
    hooks: list[HookCount] = []
    problem: str = ""
    """Why a restart would lose something of these sessions; empty if it would lose nothing."""


class CuratorRefused(msgspec.Struct, frozen=True, tag="curator.refused"):
    """The curator refused the request and did nothing; `message` says why."""

    code: RefusalCode
    message: str


class SessionStarted(msgspec.Struct, frozen=True, tag="session.started"):
    """Event: the daemon has begun to serve a session.

    `may_compare` is true if routing may need the embedding model for the session's messages.
    """

    session: SessionKey
    client: str
    may_compare: bool = True


class SessionEnded(msgspec.Struct, frozen=True, tag="session.ended"):
    """Event: a session has ended and released everything."""

    session: SessionKey


class SurfaceChanged(msgspec.Struct, frozen=True, tag="session.surface_changed"):
    """Event: the tools on a session's surface have changed."""

    session: SessionKey
    added: list[str]
    removed: list[str]


class CapabilityUsed(msgspec.Struct, frozen=True, tag="session.capability_used"):
    """Event: a capability was switched on in a session, or a call through it succeeded."""

    session: SessionKey
    project: str
    capability: CapabilityId


class RoutingTaught(msgspec.Struct, frozen=True, tag="session.routing_taught"):
    """Event: after a message, a user or a model did something that routing learns from.

    The record of that act is called a label.
    """

    session: SessionKey
    label: RoutingLabel


class ResultCompacted(msgspec.Struct, frozen=True, tag="session.result_compacted"):
    """Event: a result exceeded its limit and was shortened; the whole is stored for 24 hours."""

    session: SessionKey
    tool: str
    characters_in: int
    characters_out: int


class ApprovalAsked(msgspec.Struct, frozen=True, tag="session.approval_asked"):
    """Event: a call waits for a person's approval."""

    session: SessionKey
    number: int
    tool: str


class ApprovalEnded(msgspec.Struct, frozen=True, tag="session.approval_ended"):
    """Event: a call has stopped waiting for a person's approval."""

    session: SessionKey
    number: int
    tool: str
    answer: str
    """Empty if nobody answered."""


class DaemonStopping(msgspec.Struct, frozen=True, tag="daemon.stopping"):
    """Event: the daemon stops on purpose. It tells its clients, then closes the connections."""


class DrainSessions(msgspec.Struct, frozen=True, tag="curator.drain"):
    """Start no new work, let running calls finish, then have clients connect to the next daemon."""

    within: float
    """Seconds after which the calls that are still running are cut off."""
    is_for_good: bool = False
    """Whether no daemon follows: clients are told not to reconnect."""


class SessionsDrained(msgspec.Struct, frozen=True, tag="curator.drained"):
    """Reply to `DrainSessions`: every request has finished, or its connection was cut."""

    cut: int
    """How many connections were cut with requests that had not finished."""


class DescribeReach(msgspec.Struct, frozen=True, tag="curator.reach"):
    """Report what a session may use, so that another actor can act on its behalf."""

    session: SessionKey


class ReachDescribed(msgspec.Struct, frozen=True, tag="curator.reaches"):
    """Reply to `DescribeReach`: the session's policy tables, environment keys and domain.

    The domain is a kind of work, such as `devops`. The session cannot use capabilities that are
    only for other domains. An empty domain excludes none.
    """

    session: SessionKey
    rules: list[PolicyTable]
    keys: list[str]
    """Environment keys for which the session has values."""
    domain: str = ""


class SwitchRouting(msgspec.Struct, frozen=True, tag="curator.routing"):
    """Set whether the session's messages may switch capabilities on automatically."""

    session: SessionKey
    is_on: bool


class DescribeTokens(msgspec.Struct, frozen=True, tag="curator.tokens"):
    """Report what every session costs in tokens, waiting briefly for counts that are not ready."""

    within: float = 0.0
    """The longest wait, in seconds."""


class TokensDescribed(msgspec.Struct, frozen=True, tag="curator.tokens_described"):
    """Reply to `DescribeTokens`: what each session costs, the oldest session first."""

    vocabulary: str
    """The tokenizer's vocabulary, `o200k_base`."""
    sessions: list[SessionTokens]
    problem: str = ""
    """Why no tokens are counted; empty if they are."""


class DescribeMemories(msgspec.Struct, frozen=True, tag="curator.memories"):
    """Report the memories of capabilities and tools, and how often they helped."""

    project: str = ""


class MemoryEntry(msgspec.Struct, frozen=True):
    """One memory, and how often it helped."""

    memory: MemorySpec
    tokens: int
    told: int = 0
    """How often a model was given the memory."""
    refused: int = 0
    """How many calls it refused."""
    worked: int = 0
    """How often the next call of its tool or capability succeeded after a model was given the
    memory, or after the memory refused a call."""


class LessonEntry(msgspec.Struct, frozen=True):
    """A mistake that capd has learnt from failed calls, and how often."""

    server: ServerName
    tool: ToolName
    content: str
    schema: bytes
    """The mistaken arguments as a JSON Schema; empty if the mistake was a missing argument."""
    count: int
    """How often it was learnt."""


class MemoriesDescribed(msgspec.Struct, frozen=True, tag="curator.memories_described"):
    """Reply to `DescribeMemories`: every memory, and every lesson learnt from failed calls."""

    memories: list[MemoryEntry]
    lessons: list[LessonEntry] = []
    """The lessons, the most frequent first."""


class LeaveProject(msgspec.Struct, frozen=True, tag="curator.leave_project"):
    """Make every session drop the capabilities that a project's files define."""

    project: str
    """The project's path with links resolved."""


class ProjectLeft(msgspec.Struct, frozen=True, tag="curator.project_left"):
    """Reply to `LeaveProject`: no session uses a capability that the project's files define."""


class EndBridge(msgspec.Struct, frozen=True, tag="curator.end_bridge"):
    """End every session of a bridge, and delete their saved records."""

    bridge: str


class BridgeEnded(msgspec.Struct, frozen=True, tag="curator.bridge_ended"):
    """Reply to `EndBridge`: no session and no saved record of the bridge is left."""

    sessions: int
    """How many sessions were open."""


class SampleText(msgspec.Struct, frozen=True, tag="curator.sample"):
    """Ask the model of a session's client a question, if the client supports sampling."""

    session: SessionKey
    text: str
    """The question, sent as the user's message."""
    system: str
    """The system prompt."""
    max_tokens: int


class TextSampled(msgspec.Struct, frozen=True, tag="curator.sampled"):
    """Reply to `SampleText`: the answer of the client's model."""

    session: SessionKey
    text: str


class ListApprovals(msgspec.Struct, frozen=True, tag="curator.approvals"):
    """List the calls that wait for a person's approval."""


class ApprovalEntry(msgspec.Struct, frozen=True):
    """One call that waits for a person's approval."""

    number: int
    session: SessionKey
    client: str
    project: str
    server: ServerName
    tool: ToolName
    name: str
    """The tool's name, as the session's client calls it."""
    arguments: str
    """The arguments, shortened and without secrets."""
    hint: ApprovalHint
    """What the tool's server says about its effects, such as that it deletes something."""
    rule: str
    """The rule that asks for approval: a pattern of an `ask` list."""
    place: str
    """The configuration table that has the rule."""
    until: float
    """When the call is refused if nobody answers, in seconds since the epoch."""


class ApprovalsListed(msgspec.Struct, frozen=True, tag="curator.approvals_listed"):
    """Reply to `ListApprovals`: the waiting calls, oldest first, and tools approved permanently."""

    waiting: list[ApprovalEntry]
    always: list[str]
    problem: str
    """Why approvals were lost or cannot be saved; empty if neither is so."""


class AnswerApproval(msgspec.Struct, frozen=True, tag="curator.approve"):
    """Pass on a person's answer to a waiting call."""

    number: int
    answer: ApprovalAnswer


class ApprovalAnswered(msgspec.Struct, frozen=True, tag="curator.approved"):
    """Reply to `AnswerApproval`: the calls that the answer applies to.

    `session` and `always` may apply to several waiting calls.
    """

    numbers: list[int]


class ForgetApprovals(msgspec.Struct, frozen=True, tag="curator.forget_approvals"):
    """Withdraw permanent approvals: of `server:tool`, or of all tools of a server."""

    name: str


class ApprovalsForgotten(msgspec.Struct, frozen=True, tag="curator.approvals_forgotten"):
    """Reply to `ForgetApprovals`: the tools whose permanent approval was withdrawn."""

    names: list[str]


class ListProfiles(msgspec.Struct, frozen=True, tag="curator.profiles"):
    """List the profiles, and the profile of each open session."""


class ProfileEntry(msgspec.Struct, frozen=True):
    """A profile of the configuration: its conditions, and what it switches on."""

    name: str
    folders: list[str]
    remotes: list[str]
    branches: list[str]
    clients: list[str]
    capabilities: list[str]
    """The capabilities that the profile switches on."""
    secrets: str
    """The namespace of its secrets."""


class SessionProfile(msgspec.Struct, frozen=True):
    """The profile of one session, and why it has this one."""

    session: SessionKey
    profile: str
    """Empty for none."""
    why: str
    problem: str
    """Why the requested profile is not used; empty if it is."""


class ProfilesListed(msgspec.Struct, frozen=True, tag="curator.profiles_listed"):
    """Reply to `ListProfiles`: the profiles in the order in which they are tried, and sessions."""

    profiles: list[ProfileEntry]
    sessions: list[SessionProfile]


class UseProfile(msgspec.Struct, frozen=True, tag="curator.use_profile"):
    """Give a session the profile of this name; with an empty name, choose one by its conditions."""

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
"""Requests for one session. The key may be empty if exactly one session is open."""
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
