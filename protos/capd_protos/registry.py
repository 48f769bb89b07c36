"""Messages of the registry: what is installed, and which of it a message asks for."""

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
    """Decide what one user message asks for."""

    session: SessionKey
    text: str
    active: list[CapabilityId] = []
    keys: list[str] = []
    """Names of the environment keys for which the session has a value."""
    domain: str = ""
    is_enabled: bool = True
    """False where auto-activation is switched off for the session."""
    project: str = ""
    """The session's project, whose files may speak for a capability; empty where there is none."""
    denied: list[CapabilityId] = []
    """Capabilities of which the session's policy leaves nothing."""
    restrictions: list[CapabilityRestriction] = msgspec.field(default_factory=list, name="bars")
    """What the user has set on single capabilities."""
    waits: float = 0.0
    """Seconds to wait for a model that is loading, where the words alone do not decide."""


class MessageRouted(msgspec.Struct, frozen=True, tag="registry.routed"):
    """The decision."""

    decision: Decision


class ResolveCapability(msgspec.Struct, frozen=True, tag="registry.resolve"):
    """Find the capability of this name (`name` or `tap/name`)."""

    name: str
    project: str = ""
    """The session's project, whose own capabilities count as well; empty where it has none."""


class CapabilityResolved(msgspec.Struct, frozen=True, tag="registry.resolved"):
    """The capability, ready to be activated."""

    capability: CapabilitySpec
    scripts: dict[str, str] = {}
    """Paths of the dependency scripts that its tap has, by `org/tool`."""


class CapabilityUnknown(msgspec.Struct, frozen=True, tag="registry.unknown"):
    """No capability of this name can be activated."""

    name: str
    reason: str
    near: list[str] = []


class ListCapabilities(msgspec.Struct, frozen=True, tag="registry.list"):
    """List everything that taps define, what cannot be used included."""

    project: str = ""
    """The session's project, whose own capabilities count as well; empty where it has none."""
    all_projects: bool = False
    """Whether what the projects that are known define is listed as well."""


class CapabilityEntry(msgspec.Struct, frozen=True):
    """One capability directory of one tap."""

    tap: TapName
    name: CapabilityName
    provider: str
    is_routable: bool
    reason: str = ""
    """Why it is not routable, or routable but never activated."""
    description: str = ""
    domains: list[str] = []
    triggers: list[str] = []
    servers: list[str] = []
    wanted_keys: list[str] = []
    commands: list[str] = []
    """What its servers are started by, where they are processes."""
    unpinned: list[str] = []
    """Packages that its servers run in whatever version there is."""
    npm_packages: list[str] = []
    """Packages that npx fetches for its servers, by name alone."""


class CapabilitiesListed(msgspec.Struct, frozen=True, tag="registry.listed"):
    """All entries, by tap in their order of precedence, then by name."""

    capabilities: list[CapabilityEntry]


class DiscoverCapabilities(msgspec.Struct, frozen=True, tag="registry.discover"):
    """Rank capabilities for an intent without activating any."""

    intent: str
    limit: int = 5
    domain: str = ""
    """Capabilities of other domains are left out; empty leaves none out."""
    project: str = ""
    """The session's project, whose own capabilities count as well; empty where it has none."""
    denied: list[CapabilityId] = []
    """Left out as well."""


class CapabilityHit(msgspec.Struct, frozen=True):
    """One capability that fits an intent."""

    id: CapabilityId
    score: float
    triggers: list[str]
    wanted_keys: list[str]


class CapabilitiesFound(msgspec.Struct, frozen=True, tag="registry.found"):
    """The hits, best first."""

    hits: list[CapabilityHit]


class RegistryRefused(msgspec.Struct, frozen=True, tag="registry.refused"):
    """No answer, and why: `model_not_ready`, `no_intent` or `changed`."""

    code: str
    message: str


class ReloadCatalog(msgspec.Struct, frozen=True, tag="registry.reload"):
    """Read the list of taps and all taps again; what fails keeps its last good state."""


