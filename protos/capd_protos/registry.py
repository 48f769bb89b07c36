"""Messages of the registry: what is installed, and which capability a message asks for.

A capability is routable if a message can switch it on. A label is the record of what a user or a
model did after a message; routing learns from labels.
"""

from typing import Literal

import msgspec

from capd_protos.embedder import EmbedderState
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilityRestriction,
    CapabilitySpec,
    Decision,
    Finding,
    LearntEntry,
    MemorySpec,
    ServerIdentity,
    ServerSpec,
    SessionKey,
    SkillSpec,
    TapName,
    ToolDefinition,
    WireName,
)

TrustState = Literal["untrusted", "trusted", "changed"]


class RouteMessage(msgspec.Struct, frozen=True, tag="registry.route"):
    """Decide which capability one user message asks for."""

    session: SessionKey
    text: str
    active: list[CapabilityId] = []
    keys: list[str] = []
    """Names of the environment keys for which the session has values."""
    domain: str = ""
    is_enabled: bool = True
    """Whether automatic activation is switched on for the session."""
    project: str = ""
    """The session's project, whose files may make a capability more likely; empty for none."""
    denied: list[CapabilityId] = []
    """Capabilities that the session's policy denies completely."""
    restrictions: list[CapabilityRestriction] = msgspec.field(default_factory=list, name="bars")
    """What the user has configured for single capabilities."""
    waits: float = 0.0
    """Seconds to wait for a model that is loading, if the message's words alone do not decide."""


class ResolveCapability(msgspec.Struct, frozen=True, tag="registry.resolve"):
    """Find the capability of this name (`name` or `tap/name`)."""

    name: str
    project: str = ""
    """The session's project, whose own capabilities count as well; empty for none."""


class CapabilityResolved(msgspec.Struct, frozen=True, tag="registry.resolved"):
    """Reply to `ResolveCapability`: the capability, ready to be activated."""

    capability: CapabilitySpec
    scripts: dict[str, str] = {}
    """Paths of the dependency scripts that its tap has, by `org/tool`."""


class MessageRouted(msgspec.Struct, frozen=True, tag="registry.routed"):
    """Reply to `RouteMessage`: the decision, with the capability that it switches on."""

    decision: Decision
    resolved: CapabilityResolved | None = None
    """The capability that the decision switches on; None for other decisions."""


class CapabilityUnknown(msgspec.Struct, frozen=True, tag="registry.unknown"):
    """Reply to `ResolveCapability`: no capability of this name can be activated."""

    name: str
    reason: str
    near: list[str] = []


class ListCapabilities(msgspec.Struct, frozen=True, tag="registry.list"):
    """List everything that the taps define, including what cannot be used."""

    project: str = ""
    """The session's project, whose own capabilities count as well; empty for none."""
    all_projects: bool = False
    """Whether to include what other known projects define."""


class CapabilityEntry(msgspec.Struct, frozen=True):
    """One capability directory of one tap."""

    tap: TapName
    name: CapabilityName
    provider: str
    is_routable: bool
    reason: str = ""
    """Why no message can activate it. A routable capability has a reason if one of its servers is
    built into another program (`builtin_unsupported`)."""
    description: str = ""
    domains: list[str] = []
    triggers: list[str] = []
    servers: list[str] = []
    wanted_keys: list[str] = []
    commands: list[str] = []
    """The commands that start its servers. A server that is not a process here has none."""
    unpinned: list[str] = []
    """Packages that its servers run without an exact version."""
    npm_packages: list[str] = []
    """Names of the packages that npx downloads for its servers."""


class CapabilitiesListed(msgspec.Struct, frozen=True, tag="registry.listed"):
    """Reply to `ListCapabilities`: all entries, by tap in order of precedence, then by name."""

    capabilities: list[CapabilityEntry]


class DiscoverCapabilities(msgspec.Struct, frozen=True, tag="registry.discover"):
    """Rank capabilities for an intent; activates none."""

    intent: str
    limit: int = 5
    domain: str = ""
    """Only capabilities of this domain; empty for all domains."""
    project: str = ""
    """The session's project, whose own capabilities count as well; empty for none."""
    denied: list[CapabilityId] = []
    """Capabilities to leave out."""


class CapabilityHit(msgspec.Struct, frozen=True):
    """One capability that fits an intent."""

    id: CapabilityId
    score: float
    triggers: list[str]
    wanted_keys: list[str]


class CapabilitiesFound(msgspec.Struct, frozen=True, tag="registry.found"):
    """Reply to `DiscoverCapabilities`: the capabilities that fit the intent, best first."""

    hits: list[CapabilityHit]


class RegistryRefused(msgspec.Struct, frozen=True, tag="registry.refused"):
    """The registry refuses a request."""

    code: Literal["model_not_ready", "no_intent", "changed", "not_written"]
    message: str


class ReloadCatalog(msgspec.Struct, frozen=True, tag="registry.reload"):
    """Read the list of taps and every tap again. A tap that cannot be read stays as it was."""


