"""Messages of the finder: which tools there are, and which of them fit."""

from typing import Literal

import msgspec

from capd_protos.ledger import Use
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    SkillSpec,
    ToolEdit,
    ToolName,
    WireName,
)

SearchMode = Literal["fused", "lexical", "selected"]


class ToolRestriction(msgspec.Struct, frozen=True):
    """Why a session may not use a tool."""

    code: str
    """`denied`, `missing_secrets` or another word that names the rule."""
    reason: str


class PolicyTable(msgspec.Struct, frozen=True):
    """Patterns of one table of the user's configuration."""

    place: str
    allow: list[str] = []
    deny: list[str] = []


class FindTools(msgspec.Struct, frozen=True, tag="finder.find"):
    """Rank tools for a query, or take those that `select:a,b` names; changes nothing."""

    query: str
    max_results: int = 5
    cap: int = 24
    """Most tools that a selection may take."""
    rules: list[PolicyTable] = []
    """The policy of the session that asks."""
    keys: list[str] | None = None
    """Environment keys that it has values for; None where that does not matter."""
    project: str = ""
    """The project of the session, whose own tools count as well."""
    domain: str = ""
    """Its domain; empty where it has none."""
    capability: str = ""
    """Only tools of capabilities whose name matches this glob."""
    category: str = ""
    """Only tools of capabilities of this domain, or whose name begins with it (`messaging`)."""


class ToolHit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool that fits."""

    wire_name: WireName
    name: ToolName
    server: ServerName
    identity: ServerIdentity
    definition: bytes
    """As its server wrote it, but for the changes of `edit`."""
    score: float = 0.0
    spec: ServerSpec | None = None
    via: CapabilityId | None = None
    """A capability that grants it and whose secrets are there, if one's are."""
    edit: ToolEdit | None = None
    """How the definition differs from its server's; None where it does not."""
    listed: bytes = b""
    """The definition as its server wrote it, where one tool with an edit was looked up."""

    @property
    def shown_name(self) -> ToolName:
        """Return what the tool is called where its server's name stands before it."""
        return ToolName(self.edit.name) if self.edit and self.edit.name else self.name


class ToolsFound(msgspec.Struct, frozen=True, tag="finder.found"):
    """The hits, best first or as selected; `text` says what is missing and why."""

    hits: list[ToolHit]
    text: str
    searched: int
    mode: SearchMode
    """`lexical` where the model is not ready."""
    skills: "list[SkillHit]" = []
    """Skills that fit as well, a few."""


class SkillHit(msgspec.Struct, frozen=True):
    """One skill that fits."""

    prompt: WireName
    skill: SkillSpec
    score: float = 0.0


class FindSkills(msgspec.Struct, frozen=True, tag="finder.find_skills"):
    """Rank skills for a query."""

    query: str
    max_results: int = 3


class SkillsFound(msgspec.Struct, frozen=True, tag="finder.skills"):
    """The hits, best first."""

    hits: list[SkillHit]


class FinderRefused(msgspec.Struct, frozen=True, tag="finder.refused"):
    """The query leads to no search."""

    message: str


class IndexServers(msgspec.Struct, frozen=True, tag="finder.index"):
    """Ask each server of the catalog once for its tools, with the values of a session."""

    session: SessionKey
    project: str = ""


class IndexStarted(msgspec.Struct, frozen=True, tag="index.started"):
    """So many servers are being asked."""

    total: int


class ServerIndexed(msgspec.Struct, frozen=True, tag="index.server"):
    """One server was asked; the event of progress, and its line in the result."""

    name: ServerName
    identity: ServerIdentity
    tools: int
    seconds: float
    error: str = ""
    done: int = 0
    total: int = 0


class ServersIndexed(msgspec.Struct, frozen=True, tag="finder.indexed"):
    """Every server was asked."""

    servers: list[ServerIndexed]


