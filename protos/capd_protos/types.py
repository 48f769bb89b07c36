"""Ids and values that more than one message or rule speaks of."""

from typing import Literal, NewType

import msgspec

ActorName = NewType("ActorName", str)
"""An actor of the daemon: `registry`, `supervisor`, `curator`, `embedder`, `gateway`."""

Address = NewType("Address", str)
"""A ZeroMQ endpoint within the daemon, `inproc://...`."""

MessageId = NewType("MessageId", int)
"""A request's number, unique among the requests of one sender."""

SessionKey = NewType("SessionKey", str)
"""One client conversation."""

TapName = NewType("TapName", str)
CapabilityName = NewType("CapabilityName", str)
ServerName = NewType("ServerName", str)
ToolName = NewType("ToolName", str)
"""A tool's name as its server gives it."""

WireName = NewType("WireName", str)
"""A tool's name as clients see it: `<server>__<tool>`, at most 64 characters."""

ServerIdentity = NewType("ServerIdentity", str)
"""Hash of everything that makes two server definitions the same (docs/design/catalog.md)."""

InstanceId = NewType("InstanceId", str)
"""One running connection to a server."""

FailedOutcome = Literal["not_sent", "outcome_unknown", "refused"]
"""How a call ends that has no result of its server's (docs/design/outcomes.md)."""
Scope = Literal["shared", "project", "session"]
SandboxLevel = Literal["off", "guard", "strict"]
"""How much of the machine a server is kept from, the least first (docs/sandbox.md)."""
ContainerMount = Literal["none", "read", "write"]
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
    # Siblings, of which nothing says which is meant.
    "near_tie",
    "already_active",
    # With `activate`: the message is a trigger, word for word.
    "whole_trigger",
    # The winner cannot be switched on here.
    "missing_secrets",
    "missing_program",
    "domain",
    # What the user has set for the capability, on top of what routing concluded.
    "set_by_user",
    # A turn with a budget alone: not all of it had room; of what is on in part, some had.
    "over_budget",
    # A client's hook alone: it asked before, or its answer came before the turn's.
    "repeated",
    "unfinished",
]
UnusableReason = Literal["missing_secrets", "missing_program", "domain"]


class CapabilityId(msgspec.Struct, frozen=True, order=True):
    """A capability's identity everywhere: the tap that holds it, and its name there."""

    tap: TapName
    name: CapabilityName

    def __str__(self) -> str:
        """Render as `tap/name`, the form that pins a tap."""
        return f"{self.tap}/{self.name}"


class ClientFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client says of itself, in its handshake or with a request."""

    version: str = ""
    """The protocol version that it speaks; empty before it has said so."""
    info: bytes = b'{"name":"capd","version":"0"}'
    """Its name and version, as it wrote them in JSON."""
    capabilities: bytes = b"{}"
    """What may be asked of it, as it wrote it in JSON."""


class OAuthClient(msgspec.Struct, frozen=True, omit_defaults=True):
    """What capd is to an authorization server that knows it beforehand."""

    id: str
    secret: str = ""
    """A placeholder, as in a header; empty where the client has none."""
    redirect_port: int = 0
    """The port that was registered to come back to; 0 for any."""


class ArgumentEdit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a person wants one argument of a tool to be."""

    argument: str
    """Its name at the server."""
    name: str = ""
    """What clients call it; empty leaves its name."""
    description: str = ""
    is_hidden: bool = False
    """Whether clients do not see it, and cannot set it."""
    preset: bytes = b""
    """The JSON value that the server always gets, which hides the argument; empty presets none."""


