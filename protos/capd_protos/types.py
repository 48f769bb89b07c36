"""Ids and values that several messages and rules use.

A tap is a folder of capabilities and skills. An overlay is a folder with changes to what a tap
defines. An edit, in an overlay or a tap, changes how clients see a tool (docs/tools.md).
"""

from typing import Literal, NewType

import msgspec

ActorName = NewType("ActorName", str)
"""The name of an actor of the daemon, such as `registry` or `curator`."""

Address = NewType("Address", str)
"""A ZeroMQ endpoint within the daemon, `inproc://...`."""

MessageId = NewType("MessageId", int)
"""A request's number, unique among the requests of one sender."""

SessionKey = NewType("SessionKey", str)
"""Identifies one client conversation, the session: 1 to 128 characters of A-Z a-z 0-9 . _ : -."""

TapName = NewType("TapName", str)
CapabilityName = NewType("CapabilityName", str)
ServerName = NewType("ServerName", str)
ToolName = NewType("ToolName", str)
"""A tool's name as its server gives it."""

WireName = NewType("WireName", str)
"""A tool's name as clients see it, usually `<server>__<tool>`: at most 64 characters."""

ServerIdentity = NewType("ServerIdentity", str)
"""Hash of everything in a server's definition that changes its behaviour (docs/design/catalog.md).
"""

InstanceId = NewType("InstanceId", str)
"""Identifies one running connection to a server: a process, or an HTTP connection."""

FailedOutcome = Literal["not_sent", "outcome_unknown", "refused"]
"""How a call ends if its server gave no result (docs/design/outcomes.md)."""
Scope = Literal["shared", "project", "session"]
SandboxLevel = Literal["off", "guard", "strict"]
"""The levels of a server's sandbox, the weakest first (docs/sandbox.md)."""
ContainerMount = Literal["none", "read", "write"]
Where = Literal["host", "project"]
"""Where a server runs for a session over a bridge: on this machine, or where the project is."""
Severity = Literal["error", "warning"]
MemoryKind = Literal["corrective", "procedural", "declarative", "episodic"]
DecisionOutcome = Literal["activate", "suggest", "abstain"]
DecisionReason = Literal[
    "",
    "disabled",
    "system_content",
    "too_short",
    "model_not_ready",
    "no_candidates",
    "below_threshold",
    "below_margin",
    # Several similar capabilities (siblings) may be meant, and nothing says which one.
    "near_tie",
    "already_active",
    # Only with the outcome `activate`: the message is a trigger, word for word.
    "whole_trigger",
    # The winner cannot be switched on here.
    "missing_secrets",
    "missing_program",
    "domain",
    # Routing would activate it, but the user's limits on this capability forbid that.
    "set_by_user",
    # Only for a turn with a budget: the capability did not fit as a whole. With the outcome
    # `activate`, some of its tools fitted.
    "over_budget",
    # Only for a client's hook: another hook has sent the same prompt, or the hook had to be
    # answered before the turn was decided.
    "repeated",
    "unfinished",
]
UnusableReason = Literal["missing_secrets", "missing_program", "domain"]


class CapabilityId(msgspec.Struct, frozen=True, order=True):
    """A capability's identity everywhere: the tap that holds it, and its name there."""

    tap: TapName
    name: CapabilityName

    def __str__(self) -> str:
        """Return `tap/name`, the form of a name that says which tap is meant."""
        return f"{self.tap}/{self.name}"


class ClientFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client says about itself, in its handshake or with a request."""

    version: str = ""
    """The MCP version that the client uses; empty until it is known."""
    info: bytes = b'{"name":"capd","version":"0"}'
    """Its name and version, as it wrote them in JSON."""
    capabilities: bytes = b"{}"
    """Its capabilities, as it wrote them in JSON."""


class OAuthClient(msgspec.Struct, frozen=True, omit_defaults=True):
    """The client id that an authorization server has registered for capd."""

    id: str
    secret: str = ""
    """A placeholder for the secret, as in a header; empty if the client has none."""
    redirect_port: int = 0
    """The registered port of the redirect address; 0 for any."""


class ArgumentEdit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an edit changes one argument of a tool."""

    argument: str
    """The argument's name in the server's definition."""
    name: str = ""
    """The name that clients use; empty to keep it."""
    description: str = ""
    is_hidden: bool = False
    """Whether clients neither see the argument nor can set it."""
    preset: bytes = b""
    """A JSON value that is always sent to the server, which also hides the argument; empty for
    none."""


