"""The frames of the public Unix socket, one JSON object a line (docs/protocol.md).

Link frames carry the member `capd` first and belong to the socket itself: hello, welcome,
environment, dispatched. Every other line is JSON-RPC 2.0: MCP on a connection of role `mcp`,
the control methods of `METHODS` on one of role `control`.
"""

from typing import Annotated, Any, Literal

import msgspec

LINK_PREFIX = b'{"capd":'
"""Every link frame starts with these bytes, so a splice can tell it without parsing."""

LINE_LIMIT_BYTES = 32 * 1024 * 1024
"""A longer line of a client's is discarded and answered with `INVALID_REQUEST`."""

DAEMON_LINE_LIMIT_BYTES = 257 * 1024 * 1024
"""No line of the daemon's is longer: a server's line of 256 MiB, and what it is wrapped in."""

HELLO_LIMIT_BYTES = 64 * 1024
"""A first line longer than this closes the connection."""


class ClientInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The program at the far end."""

    name: str
    version: str = ""
    pid: int = 0
    """The client's own process where it is not the connecting one (a shim names its parent)."""
    session: str = ""
    """The client's own id of the conversation, where it gives one to its servers and hooks."""


class Hello(msgspec.Struct, frozen=True, tag_field="capd", tag="hello", omit_defaults=True):
    """First line of every connection, from the client."""

    protocol: int
    role: Literal["mcp", "control"]
    client: ClientInfo
    cwd: str = ""
    project: str = ""
    """The project's root directory; empty means that `cwd` is the project."""
    session: str = ""
    """The session's key if the client knows one; empty asks for a new session."""
    resume: str = ""
    """The token of the last welcome: needed to take over a session that is not over."""
    parent: str = ""
    """The key of the session that this one was started by (sub-agents)."""
    inherit: bool = True
    """Whether the parent's active set is copied at this moment."""
    dispatched: bool = False
    """Whether `dispatched` frames are wanted."""
    durable: bool = False
    """Whether `durable` frames are understood."""
    profile: str = ""
    """The profile that the client's CAPD_PROFILE names; empty where it names none."""
    again: list[int | str] = []
    """Requests that an earlier daemon said are durable, and that this connection sends again."""
    credential: str = ""
    """What a bridge's own socket asks for; refused at the user's socket."""


class DaemonInfo(msgspec.Struct, frozen=True):
    """The daemon that answers."""

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
    """Whether the session was known, and its active set is back."""
    want_env: list[str] = []
    """Environment keys that definitions ask for; answer with one `env` frame."""


class Refused(msgspec.Struct, frozen=True, tag_field="capd", tag="refused"):
    """The answer to a hello that was not accepted; the daemon closes the connection."""

    code: str
    """`bad_hello`, `protocol`, `session_in_use`, `resume_refused`, `overloaded`, `stopping`,
    `started_by_capd`, or at a bridge's socket `bridge_refused`. No `Literal`: a later daemon may
    have another one, and its message says enough."""
    message: str
    protocol: int = 1


class EnvValues(msgspec.Struct, frozen=True, tag_field="capd", tag="env"):
    """The client's values for keys that the daemon asked for; keys it lacks are left out."""

    env: dict[str, str]


class Goodbye(msgspec.Struct, frozen=True, tag_field="capd", tag="goodbye"):
    """The client ends its session on purpose: what it held is released at once."""


class Dispatched(msgspec.Struct, frozen=True, tag_field="capd", tag="dispatched"):
    """The request `id` is about to be written to a server: from here on it may have run."""

    id: int | str


class WantEnv(msgspec.Struct, frozen=True, tag_field="capd", tag="want_env"):
    """A reload brought new keys; answer with one `env` frame."""

    keys: list[str]