class ToolEdit(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a person wants one tool to be; whatever is empty stays as its server says."""

    server: ServerName
    tool: ToolName
    name: str = ""
    """What it is called in place of `tool`."""
    title: str = ""
    description: str = ""
    is_disabled: bool = False
    arguments: tuple[ArgumentEdit, ...] = ()
    file: str = ""
    """The file of the overlay that says so."""


class ContainerSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server that runs in a container gets of this machine."""

    image: str
    """The image with its exact digest: `NAME@sha256:HEX`, or `sha256:HEX` for one that is here."""
    has_network: bool = False
    mount: ContainerMount = "read"
    """How its project's folder is mounted, at the path that it has here."""
    memory_mib: int = 1024


class ServerSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server as its tap defines it, placeholders unresolved: secrets never cross the bus."""

    name: ServerName
    transport: str
    """`stdio`, `http` or `builtin`; of what a project brings beside servers its kind, which is
    open and never started."""
    tap: TapName
    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    timeout: float | None = None
    """Seconds that one tool call may take; None where the definition says nothing."""
    tools: tuple[str, ...] = ()
    """The server's own filter, applied before any capability's; empty keeps all."""
    scope: Scope = "project"
    """Who may share an instance."""
    lazy: bool = True
    description: str = ""
    is_scope_fixed: bool = False
    """Whether `scope` holds whatever generation the server is met in."""
    oauth: OAuthClient | None = None
    """Who logs in there, where capd is not to register itself."""
    project: str = ""
    """The real path of the project whose files define it; empty for a tap's."""
    sandbox: str = ""
    """What it asks to be confined to, such as `strict+network`; empty asks for nothing."""
    edits: tuple[ToolEdit, ...] = ()
    """How overlays want its tools to be; no part of its identity."""
    least_sandbox: SandboxLevel = "off"
    """The least level at which it runs for one session; no part of its identity."""
    container: ContainerSpec | None = None
    """The container that it runs in; None for a process of this machine."""

    @property
    def program(self) -> str:
        """Return the program of this machine that it needs; empty if it needs none by name."""
        return "" if self.container is not None else self.command


class CapabilitySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A capability with what it takes to activate it."""

    id: CapabilityId
    provider: str
    title: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    """Domains that a session must be in one of; empty means every session."""
    servers: tuple[ServerSpec, ...] = ()
    allowed_tools: tuple[str, ...] | None = None
    """Patterns as written; None or empty keeps all tools (docs/design/catalog.md)."""
    requires: tuple[str, ...] = ()
    """Dependency scripts, `org/tool`."""
    wanted_keys: tuple[str, ...] = ()
    """Environment keys that its placeholders ask for."""
    extra_triggers: tuple[str, ...] = ()
    """Phrases that overlays add; `trigger_mean` is defined on its tap's own ones alone."""
    extra_description: str = ""
    """What an overlay says of it, beside what its tap says."""
    files: tuple[str, ...] = ()
    """Patterns of names in a project's root that speak for it; `.env:KEY` is a key there."""


class Finding(msgspec.Struct, frozen=True):
    """One thing wrong with a tap: where, and why it was dropped or kept with a warning."""

    path: str
    line: int
    """From 1; 0 where the file as a whole is meant."""
    reason: str
    severity: Severity = "error"
    """With `error` something is left out."""


class Score(msgspec.Struct, frozen=True):
    """How well one capability fits a message: a cosine or a probability, as the scorer says."""

    id: CapabilityId
    score: float


class CapabilityRestriction(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person has set on switching one capability on by a message."""

    id: CapabilityId
    threshold: float = 0.0
    """What its score has to reach, beside the bar for all."""
    is_automatic: bool = True


class UnusableCapability(msgspec.Struct, frozen=True, omit_defaults=True):
    """A capability that fits a message, and that its session cannot switch on."""

    id: CapabilityId
    reason: UnusableReason
    keys: tuple[str, ...] = ()
    """The keys that nobody has stored a value for."""
    programs: tuple[str, ...] = ()
    """The commands of its servers that are not installed."""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What routing concluded for one message."""

    outcome: DecisionOutcome
    reason: DecisionReason = ""
    """Why it did not activate."""
    id: CapabilityId | None = None
    """The winner, also where it is on already."""
    top: tuple[Score, ...] = ()
    """The best five, best first."""
    fingerprint: str = ""
    """First 16 hex digits of the message's SHA-256: the text itself is kept nowhere."""
    left_out: dict[str, int] = {}
    """Candidates that filters removed, counted by filter."""
    suggested: tuple[CapabilityId, ...] = ()
    """With `suggest`: up to three that may be meant, best first; none of them is on."""
    unusable: tuple[UnusableCapability, ...] = ()
    """What fits and cannot be switched on; with the reason of the first it would have won."""


RoutingAct = Literal["enabled", "disabled", "called"]
"""What followed a message: a person switched a capability on, or off, or the model called it."""


class RoutingLabel(msgspec.Struct, frozen=True, omit_defaults=True):
    """What followed one message, for one capability; no text of the message is in it."""

    at: float
    """Seconds since the epoch."""
    capability: str
    """As `tap/name`."""
    act: RoutingAct
    score: float = 0.0
    """What routing gave the capability for the message; 0 where it was not among the best."""
    fingerprint: str = ""
    """Of the message; empty where there was none."""
    project: str = ""
    """The session's project as a hash of its path; empty where it has none."""


class LearntEntry(msgspec.Struct, frozen=True):
    """What use has taught of one capability."""

    capability: str
    """As `tap/name`."""
    offset: float
    """What is added to its logit outside of projects."""
    project_offset: float
    """What is added to that in the project that was asked for."""
    enabled: int
    disabled: int
    called: int
    since: float
    """When the first of it was learnt, in seconds since the epoch."""
    last_at: float


class ToolDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as its server lists it: the bytes are passed on as they came."""

    name: ToolName
    """Its name at the server, whatever it is called: rules are about this one."""
    json: bytes
    """The whole definition, as the server wrote it, but for the changes of `edit`."""
    edit: ToolEdit | None = None
    """What was changed in it, as far as it applies; None where nothing was."""

    @property
    def shown_name(self) -> ToolName:
        """Return what the tool is called where its server's name stands before it."""
        return ToolName(self.edit.name) if self.edit and self.edit.name else self.name


class SkillSpec(msgspec.Struct, frozen=True):
    """A skill of a tap: a text for a model, known by (tap, name)."""

    tap: TapName
    name: str
    file: str
    """Where its text is, which is read when it is used."""
    description: str = ""
    capabilities: tuple[str, ...] = ()
    """What it needs, as `name` or `tap/name`."""


class MemorySpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that is known of a capability or a tool, known itself by (tap, name)."""

    tap: TapName
    name: str
    kind: MemoryKind
    content: str
    confidence: float = 1.0
    """From 0 to 1."""
    priority: float = 1.0
    capability: str = ""
    """What it belongs to, as `name` or `tap/name`; empty where it is a tool's alone."""
    tool: str = ""
    """The same for a tool, as `server:tool` or a wire name, with globs."""
    arguments: bytes = b""
    """A JSON Schema of the arguments that are the mistake; empty where none are named."""
    refuses: bool = False
    """Whether a call with such arguments is refused."""
    learned_from: str = ""
    """Where it is from, in words."""
    file: str = ""