class DescribeRegistry(msgspec.Struct, frozen=True, tag="registry.describe"):
    """Report which taps are loaded, what is wrong with them, and the newest decisions."""

    project: str = ""
    """The session's project, whose own capabilities count as well; empty for none."""
    all_projects: bool = False
    """Whether to include the environment keys that any known project asks for."""


class TapEntry(msgspec.Struct, frozen=True):
    """A tap as it was last loaded: how many capabilities it has, and what is wrong."""

    name: TapName
    path: str
    revision: str
    """Content hash of what was read, 12 hex digits."""
    routable: int
    unroutable: dict[str, str]
    """The names of the capabilities that no message can switch on, each with the reason."""
    findings: list[Finding]
    error: str = ""
    """Why the last reload failed; the last good state is still used."""
    skills: int = 0
    memories: int = 0


class DecisionEntry(msgspec.Struct, frozen=True):
    """A routing decision, as `capd why` shows it."""

    session: SessionKey
    at: float
    """Seconds since the epoch."""
    decision: Decision
    ms: float
    """How long routing took, in milliseconds."""


class RegistryDescribed(msgspec.Struct, frozen=True, tag="registry.described"):
    """Reply to `DescribeRegistry`: the part of the status that is about the registry."""

    taps: list[TapEntry]
    decisions: list[DecisionEntry]
    wanted_keys: list[str]
    embedder_state: EmbedderState
    """The state of what routing by meaning needs: the model, and the vectors of the catalog's
    triggers. It can be `cold` while the embedder itself is `ready`."""
    embedder_reason: str
    """Why messages cannot be compared by meaning; empty if nothing has failed."""
    profile: dict[str, str | float | int]
    """The routing profile's `scorer`, `threshold`, `margin` and `top_k`."""
    watch: str = ""
    """Why file changes are not noticed; empty if they are."""
    trust_problem: str = ""
    """Why the record of trusted files cannot be used, so that no project is trusted."""


class DescribeProgress(msgspec.Struct, frozen=True, tag="registry.progress"):
    """Report how many of the catalog's texts have vectors."""


class PartlyDecided(msgspec.Struct, frozen=True):
    """A routing decision that was made before every text of the catalog had its vector."""

    session: SessionKey
    at: float
    """Seconds since the epoch."""
    percent: int
    """The share of the texts that had vectors at that time, in percent."""


class ProgressDescribed(msgspec.Struct, frozen=True, tag="registry.progress_described"):
    """Reply to `DescribeProgress`: how many of the catalog's texts have vectors.

    Texts without a vector are compared by their words.
    """

    percent: int
    """The share of the catalog's texts that have vectors, in percent."""
    decisions: list[PartlyDecided] = []
    """The newest decisions that were made before all texts had vectors."""


class ListSpecs(msgspec.Struct, frozen=True, tag="registry.list_specs"):
    """List every usable capability with its complete definition."""


class SpecsListed(msgspec.Struct, frozen=True, tag="registry.specs"):
    """Reply to `ListSpecs`: capabilities of the user's taps and of all known projects.

    They are sorted by tap, then by name.
    """

    capabilities: list[CapabilitySpec]


class CatalogChanged(msgspec.Struct, frozen=True, tag="registry.changed"):
    """Event: a reload of the catalog has taken effect."""

    wanted_keys: list[str]
    has_other_skills: bool = False
    """Whether the skills' prompts have changed."""
    project: str = ""
    """The path, with links resolved, of the only project that is affected; empty for all sessions.
    """
    has_other_memories: bool = False
    """Whether the memories have changed."""


class MessageDecided(msgspec.Struct, frozen=True, tag="registry.decided"):
    """Event: a routing decision was made."""

    session: SessionKey
    outcome: str
    reason: str
    name: str


class ListSkills(msgspec.Struct, frozen=True, tag="registry.list_skills"):
    """List the skills of all taps."""


class SkillEntry(msgspec.Struct, frozen=True):
    """A skill in `SkillsListed`, under the name of its prompt."""

    prompt: WireName
    skill: SkillSpec


class SkillsListed(msgspec.Struct, frozen=True, tag="registry.skills"):
    """Reply to `ListSkills`: all skills, by tap in order of precedence, then by folder."""

    skills: list[SkillEntry]


class ListToolSnapshots(msgspec.Struct, frozen=True, tag="registry.list_tools"):
    """List the tools that the user's taps record for their servers."""


class ToolSnapshotsListed(msgspec.Struct, frozen=True, tag="registry.tools"):
    """Reply to `ListToolSnapshots`: the tools by server, from the first tap that records them."""

    lists: dict[ServerIdentity, list[ToolDefinition]]


class ReadSkill(msgspec.Struct, frozen=True, tag="registry.read_skill"):
    """Read the text of a skill, by the name of its prompt or as `tap/name`."""

    name: str


class SkillText(msgspec.Struct, frozen=True, tag="registry.skill"):
    """Reply to `ReadSkill`: the skill, with the text that its file has at this moment."""

    entry: SkillEntry
    text: str


class SkillUnknown(msgspec.Struct, frozen=True, tag="registry.no_skill"):
    """Reply to `ReadSkill`: there is no such skill, or its text cannot be read.

    `reason` says which.
    """

    name: str
    reason: str
    near: list[str] = []
    is_there: bool = False
    """Whether a skill of this name exists."""


