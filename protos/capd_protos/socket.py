"""The frames of the public Unix socket, one JSON object a line (docs/protocol.md).

Link frames carry the member `capd` first and belong to the socket itself: `hello`, `welcome`,
`refused`, `env`, `want_env`, `dispatched`, `durable`, `goodbye`, `closing`. Every other line is
JSON-RPC 2.0: MCP on a connection of role `mcp`, the control methods of `METHODS` on one of role
`control`. A request is durable if the next daemon can continue it after this one has ended.
"""

from typing import Annotated, Any, Literal

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An integer that the messages between actors can hold. JSON allows larger ones."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
"""A number that capd has assigned to something, counting up."""

LINK_PREFIX = b'{"capd":'
"""The first bytes of every link frame, so that a program that only passes lines on can recognise a
link frame without parsing lines."""

RESULT_SCHEMA = 1
"""The member `schema` of every result of a control method."""

LINE_LIMIT_BYTES = 32 * 1024 * 1024
"""A longer line from a client is discarded and answered with `INVALID_REQUEST`."""

DAEMON_LINE_LIMIT_BYTES = 257 * 1024 * 1024
"""No line from the daemon is longer. The limit has room for a server's line of 256 MiB and for what
capd adds around that line."""

HELLO_LIMIT_BYTES = 64 * 1024
"""A first line longer than this closes the connection."""


class ClientInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The program that the connection belongs to."""

    name: str
    version: str = ""
    pid: Int64 = 0
    """The client's process id, if it is not the connecting process (a shim names its parent)."""
    session: str = ""
    """The client's own id of the conversation, if it passes one to its servers and hooks."""


class Hello(msgspec.Struct, frozen=True, tag_field="capd", tag="hello", omit_defaults=True):
    """The first line of every connection: what the client says about itself and its session."""

    protocol: int
    role: Literal["mcp", "control", "runner"]
    """`runner` is accepted only at the socket of a bridge: capd uses the connection to start a
    server on the far side, and then for the messages of that server."""
    client: ClientInfo
    cwd: str = ""
    project: str = ""
    """The project's root directory; empty means that `cwd` is the project."""
    session: str = ""
    """The session's key, if the client knows one; empty asks for a new session."""
    resume: str = ""
    """The token from the last welcome, required to take over a session that has not ended."""
    parent: str = ""
    """The key of the session that started this one (for sub-agents)."""
    inherit: bool = True
    """Whether to copy the parent's active set, the capabilities and tools that are on in it at this
    moment."""
    dispatched: bool = False
    """Whether to send `dispatched` frames."""
    durable: bool = False
    """Whether the client understands `durable` frames."""
    profile: str = ""
    """The profile that the client's CAPD_PROFILE names; empty if it names none."""
    again: list[Int64 | str | float] = []
    """Ids of requests that an earlier daemon called durable and that this connection repeats."""
    credential: str = ""
    """The credential for a bridge's socket. The user's own socket refuses a hello with one."""


class DaemonInfo(msgspec.Struct, frozen=True):
    """The daemon that answers a hello: its process and its version."""

    version: str
    pid: int


class Welcome(msgspec.Struct, frozen=True, tag_field="capd", tag="welcome"):
    """The answer to a hello that was accepted."""

    protocol: int
    daemon: DaemonInfo
    session: str = ""
    """The session's key; empty for role `control`."""
    resume: str = ""
    """Token for the next hello of this session; a secret, never logged."""
    resumed: bool = False
    """Whether the session existed already, and its active set was restored."""
    want_env: list[str] = []
    """Environment keys that server definitions need; answer with one `env` frame."""


class Refused(msgspec.Struct, frozen=True, tag_field="capd", tag="refused"):
    """The answer to a hello that was not accepted; the daemon closes the connection."""

    code: str
    """`bad_hello`, `protocol`, `session_in_use`, `resume_refused`, `overloaded`, `stopping`,
    `started_by_capd`, or at a bridge's socket `bridge_refused`. No `Literal`: a later daemon may
    have another one, and its message says enough."""
    message: str
    protocol: int = 1


class EnvValues(msgspec.Struct, frozen=True, tag_field="capd", tag="env"):
    """The client's values for the keys that the daemon asked for.

    Keys without a value are left out.
    """

    env: dict[str, str]