class ToolEdit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an edit changes one tool; an empty field keeps the server's own value."""

    server: ServerName
    tool: ToolName
    name: str = ""
    """The name that replaces `tool`."""
    title: str = ""
    description: str = ""
    is_disabled: bool = False
    arguments: tuple[ArgumentEdit, ...] = ()
    file: str = ""
    """The file that contains the edit."""


class ContainerSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The container of a server: its image, its limits, and what it may use of this machine."""

    image: str
    """The image with its exact digest: `NAME@sha256:HEX`, or `sha256:HEX` for a local image."""
    has_network: bool = False
    mount: ContainerMount = "read"
    """How the project's folder is mounted, at the same path as on this machine."""
    memory_mib: int = 1024
    cpus: float = 2.0
    """How many processors it may keep busy."""


class ServerSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server as its tap defines it, with unfilled placeholders: no message carries a secret."""

    name: ServerName
    transport: str
    """`stdio`, `http` or `builtin`. Any other word marks a `ServerSpec` that is never started: it
    stands for files of a project that a person trusts like a server, such as its memories."""
    tap: TapName
    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    timeout: float | None = None
    """Seconds that one tool call may take; None if the definition does not say."""
    tools: tuple[str, ...] = ()
    """The server's own filter, applied before any capability's; empty keeps all tools."""
    scope: Scope = "project"
    """Which sessions may share an instance."""
    lazy: bool = True
    description: str = ""
    is_scope_fixed: bool = False
    """Whether `scope` holds even if the server speaks the stateless generation of MCP. Other
    servers of that generation may be shared by all sessions."""
    oauth: OAuthClient | None = None
    """The registered client for logins at the server, if capd is not to register itself."""
    project: str = ""
    """The path, with links resolved, of the project whose files define it; empty for a tap's
    server."""
    sandbox: str = ""
    """The sandbox that the definition asks for, such as `strict+network`; empty for none."""
    edits: tuple[ToolEdit, ...] = ()
    """The edits of its tools; not part of its identity."""
    least_sandbox: SandboxLevel = "off"
    """The weakest sandbox in which it may run for the session that asks; not part of its identity.
    """
    container: ContainerSpec | None = None
    """The container that it runs in; None for a process of this machine."""
    where: Where = "host"
    """With `project`, it runs on the far side of a bridge for sessions that come over that bridge.
    For sessions of this machine, the value makes no difference."""
    further_urls: tuple[str, ...] = ()
    """Further addresses of the same server, tried in this order when `url` fails."""

    @property
    def program(self) -> str:
        """The command that must be installed on this machine; empty if the server needs none."""
        return "" if self.container is not None else self.command


class CapabilitySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A capability, with everything needed to activate it."""

    id: CapabilityId
    provider: str
    title: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    """The capability is only for sessions in one of these domains; empty means every session."""
    servers: tuple[ServerSpec, ...] = ()
    allowed_tools: tuple[str, ...] | None = None
    """Patterns of tools, as the definition has them; None or empty keeps all tools
    (docs/design/catalog.md)."""
    requires: tuple[str, ...] = ()
    """Dependency scripts, `org/tool`."""
    wanted_keys: tuple[str, ...] = ()
    """Environment keys that its placeholders use."""
    extra_triggers: tuple[str, ...] = ()
    """Phrases that overlays add. The published routing rule, `trigger_mean`, uses only the phrases
    of the tap itself."""
    extra_description: str = ""
    """The description that an overlay adds to the tap's own."""
    files: tuple[str, ...] = ()
    """Patterns of file names in a project's root that make the capability more likely. `.env:KEY`
    matches if that file has that key."""
    triggers_from_tools: bool = False
    """Whether the first tool list of each of its servers becomes further triggers."""
    tool_triggers: tuple[str, ...] = ()
    """Those of `extra_triggers` that its servers gave. They count as evidence like others. But a
    message that is such a trigger word for word does not switch the capability on by that alone,
    because a server chose the words."""


class Finding(msgspec.Struct, frozen=True):
    """One problem in a tap: where it is, and whether something was left out because of it."""

    path: str
    line: int
    """The line, counted from 1; 0 for the file as a whole."""
    reason: str
    severity: Severity = "error"
    """`error` if something was left out because of the problem."""


class Score(msgspec.Struct, frozen=True):
    """How well one capability fits a message: a cosine or a probability, as the scorer says."""

    id: CapabilityId
    score: float