class ToolsIndexed(msgspec.Struct, frozen=True, tag="index.tools"):
    """What can be found has changed, or can be found by meaning as well."""

    tools: int
    servers: int
    has_vectors: bool = False


class LookUpTool(msgspec.Struct, frozen=True, tag="finder.look_up"):
    """Say what a tool is: by its wire name, or by its server and its own name."""

    name: str
    identity: ServerIdentity = ServerIdentity("")
    """With it `name` is the tool's own."""
    rules: list[PolicyTable] = []
    keys: list[str] | None = None
    project: str = ""
    domain: str = ""


class ToolLookedUp(msgspec.Struct, frozen=True, tag="finder.looked_up"):
    """The tool, or why it is not to be had."""

    hit: ToolHit | None = None
    restriction: ToolRestriction | None = msgspec.field(default=None, name="bar")
    near: list[WireName] = []
    searched: int = 0
    unlisted: int = 0
    """Servers whose tools are not known."""


class DescribeTools(msgspec.Struct, frozen=True, tag="finder.describe"):
    """Say how much there is for a session, and which tools match `patterns`."""

    patterns: list[str] = []
    """`server:tool` with globs; `*` is everything."""
    rules: list[PolicyTable] = []
    waits: bool = False
    """Whether to wait, a few seconds at most, until the catalog was read once."""
    project: str = ""
    domain: str = ""
    whole_bytes: int = 0
    """Give every tool as well if a model reads no more than so many bytes of all of them."""


class EagerServer(msgspec.Struct, frozen=True):
    """A server whose definition says `lazy = false`."""

    spec: ServerSpec
    via: CapabilityId


class ToolsDescribed(msgspec.Struct, frozen=True, tag="finder.described"):
    """What there is."""

    is_known: bool
    """False before the catalog was read for the first time."""
    tools: int = 0
    size_bytes: int = 0
    """Of all permitted definitions."""
    unlisted: int = 0
    matching: list[ToolHit] = []
    """By pattern, then in the servers' order."""
    eager: list[EagerServer] = []
    model_bytes: int = 0
    """What a model reads of all permitted definitions: names, descriptions, input schemas."""
    skills: int = 0
    everything: list[ToolHit] = []
    """Every permitted tool, where they are as small as was asked, and all servers listed theirs."""


class ListDenied(msgspec.Struct, frozen=True, tag="finder.list_denied"):
    """Say of which capabilities a policy leaves nothing, once the catalog was read."""

    rules: list[PolicyTable]
    project: str = ""


class DeniedCapability(msgspec.Struct, frozen=True):
    """A capability of which nothing is left."""

    id: CapabilityId
    reason: str


class DeniedListed(msgspec.Struct, frozen=True, tag="finder.denied"):
    """All of them."""

    is_known: bool
    """False where the catalog was not read in time."""
    capabilities: list[DeniedCapability] = []


class CurateTools(msgspec.Struct, frozen=True, tag="finder.curate"):
    """Rank the tools outside the active capabilities for a user's message; changes nothing."""

    text: str
    """As it is compared: the user's own words, bounded."""
    k: int = 15
    scorer: Literal["hybrid", "keyword"] = "hybrid"
    active: list[CapabilityId] = []
    domain: str = ""
    pins: list[str] = []
    """The user's own: `server:tool` with globs."""
    uses: list[Use] = []
    """Of the last day."""
    rules: list[PolicyTable] = []
    keys: list[str] | None = None
    project: str = ""
    asks_model: bool = True
    """Whether meaning counts as well, where the model is at hand."""


class CuratedTool(msgspec.Struct, frozen=True):
    """One of the best k."""

    hit: ToolHit
    is_clear: bool
    """Whether the message alone speaks for it, above the bar."""
    is_pinned: bool = False


class ToolsCurated(msgspec.Struct, frozen=True, tag="finder.curated"):
    """The best k, best first."""

    tools: list[CuratedTool]