class Goodbye(msgspec.Struct, frozen=True, tag_field="capd", tag="goodbye"):
    """The client ends its session on purpose: its servers are released at once."""


class Dispatched(msgspec.Struct, frozen=True, tag_field="capd", tag="dispatched"):
    """The request `id` is about to be written to a server. From now on it may have run."""

    id: int | str | float


class WantEnv(msgspec.Struct, frozen=True, tag_field="capd", tag="want_env"):
    """A reload needs more environment keys; answer with one `env` frame."""

    keys: list[str]


class Closing(msgspec.Struct, frozen=True, tag_field="capd", tag="closing"):
    """The daemon closes this connection; `reconnect` says whether another daemon will follow."""

    reason: str
    reconnect: bool = True


FromClient = Hello | EnvValues | Goodbye
FromDaemon = Welcome | Refused | Dispatched | WantEnv | Closing

# JSON-RPC error codes. capd's own lie outside -32768..-32000, so that they can never be
# taken for a server's (docs/design/outcomes.md).
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_SENT = 4001
"""No byte of the request reached a server: it is safe to repeat."""
OUTCOME_UNKNOWN = 4002
"""A server may have run the request: check its effects before you repeat it."""
REFUSED = 4003
"""Denied by policy, limits or state; the text has the reason."""
NOT_FOUND = 4004
"""No such session, capability or tool; the text has near names."""
UNAVAILABLE = 4005
"""A part of the daemon does not answer; later it may."""


def _empty_object() -> msgspec.Raw:
    return msgspec.Raw(b"{}")


class RpcError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error member of a JSON-RPC response."""

    code: int
    message: str
    data: Any = None


class RpcRequest(msgspec.Struct, frozen=True):
    """A request, or a notification if `id` is missing: the members that the daemon reads."""

    method: str = ""
    id: int | str | float | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw = msgspec.field(default_factory=_empty_object)


class RpcResponse(msgspec.Struct, frozen=True, omit_defaults=False):
    """A JSON-RPC response line."""

    jsonrpc: Literal["2.0"]
    id: int | str | float | None
    result: Any = msgspec.UNSET
    error: RpcError | msgspec.UnsetType = msgspec.UNSET


class TurnParams(msgspec.Struct, frozen=True):
    """Params of `turn`: give a user's message to a session, and return what capd did with it.

    The method `capd/turn` of an `mcp` connection has `text` alone.
    """

    text: str
    """The user's own words."""
    session: str = ""
    """The key of a session; may be empty if exactly one is open."""
    budget: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    """The most tokens that the turn's new tools and its texts may take together; 0 for no limit."""
    mute: bool = False
    """Whether the model will not read the answer. The texts for it are then given at a later
    turn."""
    patience: float = 0.0
    """Seconds after which nobody reads the answer any longer, if a client's hook sent the prompt;
    otherwise 0."""
    longest: float = 0.0
    """The most seconds for which the client can wait; 0 if that is no more than `patience`. If it
    is more, a turn that is not decided soon, for example because the embedding model is still
    loading, is answered with `held`, and the client asks for it again."""
    again: bool = False
    """Whether this asks for a turn that was `held`."""


class HookParams(msgspec.Struct, frozen=True):
    """Params of `hook`: give a user's message to its session, which the sender does not know."""

    text: str
    """The user's own words."""
    client: str = ""
    """What the client calls itself, as `capd sessions` shows it."""
    client_session: str = ""
    """The client's own id of the conversation."""
    project: str = ""
    """The absolute path of the folder that the client works in."""
    turn: str = ""
    """The client's own id of the prompt: two hooks of one prompt count once."""
    mute: bool = False
    """Whether the client does not pass the answer to its model."""
    patience: float = 0.0
    """Seconds after which nobody reads the answer any longer; 0 if the hook waits for it."""
    longest: float = 0.0
    """The most seconds for which the client lets its hook wait; 0 if that is no more than
    `patience`. If it is more, a turn that is not decided soon, for example because the embedding
    model is still loading, is answered with `held`, and the hook asks again."""
    again: bool = False
    """Whether this asks for a turn that was `held`."""