class CapabilityRestriction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person has configured for automatic activation of one capability."""

    id: CapabilityId
    threshold: float = 0.0
    """A score that it must reach, besides the threshold for all capabilities."""
    is_automatic: bool = True
    """Whether a message may activate it at all."""


class UnusableCapability(msgspec.Struct, frozen=True, omit_defaults=True):
    """A capability that fits a message but that its session cannot switch on."""

    id: CapabilityId
    reason: UnusableReason
    keys: tuple[str, ...] = ()
    """Keys for which no value is stored."""
    programs: tuple[str, ...] = ()
    """Commands of its servers that are not installed."""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What routing decided for one message."""

    outcome: DecisionOutcome
    reason: DecisionReason = ""
    """Why the outcome was chosen: why nothing was switched on, or `whole_trigger`."""
    id: CapabilityId | None = None
    """The winner; also set if it is on already."""
    top: tuple[Score, ...] = ()
    """The five capabilities with the best scores, best first."""
    fingerprint: str = ""
    """First 16 hex digits of the message's SHA-256; the text itself is stored nowhere."""
    left_out: dict[str, int] = {}
    """How many candidates each filter removed."""
    suggested: tuple[CapabilityId, ...] = ()
    """With `suggest`: up to three candidates, best first; none of them is switched on."""
    unusable: tuple[UnusableCapability, ...] = ()
    """Capabilities that fit and cannot be switched on. If the first of them would have won,
    `reason` is its reason."""
    part: int = 0
    """The index of the part of a long message that decided; 0 for its beginning and end, or for a
    short message."""


RoutingAct = Literal["enabled", "disabled", "called"]
"""What followed a message: a person switched a capability on, or off, or the model called it."""


class RoutingLabel(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a user or a model did after one message, by which routing learns about one capability.

    It contains no text of the message.
    """

    at: float
    """Seconds since the epoch."""
    capability: str
    """As `tap/name`."""
    act: RoutingAct
    score: float = 0.0
    """The score of the capability for the message; 0 if it was not among the best."""
    fingerprint: str = ""
    """The message's fingerprint; empty if there was no message."""
    project: str = ""
    """A hash of the path of the session's project; empty if it has none."""


class LearntEntry(msgspec.Struct, frozen=True):
    """What routing has learnt about one capability."""

    capability: str
    """As `tap/name`."""
    offset: float
    """The part of its offset that holds in every project. Routing adds three parts to the logit of
    its score: this one, `project_offset`, and the one that all capabilities share
    (`LearningDescribed.shared`)."""
    project_offset: float
    """The further part of its offset in the project of the request."""
    enabled: int
    """How many labels say that a person switched it on; the next two count the other acts."""
    disabled: int
    called: int
    since: float
    """When learning about it began, in seconds since the epoch."""
    last_at: float
    """When the newest label came, in seconds since the epoch."""


class ToolDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as its server lists it. The bytes pass unchanged unless the tool is edited."""

    name: ToolName
    """Its name at the server, even if an edit renames it: rules match this name."""
    json: bytes
    """The whole definition as the server wrote it, with the changes of `edit`."""
    edit: ToolEdit | None = None
    """How it was changed; None if it was not."""

    @property
    def shown_name(self) -> ToolName:
        """Return the part of the tool's wire name after `<server>__`; an edit may change it."""
        return ToolName(self.edit.name) if self.edit and self.edit.name else self.name


class SkillSpec(msgspec.Struct, frozen=True):
    """A skill of a tap: a text for a model, known by (tap, name)."""

    tap: TapName
    name: str
    file: str
    """The file that contains its text; it is read when the skill is used."""
    description: str = ""
    capabilities: tuple[str, ...] = ()
    """The capabilities that it needs, as `name` or `tap/name`."""


class MemorySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text about a capability or a tool, identified by (tap, name)."""

    tap: TapName
    name: str
    kind: MemoryKind
    content: str
    confidence: float = 1.0
    """From 0 to 1."""
    priority: float = 1.0
    capability: str = ""
    """The capability that it belongs to, as `name` or `tap/name`; empty if it belongs to a tool."""
    tool: str = ""
    """The tool that it belongs to, as `server:tool` or a wire name, with globs."""
    arguments: bytes = b""
    """A JSON Schema that the arguments of a mistaken call match; empty if the memory describes
    none."""
    refuses: bool = False
    """Whether a call whose arguments match `arguments` is refused."""
    learned_from: str = ""
    """Where the knowledge comes from, in words."""
    file: str = ""