class Closing(msgspec.Struct, frozen=True, tag_field="capd", tag="closing"):
    """The daemon closes this connection; `reconnect` says whether another one will be there."""

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
"""No byte reached a server: safe to repeat."""
OUTCOME_UNKNOWN = 4002
"""The server may have run it: check before repeating."""
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
    """A request, or a notification where `id` is missing, as much as the daemon reads of it."""

    method: str = ""
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw = msgspec.field(default_factory=_empty_object)


class RpcResponse(msgspec.Struct, frozen=True, omit_defaults=False):
    """A response line."""

    jsonrpc: Literal["2.0"]
    id: int | str | None
    result: Any = msgspec.UNSET
    error: RpcError | msgspec.UnsetType = msgspec.UNSET


class TurnParams(msgspec.Struct, frozen=True):
    """Params of `turn` (control) and `capd/turn` (on an `mcp` connection, without session)."""

    text: str
    """The user's own words."""
    session: str = ""
    """The key of a session; empty for the only one there is."""
    budget: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 0
    """Tokens that what is switched on and told may take together; 0 where nobody counts."""
    mute: bool = False
    """Whether what is answered reaches no model; what it says is then told another time."""
    patience: float = 0.0
    """Seconds after which nobody hears the answer, where a client hands over a prompt."""
    longest: float = 0.0
    """Seconds for which the client could wait, if it has to; 0 where that is `patience`. A turn
    that waits for the model is answered with `held`, and the client asks for it again."""
    again: bool = False
    """Whether this asks for a turn that was `held`."""


class HookParams(msgspec.Struct, frozen=True):
    """Params of `hook`: a user's message, from a process that does not know its session."""

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
    """Whether the client shows its model nothing of what is answered."""
    patience: float = 0.0
    """Seconds after which nobody hears the answer; 0 where it is waited for."""
    longest: float = 0.0
    """Seconds for which the client lets its hook wait, if it has to; 0 where that is `patience`. A
    turn that waits for the model is answered with `held`, and the hook asks for it again."""
    again: bool = False
    """Whether this asks for a turn that was `held`."""


class SessionParams(msgspec.Struct, frozen=True):
    """Params of a method that reads one session."""

    session: str = ""
    """The key of a session; empty for the only one there is."""


class CapabilityParams(msgspec.Struct, frozen=True):
    """Params of `enable` and `disable`."""

    name: str
    """`name`, or `tap/name`."""
    session: str = ""
    """The key of a session; empty for the only one there is."""


class CallParams(msgspec.Struct, frozen=True):
    """Params of `call`."""

    name: str
    """The tool, as the session's client calls it."""
    arguments: msgspec.Raw = msgspec.field(default_factory=_empty_object)
    """An object, as the tool's input schema has it."""
    session: str = ""
    """The key of a session; empty for the only one there is."""


class DiscoverParams(msgspec.Struct, frozen=True):
    """Params of `discover`."""

    intent: str
    """What somebody wants to do, in their words."""
    limit: int = 5
    """How many capabilities at most, the best first."""


class IndexParams(msgspec.Struct, frozen=True):
    """Params of `index`: servers are started with the values of `session`, where it is given."""

    session: str = ""
    """The key of a session whose client's values servers are started with; empty for the only one
    there is, or none."""
    project: str = ""
    """The absolute path of a project whose own servers are asked as well."""
    asks_servers: bool = True
    """Whether servers are asked for their tools, or what is known of them will do."""


class ProposeParams(msgspec.Struct, frozen=True):
    """Params of `index_propose`: the model of `session` is asked for better words."""

    session: str = ""
    """The key of a session; empty for the only one there is."""


class NewWords(msgspec.Struct, frozen=True):
    """Other words for one capability; what is empty stays."""

    name: str
    """`tap/name`."""
    verb: str = ""
    """What one does with it: one word."""
    do: str = ""
    """What it does."""
    use_when: list[str] = []
    """When it is wanted, each in a few words."""


class AcceptParams(msgspec.Struct, frozen=True):
    """Params of `index_accept`: words that a person has seen and wants."""

    words: list[NewWords]
    """As `index_propose` answered them, those that are wanted."""