class SessionParams(msgspec.Struct, frozen=True):
    """Params of `tools`: list the tools that a session's client is shown."""

    session: str = ""
    """The key of a session; may be empty if exactly one is open."""


class CapabilityParams(msgspec.Struct, frozen=True):
    """Params of `enable` and `disable`: switch a capability of a session on or off."""

    name: str
    """The capability, as `name` or `tap/name`."""
    session: str = ""
    """The key of a session; may be empty if exactly one is open."""


class CallParams(msgspec.Struct, frozen=True):
    """Params of `call`: call a tool in a session."""

    name: str
    """The tool's name, as the session's client calls it."""
    arguments: msgspec.Raw = msgspec.field(default_factory=_empty_object)
    """An object that fits the tool's input schema."""
    session: str = ""
    """The key of a session; may be empty if exactly one is open."""


class DiscoverParams(msgspec.Struct, frozen=True):
    """Params of `discover`: rank capabilities for a task, and switch none on."""

    intent: str
    """The task that a capability is wanted for, in a user's or model's words."""
    limit: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 5
    """The most capabilities to return."""


class IndexParams(msgspec.Struct, frozen=True):
    """Params of `index`: ask each server once for its tools, and write capability-index.yaml."""

    session: str = ""
    """The key of a session: servers are started with the environment values that its client sent.
    If empty, the only open session is used, or none if there is not exactly one."""
    project: str = ""
    """The absolute path of a project whose own servers are asked as well."""
    asks_servers: bool = True
    """Whether to ask servers for their tools; otherwise saved lists are used."""


class ProposeParams(msgspec.Struct, frozen=True):
    """Params of `index_propose`: let the model of a session's client propose new index entries."""

    session: str = ""
    """The key of a session; may be empty if exactly one is open."""


class NewWords(msgspec.Struct, frozen=True):
    """The new wording of one capability. An empty field keeps the old wording."""

    name: str
    """`tap/name`."""
    verb: str = ""
    """One verb for what the capability does."""
    do: str = ""
    """A sentence on what the capability does."""
    use_when: list[str] = []
    """Situations that call for it, each in a few words."""


class AcceptParams(msgspec.Struct, frozen=True):
    """Params of `index_accept`: write the accepted wordings into capability-index.yaml."""

    words: list[NewWords]
    """Those entries of the answer to `index_propose` that the person accepted."""


class SearchParams(msgspec.Struct, frozen=True):
    """Params of `search`: find capabilities, skills and tools that fit a text."""

    query: str
    """What a tool should do; or `select:` and names separated by commas."""
    limit: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 5
    """The most results to return."""
    session: str = ""
    """The key of a session: only tools that it may use are returned. Empty for no session."""


class EventParams(msgspec.Struct, frozen=True):
    """Params of `events`: subscribe this connection to events."""

    topics: list[str] = []
    """Prefixes of topics, such as `server.`; none for every event."""


LoginWay = Literal["browser", "device"]
Account = Annotated[str, msgspec.Meta(pattern="^([A-Za-z][A-Za-z0-9_]*)?$", max_length=64)]
"""The name of one of several logins at a server, of the same form as a namespace of secrets."""


class LoginParams(msgspec.Struct, frozen=True):
    """Params of `login`: begin a login at a server that is reached by URL."""

    name: str
    """The server, as a definition calls it."""
    account: Account = ""
    """Which of several logins at the server; empty for the usual one."""
    way: LoginWay = "browser"
    """`browser`: in a browser on this machine. `device`: with a code, in a browser on any device.
    """


class LoginPasteParams(msgspec.Struct, frozen=True):
    """Params of `login_paste`: pass on the address that a login has led the browser to."""

    ticket: Count
    """The ticket that `login` returned."""
    address: Annotated[str, msgspec.Meta(max_length=16384)]
    """The address that the browser was sent to at the end of the login."""


class LogoutParams(msgspec.Struct, frozen=True):
    """Params of `logout`: delete the login at a server that is reached by URL."""

    name: str
    """The server, as a definition calls it."""
    account: Account = ""
    """Which of several logins at the server; empty for the usual one."""


class LoginWaitParams(msgspec.Struct, frozen=True):
    """Params of `login_wait`: wait until a login has succeeded or failed."""

    ticket: Count
    """The ticket that `login` returned."""