class DescribeRegistry(msgspec.Struct, frozen=True, tag="registry.describe"):
    """Say what is loaded and what was decided last."""

    project: str = ""
    """The session's project, whose own capabilities count as well; empty where it has none."""
    all_projects: bool = False
    """Whether keys count that any project asks for."""


class TapEntry(msgspec.Struct, frozen=True):
    """One tap as loaded."""

    name: TapName
    path: str
    revision: str
    """Content hash of what was read, 12 hex digits."""
    routable: int
    unroutable: dict[str, str]
    """Capability name to reason."""
    findings: list[Finding]
    error: str = ""
    """Why the last reload failed, where the last good state is still in use."""
    skills: int = 0
    memories: int = 0


class DecisionEntry(msgspec.Struct, frozen=True):
    """A decision as kept for `capd why`."""

    session: SessionKey
    at: float
    """Seconds since the epoch."""
    decision: Decision
    ms: float


class RegistryDescribed(msgspec.Struct, frozen=True, tag="registry.described"):
    """The registry's part of the status."""

    taps: list[TapEntry]
    decisions: list[DecisionEntry]
    wanted_keys: list[str]
    embedder_state: EmbedderState
    """As routing sees it."""
    embedder_reason: str
    profile: dict[str, str | float | int]
    watch: str = ""
    """Why changes of files are not followed; empty where they are."""
    trust_problem: str = ""
    """Why what was agreed to cannot be believed, so that nothing of any project is trusted."""


class DescribeProgress(msgspec.Struct, frozen=True, tag="registry.progress"):
    """Say how much of the catalog routing knows by meaning."""


class PartlyDecided(msgspec.Struct, frozen=True):
    """A decision for which not every text of the catalog had its vector."""

    session: SessionKey
    at: float
    """Seconds since the epoch."""
    percent: int


class ProgressDescribed(msgspec.Struct, frozen=True, tag="registry.progress_described"):
    """How much of the catalog routing knows by meaning; the rest counts by its letters."""

    percent: int
    """How many of the catalog's texts have their vectors, of a hundred."""
    decisions: list[PartlyDecided] = []
    """The last ones that were made with less than all."""


class ListSpecs(msgspec.Struct, frozen=True, tag="registry.list_specs"):
    """List every capability that can be used, with all that is known of it."""


class SpecsListed(msgspec.Struct, frozen=True, tag="registry.specs"):
    """Those of the user's taps and of all known projects, by tap, then by name."""

    capabilities: list[CapabilitySpec]


class CatalogChanged(msgspec.Struct, frozen=True, tag="registry.changed"):
    """A reload took effect."""

    wanted_keys: list[str]
    has_other_skills: bool = False
    """Whether the prompts of skills are others than before."""
    project: str = ""
    """The real path of the one project whose sessions this is about; empty for all sessions."""
    has_other_memories: bool = False
    """Whether what is known of capabilities and tools is another than before."""


class MessageDecided(msgspec.Struct, frozen=True, tag="registry.decided"):
    """A decision was made."""

    session: SessionKey
    outcome: str
    reason: str
    name: str


class ListSkills(msgspec.Struct, frozen=True, tag="registry.list_skills"):
    """List the skills of all taps."""


class SkillEntry(msgspec.Struct, frozen=True):
    """A skill under the name of its prompt."""

    prompt: WireName
    skill: SkillSpec


class SkillsListed(msgspec.Struct, frozen=True, tag="registry.skills"):
    """All skills, by tap in their order of precedence, then by folder."""

    skills: list[SkillEntry]


class ListToolSnapshots(msgspec.Struct, frozen=True, tag="registry.list_tools"):
    """List what the user's taps say that their servers list."""


class ToolSnapshotsListed(msgspec.Struct, frozen=True, tag="registry.tools"):
    """The tools by server, of the first tap that has them."""

    lists: dict[ServerIdentity, list[ToolDefinition]]


class ReadSkill(msgspec.Struct, frozen=True, tag="registry.read_skill"):
    """Read the text of the skill whose prompt has this name, or of `tap/name`."""

    name: str