class SearchParams(msgspec.Struct, frozen=True):
    """Params of `search`: as `session` would find it, where it is given."""

    query: str
    """What a tool should do; or `select:` and names, with commas between them."""
    limit: int = 5
    """How many tools at most, the best first."""
    session: str = ""
    """The key of a session, which may use what is found; empty for no session."""


class EventParams(msgspec.Struct, frozen=True):
    """Params of `events`: topics by prefix, all where empty."""

    topics: list[str] = []
    """Beginnings of topics, such as `server.`; none for every event."""


LoginWay = Literal["browser", "device"]
Account = Annotated[str, msgspec.Meta(pattern="^([A-Za-z][A-Za-z0-9_]*)?$", max_length=64)]
"""As the namespace of a profile's secrets."""


class LoginParams(msgspec.Struct, frozen=True):
    """Params of `login`: a server that is reached by URL."""

    name: str
    """The server, as a definition calls it."""
    account: Account = ""
    """Which of several logins at the server; empty for the usual one."""
    way: LoginWay = "browser"
    """`browser`: by a page that leads back to this machine. `device`: with a code, by a page that
    any device can open."""


class LoginPasteParams(msgspec.Struct, frozen=True):
    """Params of `login_paste`."""

    ticket: int
    """What `login` answered."""
    address: Annotated[str, msgspec.Meta(max_length=16384)]
    """The address that the browser was sent to at the end of the login."""


class LogoutParams(msgspec.Struct, frozen=True):
    """Params of `logout`: as of `login`."""

    name: str
    """The server, as a definition calls it."""
    account: Account = ""
    """Which of several logins at the server; empty for the usual one."""


class LoginWaitParams(msgspec.Struct, frozen=True):
    """Params of `login_wait`."""

    ticket: int
    """What `login` answered."""


class ConfigParams(msgspec.Struct, frozen=True):
    """Params of `config`: with a project, its own file counts as well."""

    project: str = ""
    """The absolute path of a project whose `.capd.toml` counts; empty for none."""


class TrustParams(msgspec.Struct, frozen=True):
    """Params of `trust` and `trust_revoke`: a project by its absolute path."""

    project: str
    """Its absolute path; links in it are followed."""


class GrantParams(msgspec.Struct, frozen=True):
    """Params of `trust_grant`: the digests that a person has seen and agreed to."""

    project: str
    """Its absolute path; links in it are followed."""
    digests: list[str]
    """Of the servers that are agreed to, as `trust` answered them."""


class WhyParams(msgspec.Struct, frozen=True):
    """Params of `why`: of one session, or of all."""

    session: str = ""
    """The key of a session; empty for all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    """How many decisions at most, the newest first."""


class RoutingParams(msgspec.Struct, frozen=True):
    """Params of `routing`: whether a session's messages switch capabilities on by themselves."""

    enabled: bool
    """Whether they do, whatever is configured."""
    session: str = ""
    """The key of a session; empty for the only one there is."""


class DefinitionsParams(msgspec.Struct, frozen=True):
    """Params of `definitions`."""

    server: str = ""
    """A server's name; empty for all."""
    differences: bool = False
    """Whether each change comes with what it changed, line by line."""
    flags: bool = False
    """Whether what a person should look at in definitions is named."""


class TrustDefinitionsParams(msgspec.Struct, frozen=True):
    """Params of `trust_definitions`: a person's word on what they have seen."""

    identity: str
    """The server's, as `definitions` answered it."""
    digests: dict[str, str]
    """Of each tool the one that was shown."""
    accept: bool
    """Whether what was shown is trusted from here on; else it is withheld."""


class StopParams(msgspec.Struct, frozen=True):
    """Params of `stop`."""

    for_good: bool = False
    """Nobody starts it again by themselves: open clients are told not to."""