class RankTools(msgspec.Struct, frozen=True, tag="finder.rank"):
    """Rank the tools of capabilities that a user's message means; changes nothing."""

    text: str
    """As it is compared: the user's own words, bounded."""
    capabilities: list[CapabilityId]
    most: int = 3
    uses: list[Use] = []
    """Of the last day."""
    rules: list[PolicyTable] = []
    keys: list[str] | None = None
    project: str = ""
    domain: str = ""
    asks_model: bool = True
    """Whether meaning counts as well, where the model is at hand."""


class ToolsRanked(msgspec.Struct, frozen=True, tag="finder.ranked"):
    """The best tools of these capabilities, best first."""

    hits: list[ToolHit]
    total: int = 0
    """How many tools the capabilities have for this session."""
    is_known: bool = True
    """False where one of their servers was never asked for its tools."""
    skills: "list[SkillHit]" = []
    """The skill that clearly fits the message, if one does."""
    is_spoken_of: bool = False
    """Whether the message clearly speaks of one of these tools."""


class CountTools(msgspec.Struct, frozen=True, tag="finder.count"):
    """Say how many tokens a list of every tool takes that a session may have."""

    rules: list[PolicyTable] = []
    project: str = ""
    """Whose own tools count as well."""


class ToolsCounted(msgspec.Struct, frozen=True, tag="finder.counted"):
    """The tokens of all permitted definitions, under the names that pass-through mode gives."""

    is_known: bool
    """False before the catalog was read for the first time."""
    tools: int = 0
    tokens: int | None = None
    """None where they could not be counted."""
    unlisted: list[ServerName] = []
    """Servers that were never asked for their tools."""


class ListGranted(msgspec.Struct, frozen=True, tag="finder.list_granted"):
    """Say which tools each of these capabilities would bring to a session."""

    capabilities: list[CapabilityId]
    rules: list[PolicyTable] = []
    keys: list[str] | None = None
    """Environment keys that the session has values for; None asks for no account of them."""
    project: str = ""
    domain: str = ""


class Granted(msgspec.Struct, frozen=True):
    """What one capability would bring."""

    id: CapabilityId
    tools: list[ToolHit]
    is_known: bool
    """False where one of its servers was never asked for its tools."""


class GrantedListed(msgspec.Struct, frozen=True, tag="finder.granted"):
    """All of them, in the order of the question."""

    capabilities: list[Granted]


class DescribeCapabilities(msgspec.Struct, frozen=True, tag="finder.capabilities"):
    """Say what each capability has, of those that sessions of a project can switch on."""

    project: str = ""
    waits: bool = False
    """Whether to wait, a few seconds at most, until the catalog was read once."""
    counts: bool = False
    """Whether to count what the tools of each take."""


class CapabilityTools(msgspec.Struct, frozen=True):
    """One capability, with what of its servers' tools it keeps."""

    capability: CapabilitySpec
    tools: list[WireName] | None = None
    """None where its servers were never asked."""
    tokens: int | None = None
    """Of their definitions; None where that was not counted."""


class CapabilitiesDescribed(msgspec.Struct, frozen=True, tag="finder.capabilities_described"):
    """Every capability once: that of the first tap which has its name."""

    is_known: bool
    """False before the catalog was read for the first time."""
    capabilities: list[CapabilityTools] = []


Request = (
    FindTools
    | IndexServers
    | FindSkills
    | LookUpTool
    | DescribeTools
    | ListDenied
    | CurateTools
    | RankTools
    | CountTools
    | ListGranted
    | DescribeCapabilities
)
Reply = (
    ToolsFound
    | FinderRefused
    | ServersIndexed
    | SkillsFound
    | ToolLookedUp
    | ToolsDescribed
    | DeniedListed
    | ToolsCurated
    | ToolsRanked
    | ToolsCounted
    | GrantedListed
    | CapabilitiesDescribed
)
Event = IndexStarted | ServerIndexed | ToolsIndexed