class SkillText(msgspec.Struct, frozen=True, tag="registry.skill"):
    """A skill, and its text as it is at this moment."""

    entry: SkillEntry
    text: str


class SkillUnknown(msgspec.Struct, frozen=True, tag="registry.no_skill"):
    """There is no such skill, or its text cannot be read; the reason says which."""

    name: str
    reason: str
    near: list[str] = []
    is_there: bool = False
    """Whether there is a skill of this name."""


class ListStartables(msgspec.Struct, frozen=True, tag="registry.startables"):
    """Say what a project's files would start, and what of it is trusted."""

    project: str


class StartableEntry(msgspec.Struct, frozen=True):
    """One server of a project."""

    server: ServerSpec
    digest: str
    """What an agreement is to: the definition, and the contents of the files that it names."""
    state: TrustState
    files: dict[str, str] = {}
    """Digests of the project's files that the definition names, by path."""
    changes: list[str] = []
    """What is another since it was agreed to."""
    wanted_keys: list[str] = []
    """Keys whose values it would get."""
    warnings: list[str] = []
    problem: str = ""
    """Why nobody can agree to it."""
    capabilities: list[CapabilityName] = []


class StartablesListed(msgspec.Struct, frozen=True, tag="registry.startables_listed"):
    """What a project's files would start."""

    project: str
    """Its real path."""
    servers: list[StartableEntry]
    findings: list[Finding] = []
    error: str = ""
    """Why its files cannot be read."""


class GrantTrust(msgspec.Struct, frozen=True, tag="registry.grant"):
    """Agree to servers of a project, each by the digest under which somebody has seen it."""

    project: str
    digests: list[str]


class RevokeTrust(msgspec.Struct, frozen=True, tag="registry.revoke"):
    """Agree to nothing of a project any more."""

    project: str


class ListTrusted(msgspec.Struct, frozen=True, tag="registry.trusted"):
    """Say what is agreed to, of all projects."""


class TrustedProject(msgspec.Struct, frozen=True):
    """One project."""

    project: str
    servers: list[str]


class TrustedListed(msgspec.Struct, frozen=True, tag="registry.trusted_listed"):
    """What is agreed to."""

    projects: list[TrustedProject]
    problem: str = ""
    """Why that cannot be believed, so that nothing is trusted."""
    revoked: str = ""
    """The real path of the project that nothing is agreed to of any more, where that was asked."""


class ListMemories(msgspec.Struct, frozen=True, tag="registry.list_memories"):
    """List what is known of capabilities and tools, of all taps and the user's own."""

    project: str = ""
    """The session's project, whose own count as far as they are trusted."""


class MemoriesListed(msgspec.Struct, frozen=True, tag="registry.memories"):
    """All memories, by tap in their order of precedence, then by file."""

    memories: list[MemorySpec]
    findings: list[Finding] = []
    """What is wrong with the user's own files."""


class DescribeLearning(msgspec.Struct, frozen=True, tag="registry.learning"):
    """Say what use has taught routing."""

    project: str = ""
    """Whose part is told as well; empty for none."""


class LearningDescribed(msgspec.Struct, frozen=True, tag="registry.learning_described"):
    """All of it."""

    entries: list[LearntEntry]
    shared: float = 0.0
    """What is added to every capability."""
    labels: int = 0
    is_on: bool = True
    """Whether it counts, and more is learnt, in the project that was asked for."""
    problem: str = ""
    """Why it does not outlive this daemon, or is not what an earlier one knew."""


class ForgetLearning(msgspec.Struct, frozen=True, tag="registry.forget_learning"):
    """Forget what use has taught."""

    name: str = ""
    """Of this capability alone, as `name` or `tap/name`; empty for all."""
    is_last: bool = False
    """The last label alone, of whatever capability."""


class LearningForgotten(msgspec.Struct, frozen=True, tag="registry.learning_forgotten"):
    """It is forgotten."""

    labels: int
    """How many labels there were of it."""
    capability: str = ""
    """That of the last label, where that alone was asked for."""


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