class ListStartables(msgspec.Struct, frozen=True, tag="registry.startables"):
    """List the servers that a project's files would start, and which of them are trusted."""

    project: str


class StartableEntry(msgspec.Struct, frozen=True):
    """A server that a project's files would start, and whether it is trusted."""

    server: ServerSpec
    digest: str
    """The digest of what a person agrees to: the definition, and the contents of the files that it
    names."""
    state: TrustState
    files: dict[str, str] = {}
    """Digests of the project's files that the definition names, by path."""
    changes: list[str] = []
    """What has changed since a person agreed."""
    wanted_keys: list[str] = []
    """Keys whose values the server would receive."""
    warnings: list[str] = []
    problem: str = ""
    """Why it cannot be trusted."""
    capabilities: list[CapabilityName] = []


class StartablesListed(msgspec.Struct, frozen=True, tag="registry.startables_listed"):
    """Reply to `ListStartables` and `GrantTrust`: what a project's files would start."""

    project: str
    """The project's path with links resolved."""
    servers: list[StartableEntry]
    findings: list[Finding] = []
    error: str = ""
    """Why its files cannot be read; empty if they can."""


class GrantTrust(msgspec.Struct, frozen=True, tag="registry.grant"):
    """Trust servers of a project, each by the digest that a person has seen."""

    project: str
    digests: list[str]


class RevokeTrust(msgspec.Struct, frozen=True, tag="registry.revoke"):
    """Withdraw all trust in a project."""

    project: str


class ListTrusted(msgspec.Struct, frozen=True, tag="registry.trusted"):
    """List everything that is trusted, of all projects."""


class TrustedProject(msgspec.Struct, frozen=True):
    """A project in which something is trusted, with the names of its trusted servers."""

    project: str
    servers: list[str]


class TrustedListed(msgspec.Struct, frozen=True, tag="registry.trusted_listed"):
    """Reply to `ListTrusted` and `RevokeTrust`: everything that is trusted."""

    projects: list[TrustedProject]
    problem: str = ""
    """Why the record cannot be used, so that nothing is trusted."""
    revoked: str = ""
    """For `RevokeTrust`: the path, with links resolved, of the project that is not trusted any
    longer."""


class ListMemories(msgspec.Struct, frozen=True, tag="registry.list_memories"):
    """List the memories of all taps, and the user's own."""

    project: str = ""
    """The session's project, whose own memories are included if they are trusted."""


class MemoriesListed(msgspec.Struct, frozen=True, tag="registry.memories"):
    """Reply to `ListMemories`: all memories, by tap in order of precedence, then by file."""

    memories: list[MemorySpec]
    findings: list[Finding] = []
    """Problems with the user's own files."""


class DescribeLearning(msgspec.Struct, frozen=True, tag="registry.learning"):
    """Report what routing has learnt from use."""

    project: str = ""
    """A project whose own part is included; empty for none."""


class LearningDescribed(msgspec.Struct, frozen=True, tag="registry.learning_described"):
    """Reply to `DescribeLearning`: what routing has learnt from use."""

    entries: list[LearntEntry]
    shared: float = 0.0
    """The part of the learnt offset that is the same for every capability."""
    labels: int = 0
    """How many labels are saved."""
    is_on: bool = True
    """Whether learning is switched on in the project of the request."""
    problem: str = ""
    """Why the labels cannot be saved, or why those of an earlier daemon were lost; empty if neither
    is so."""


class ForgetLearning(msgspec.Struct, frozen=True, tag="registry.forget_learning"):
    """Forget what routing has learnt from use."""

    name: str = ""
    """Forget only what was learnt about this capability: `name` or `tap/name`; empty for all."""
    is_last: bool = False
    """Whether to forget only the newest label, of whichever capability."""


class LearningForgotten(msgspec.Struct, frozen=True, tag="registry.learning_forgotten"):
    """Reply to `ForgetLearning`: how many labels routing has forgotten."""

    labels: int
    """How many labels were forgotten."""
    capability: str = ""
    """The capability of the newest label, if only that was forgotten."""


Request = (
    RouteMessage
    | ResolveCapability
    | ListCapabilities
    | DiscoverCapabilities
    | ReloadCatalog
    | DescribeRegistry
    | ListSkills
    | ListToolSnapshots
    | ReadSkill
    | ListStartables
    | GrantTrust
    | RevokeTrust
    | ListTrusted
    | ListMemories
    | DescribeLearning
    | ForgetLearning
    | DescribeProgress
    | ListSpecs
)
Reply = (
    MessageRouted
    | CapabilityResolved
    | CapabilityUnknown
    | CapabilitiesListed
    | CapabilitiesFound
    | RegistryRefused
    | RegistryDescribed
    | SkillsListed
    | ToolSnapshotsListed
    | SkillText
    | SkillUnknown
    | StartablesListed
    | TrustedListed
    | MemoriesListed
    | LearningDescribed
    | LearningForgotten
    | ProgressDescribed
    | SpecsListed
)
Event = CatalogChanged | MessageDecided