class MemoriesParams(msgspec.Struct, frozen=True):
    """Params of `memories`: a project's own count as well, as far as they are trusted."""

    project: str = ""
    """The absolute path of a folder whose own memories count as well."""


class MemoryParams(msgspec.Struct, frozen=True):
    """Params of `memory_read` and `memory_forget`: one of the user's own, by name."""

    name: str
    """The name of its file, without the ending."""


class MemoryAddParams(msgspec.Struct, frozen=True):
    """Params of `memory_add`: the keys of its file."""

    kind: str
    """`declarative`, `procedural`, `corrective` or `episodic`; another one is refused in the words
    of the file's own check."""
    content: str
    """What the model is told."""
    name: str = ""
    """Made from its content where it is empty."""
    capability: str = ""
    """The capability that it belongs to, by name; empty for that of its tool."""
    tool: str = ""
    """The tool that it belongs to; empty for a whole capability."""
    patterns: dict[str, str] = {}
    """Globs of arguments that are the mistake, by name."""
    schema: Any = None
    """The same as a JSON Schema."""
    refuses: bool = False
    """Whether a call that repeats the mistake is refused with the content."""
    confidence: float = 1.0
    """How sure it is, from 0 to 1."""
    priority: float = 1.0
    """How much it counts beside others."""
    learned_from: str = ""
    """Where it comes from, in words."""


class MemoryWriteParams(msgspec.Struct, frozen=True):
    """Params of `memory_write`: the whole text of a memory's file, as somebody edited it."""

    name: str
    """The name of its file, without the ending."""
    text: str
    """All of it."""


class MemoryAcceptParams(msgspec.Struct, frozen=True):
    """Params of `memory_accept`: a suggestion by its content, which a person has seen."""

    content: str
    """That of the suggestion, word for word."""
    name: str = ""
    """Made from its content where it is empty."""
    refuses: bool = False
    """Whether a call that repeats the mistake is refused with the content."""


class LearningParams(msgspec.Struct, frozen=True):
    """Params of `learning`."""

    project: str = ""
    """The folder of a project, whose part is told as well."""


class ForgetLearningParams(msgspec.Struct, frozen=True):
    """Params of `learning_forget`: all of it, unless one of them says less."""

    name: str = ""
    """Of this capability alone, as `name` or `tap/name`."""
    last: bool = False
    """The last thing alone that was learnt, of whatever capability."""


class ApproveParams(msgspec.Struct, frozen=True):
    """Params of `approve`: a person's answer about a call that waits for one."""

    number: int
    """The number of the call, as `approvals` answered it."""
    answer: Literal["once", "session", "always", "refuse"]
    """For how long the tool is approved, or that the call is refused."""


class UseProfileParams(msgspec.Struct, frozen=True):
    """Params of `profile_use`: the profile of one session, whatever its conditions say."""

    name: str = ""
    """The profile; empty to have it chosen by its conditions again."""
    session: str = ""
    """The key of a session; empty for the only one there is."""


class ToolParams(msgspec.Struct, frozen=True):
    """Params of `tool`: how a tool is shown, and how its server lists it."""

    name: str
    """The tool, as clients call it or as `server:tool`."""


class ForgetApprovalsParams(msgspec.Struct, frozen=True):
    """Params of `approvals_forget`: ask again about what was approved for always."""

    name: str
    """A tool as `server:tool`, or a server for all of its tools."""


class BridgeOpenParams(msgspec.Struct, frozen=True):
    """Params of `bridge_open`: a bridge that lives as long as the connection that asks."""

    name: str
    """The bridge's table in the configuration: `[bridges.NAME]`."""
    kind: Literal["ssh", "container", "socket"] = "socket"
    """How the far side reaches its socket."""
    target: str = ""
    """The host or the container, as its user calls it."""


class BridgeParams(msgspec.Struct, frozen=True):
    """Params of `bridge_revoke`."""

    name: str
    """The bridge."""


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