class ConfigParams(msgspec.Struct, frozen=True):
    """Params of `config`: return the settings in force."""

    project: str = ""
    """The absolute path of a project whose `.capd.toml` counts; empty for none."""


class TrustParams(msgspec.Struct, frozen=True):
    """Params of `trust` and `trust_revoke`: `trust` returns what a project's files would start.

    `trust_revoke` withdraws all trust in the project.
    """

    project: str
    """The project's absolute path; links are followed."""


class GrantParams(msgspec.Struct, frozen=True):
    """Params of `trust_grant`: trust the servers that a person has seen and agreed to."""

    project: str
    """The project's absolute path; links are followed."""
    digests: list[str]
    """The digests of the servers to trust, as `trust` returned them."""


class WhyParams(msgspec.Struct, frozen=True):
    """Params of `why`: return the newest routing decisions, activations and scripts."""

    session: str = ""
    """The key of a session; empty for all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """The most decisions to return, and the most scripts; the newest come first."""


class RoutingParams(msgspec.Struct, frozen=True):
    """Params of `routing`: set whether a session's messages may switch capabilities on."""

    enabled: bool
    """Whether the session's messages may do so; overrides the configuration."""
    session: str = ""
    """The key of a session; may be empty if exactly one is open."""


class DefinitionsParams(msgspec.Struct, frozen=True):
    """Params of `definitions`: return how tool definitions differ from the trusted ones."""

    server: str = ""
    """A server's name; empty for all."""
    differences: bool = False
    """Whether to include the changed lines of each change."""
    flags: bool = False
    """Whether to include parts of definitions that a person should look at."""


class TrustDefinitionsParams(msgspec.Struct, frozen=True):
    """Params of `trust_definitions`: record what a person decided on definitions that they saw."""

    identity: str
    """The server's identity, as `definitions` returned it."""
    digests: dict[str, str]
    """The digest that was shown, for each tool."""
    accept: bool
    """Whether the definitions are trusted; otherwise they are withheld."""


class StopParams(msgspec.Struct, frozen=True):
    """Params of `stop`: stop the daemon."""

    for_good: bool = False
    """Whether the daemon stays stopped: open clients are told not to start it again."""


class MemoriesParams(msgspec.Struct, frozen=True):
    """Params of `memories`: list the memories of capabilities and tools."""

    project: str = ""
    """The absolute path of a project whose own memories are included if they are trusted."""


class MemoryParams(msgspec.Struct, frozen=True):
    """Params of two methods: `memory_read` returns one of the user's own memories.

    `memory_forget` removes it.
    """

    name: str
    """The name of its file, without the ending."""


class MemoryAddParams(msgspec.Struct, frozen=True):
    """Params of `memory_add`: save a new memory of the user's own."""

    kind: str
    """`declarative`, `procedural`, `corrective` or `episodic`; any other kind is refused."""
    content: str
    """The text that the model reads."""
    name: str = ""
    """The name of its file; if empty, one is made from the content."""
    capability: str = ""
    """The capability that it belongs to, by name; if empty, that of its tool."""
    tool: str = ""
    """The tool that it belongs to; empty for a whole capability."""
    patterns: dict[str, str] = {}
    """Globs that match the mistaken arguments, by the arguments' names."""
    schema: Any = None
    """A JSON Schema that the mistaken arguments match; ignored if there are `patterns`."""
    refuses: bool = False
    """Whether to refuse a call that repeats the mistake, with the content as the reason."""
    confidence: float = 1.0
    """How certain the memory is, from 0 to 1."""
    priority: float = 1.0
    """Memories with a higher priority are given first."""
    learned_from: str = ""
    """Where the knowledge comes from, in words."""


class MemoryWriteParams(msgspec.Struct, frozen=True):
    """Params of `memory_write`: replace the text of a memory's file by an edited one."""

    name: str
    """The name of its file, without the ending."""
    text: str
    """The whole text."""


class MemoryAcceptParams(msgspec.Struct, frozen=True):
    """Params of `memory_accept`: save a suggested memory that a person has seen."""

    content: str
    """The content of the suggestion, word for word."""
    name: str = ""
    """The name of its file; if empty, one is made from the content."""
    refuses: bool = False
    """Whether to refuse a call that repeats the mistake, with the content as the reason."""


class LearningParams(msgspec.Struct, frozen=True):
    """Params of `learning`: return what routing has learnt from use."""

    project: str = ""
    """The folder of a project; what was learnt in this project alone is included."""


class ForgetLearningParams(msgspec.Struct, frozen=True):
    """Params of `learning_forget`: forget what routing has learnt from use.

    Without `name` and `last`, everything is forgotten.
    """

    name: str = ""
    """Forget only what was learnt about this capability: `name` or `tap/name`."""
    last: bool = False
    """Forget only what was learnt last, of whichever capability."""


class ApproveParams(msgspec.Struct, frozen=True):
    """Params of `approve`: answer a call that waits for a person's approval."""

    number: Count
    """The number of the call, as `approvals` returned it."""
    answer: Literal["once", "session", "always", "refuse"]
    """How long the approval of the tool lasts; `refuse` refuses the call."""


class UseProfileParams(msgspec.Struct, frozen=True):
    """Params of `profile_use`: give one session a profile, ignoring the profiles' conditions."""

    name: str = ""
    """The profile; empty to have one chosen by the profiles' conditions again."""
    session: str = ""
    """The key of a session; may be empty if exactly one is open."""


class ToolParams(msgspec.Struct, frozen=True):
    """Params of `tool`: return how a tool is shown, and how its server lists it."""

    name: str
    """The tool, as clients call it or as `server:tool`."""


class ForgetApprovalsParams(msgspec.Struct, frozen=True):
    """Params of `approvals_forget`: withdraw permanent approvals."""

    name: str
    """A tool as `server:tool`, or a server for all of its tools."""


class BridgeOpenParams(msgspec.Struct, frozen=True):
    """Params of `bridge_open`: open a bridge, which lasts as long as this connection."""

    name: str
    """The bridge's table in the configuration: `[bridges.NAME]`."""
    kind: Literal["ssh", "container", "socket"] = "socket"
    """How the far side reaches the bridge's socket."""
    target: str = ""
    """The host or the container, as its user calls it."""


class BridgeParams(msgspec.Struct, frozen=True):
    """Params of `bridge_revoke`: end a bridge, and every session that came over it."""

    name: str
    """The bridge's name."""


class NoParams(msgspec.Struct, frozen=True):
    """Params of a method that takes none."""


METHODS: dict[str, type[msgspec.Struct]] = {
    "status": NoParams,
    "caps": NoParams,
    "servers": NoParams,
    "sessions": NoParams,
    "tools": SessionParams,
    "discover": DiscoverParams,
    "index": IndexParams,
    "index_propose": ProposeParams,
    "index_accept": AcceptParams,
    "search": SearchParams,
    "enable": CapabilityParams,
    "disable": CapabilityParams,
    "routing": RoutingParams,
    "turn": TurnParams,
    "hook": HookParams,
    "call": CallParams,
    "events": EventParams,
    "login": LoginParams,
    "login_paste": LoginPasteParams,
    "login_wait": LoginWaitParams,
    "logout": LogoutParams,
    "reload": NoParams,
    "secrets": NoParams,
    "why": WhyParams,
    "metrics": NoParams,
    "stop": StopParams,
    "tokens": NoParams,
    "config": ConfigParams,
    "trust": TrustParams,
    "trust_list": NoParams,
    "trust_grant": GrantParams,
    "trust_revoke": TrustParams,
    "definitions": DefinitionsParams,
    "trust_definitions": TrustDefinitionsParams,
    "memories": MemoriesParams,
    "memory_add": MemoryAddParams,
    "memory_read": MemoryParams,
    "memory_write": MemoryWriteParams,
    "memory_forget": MemoryParams,
    "memory_suggest": NoParams,
    "memory_accept": MemoryAcceptParams,
    "approvals": NoParams,
    "approve": ApproveParams,
    "approvals_forget": ForgetApprovalsParams,
    "profiles": NoParams,
    "profile_use": UseProfileParams,
    "bridges": NoParams,
    "bridge_open": BridgeOpenParams,
    "bridge_revoke": BridgeParams,
    "learning": LearningParams,
    "learning_forget": ForgetLearningParams,
    "tool": ToolParams,
    "tool_edits": NoParams,
}
"""The control methods and their params."""
