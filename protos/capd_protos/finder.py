"""Messages of the finder, the actor that searches tools and skills.

A capability grants the tools of its servers that its filter lets through. The catalog is everything
installed. An edit changes how clients see a tool, such as its name (docs/tools.md). A wire name is
the name under which clients know a tool.
"""

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
"""`fused`: ranked by words and by meaning. `lexical`: ranked by words alone. `selected`: looked up
by name, for a query that begins with `select:`."""


class ToolRestriction(msgspec.Struct, frozen=True):
    """Why a session may not use a tool."""

    code: str
    """`denied`, `missing_secrets` or another word that names the rule."""
    reason: str


class PolicyTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The patterns of one policy table in the user's configuration."""

    place: str
    allow: list[str] = []
    deny: list[str] = []
    capabilities: list[str] | None = None
    """Globs of the capabilities that may be used; None for all."""


class FindTools(msgspec.Struct, frozen=True, tag="finder.find"):
    """Rank tools for a query; changes nothing.

    A query of `select:` and names looks these tools up instead.
    """

    query: str
    max_results: int = 5
    cap: int = 24
    """The most tools that are returned for a query with `select:`."""
    rules: list[PolicyTable] = []
    """The policy of the session that asks."""
    keys: list[str] | None = None
    """Environment keys for which the session has values; None to ignore missing keys."""
    project: str = ""
    """The session's project, whose own tools are searched as well."""
    domain: str = ""
    """The session's domain; empty if it has none."""
    capability: str = ""
    """Only tools of capabilities whose name matches this glob."""
    category: str = ""
    """Only tools of capabilities with this domain, with this name, or with a name that begins with
    this word and a dash."""


class ToolHit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool that fits the query."""

    wire_name: WireName
    name: ToolName
    server: ServerName
    identity: ServerIdentity
    definition: bytes
    """As its server wrote it, with the changes of `edit`."""
    score: float = 0.0
    spec: ServerSpec | None = None
    via: CapabilityId | None = None
    """A capability that grants it, preferably one whose secrets are stored."""
    edit: ToolEdit | None = None
    """The edit that has changed the definition; None if there is none."""
    listed: bytes = b""
    """The definition before its edit, if a single edited tool was looked up."""

    @property
    def shown_name(self) -> ToolName:
        """Return the part of the tool's wire name after `<server>__`; an edit may change it."""
        return ToolName(self.edit.name) if self.edit and self.edit.name else self.name


class ToolsFound(msgspec.Struct, frozen=True, tag="finder.found"):
    """Reply to `FindTools`: the hits, best first or in the order of the requested names.

    `text` says what is missing from the hits, and why.
    """

    hits: list[ToolHit]
    text: str
    searched: int
    """How many tools were searched."""
    mode: SearchMode
    """`lexical` if the model is not ready."""
    skills: "list[SkillHit]" = []
    """A few skills that fit the query."""


class SkillHit(msgspec.Struct, frozen=True):
    """A skill that fits the query, with its prompt and its score."""

    prompt: WireName
    skill: SkillSpec
    score: float = 0.0


class FindSkills(msgspec.Struct, frozen=True, tag="finder.find_skills"):
    """Rank skills for a query."""

    query: str
    max_results: int = 3


class SkillsFound(msgspec.Struct, frozen=True, tag="finder.skills"):
    """Reply to `FindSkills`: the skills that fit the query, best first."""

    hits: list[SkillHit]


class FinderRefused(msgspec.Struct, frozen=True, tag="finder.refused"):
    """Reply to a search that the finder cannot do for this query; `message` says why."""

    message: str


class IndexServers(msgspec.Struct, frozen=True, tag="finder.index"):
    """Ask each server of the catalog once for its tools.

    Servers are started with the environment values of `session`.
    """

    session: SessionKey
    project: str = ""


class IndexStarted(msgspec.Struct, frozen=True, tag="index.started"):
    """Event: indexing has begun; `total` servers will be asked."""

    total: int


class ServerIndexed(msgspec.Struct, frozen=True, tag="index.server"):
    """The outcome for one server: a progress event, and one entry of the reply `ServersIndexed`."""

    name: ServerName
    identity: ServerIdentity
    tools: int
    seconds: float
    error: str = ""
    """Why the server could not be asked; empty if it was."""
    done: int = 0
    """In an event: how many of the `total` servers have been asked so far."""
    total: int = 0


class ServersIndexed(msgspec.Struct, frozen=True, tag="finder.indexed"):
    """Reply to `IndexServers`: the outcome for each server."""

    servers: list[ServerIndexed]


class ToolsIndexed(msgspec.Struct, frozen=True, tag="index.tools"):
    """Event: the index of the search has changed.

    It has other tools, or its tools have got vectors.
    """

    tools: int
    servers: int
    has_vectors: bool = False
    """Whether the change is that the tools have got vectors, so that searches find them by meaning
    too."""


class LookUpTool(msgspec.Struct, frozen=True, tag="finder.look_up"):
    """Look up one tool by its wire name, or by its server and its own name."""

    name: str
    identity: ServerIdentity = ServerIdentity("")
    """The server; if it is set, `name` is the tool's own name."""
    rules: list[PolicyTable] = []
    keys: list[str] | None = None
    project: str = ""
    domain: str = ""


class ToolLookedUp(msgspec.Struct, frozen=True, tag="finder.looked_up"):
    """Reply to `LookUpTool`: the tool, or why it cannot be used."""

    hit: ToolHit | None = None
    restriction: ToolRestriction | None = msgspec.field(default=None, name="bar")
    near: list[WireName] = []
    """Similar names, if no tool has the requested name."""
    searched: int = 0
    """How many tools are known."""
    unlisted: int = 0
    """Servers whose tools have never been listed."""


class DescribeTools(msgspec.Struct, frozen=True, tag="finder.describe"):
    """Report how many tools a session may use, and which of them match `patterns`."""

    patterns: list[str] = []
    """`server:tool` with globs; `*` is everything."""
    rules: list[PolicyTable] = []
    waits: bool = False
    """Whether to wait, for a few seconds at most, until the catalog has been read once."""
    project: str = ""
    domain: str = ""
    whole_bytes: int = 0
    """Include every tool in the reply if all of them together add at most this many bytes to what a
    model reads; 0 for never."""


class EagerServer(msgspec.Struct, frozen=True):
    """A server whose definition says `lazy = false`."""

    spec: ServerSpec
    via: CapabilityId


class ToolsDescribed(msgspec.Struct, frozen=True, tag="finder.described"):
    """Reply to `DescribeTools`: how many tools a session may use, and which match the patterns."""

    is_known: bool
    """False before the catalog was read for the first time."""
    tools: int = 0
    size_bytes: int = 0
    """The size of all permitted definitions."""
    unlisted: int = 0
    matching: list[ToolHit] = []
    """The tools that match, sorted by pattern, then in the order in which the servers list them."""
    eager: list[EagerServer] = []
    model_bytes: int = 0
    """The size of those parts of the permitted definitions that a model reads: names, descriptions
    and input schemas."""
    skills: int = 0
    everything: list[ToolHit] = []
    """Every permitted tool, if `whole_bytes` allows it and every server has listed its tools."""


class ListDenied(msgspec.Struct, frozen=True, tag="finder.list_denied"):
    """List the capabilities that a policy denies completely. The reply waits for the catalog."""

    rules: list[PolicyTable]
    project: str = ""


class DeniedCapability(msgspec.Struct, frozen=True):
    """A capability that a policy denies completely."""

    id: CapabilityId
    reason: str


class DeniedListed(msgspec.Struct, frozen=True, tag="finder.denied"):
    """Reply to `ListDenied`: every capability that a policy denies completely."""

    is_known: bool
    """False if the catalog was not read in time."""
    capabilities: list[DeniedCapability] = []


class CurateTools(msgspec.Struct, frozen=True, tag="finder.curate"):
    """Rank the tools outside the active capabilities for a user's message; changes nothing."""

    text: str
    """The user's own words, shortened to a bounded length."""
    k: int = 15
    """The most tools to return."""
    scorer: Literal["hybrid", "keyword"] = "hybrid"
    active: list[CapabilityId] = []
    domain: str = ""
    pins: list[str] = []
    """The user's configured pins: `server:tool` with globs."""
    uses: list[Use] = []
    """Calls in the last day."""
    rules: list[PolicyTable] = []
    keys: list[str] | None = None
    project: str = ""
    asks_model: bool = True
    """Whether to rank by meaning as well, if the model is loaded."""


class CuratedTool(msgspec.Struct, frozen=True):
    """One of the best tools for a message, and how clearly it fits."""

    hit: ToolHit
    is_clear: bool
    """Whether the message clearly means this tool, by the rules of `core/tools/curation.py`."""
    is_pinned: bool = False


class ToolsCurated(msgspec.Struct, frozen=True, tag="finder.curated"):
    """Reply to `CurateTools`: the tools that fit the message best, best first."""

    tools: list[CuratedTool]


class RankTools(msgspec.Struct, frozen=True, tag="finder.rank"):
    """Rank the tools of the capabilities that a user's message means; changes nothing."""

    text: str
    """The user's own words, shortened to a bounded length."""
    capabilities: list[CapabilityId]
    most: int = 3
    """The most tools to return."""
    uses: list[Use] = []
    """Calls in the last day."""
    rules: list[PolicyTable] = []
    keys: list[str] | None = None
    project: str = ""
    domain: str = ""
    asks_model: bool = True
    """Whether to rank by meaning as well, if the model is loaded."""


class ToolsRanked(msgspec.Struct, frozen=True, tag="finder.ranked"):
    """Reply to `RankTools`: the requested capabilities' tools that fit the message, best first."""

    hits: list[ToolHit]
    total: int = 0
    """How many tools the capabilities have for this session."""
    is_known: bool = True
    """False if one of their servers has never been asked for its tools."""
    skills: "list[SkillHit]" = []
    """The skill that clearly fits the message, if one does."""
    is_spoken_of: bool = False
    """Whether the message clearly means one of the tools."""


class CountTools(msgspec.Struct, frozen=True, tag="finder.count"):
    """Count the tokens of a list of every tool that a session may use."""

    rules: list[PolicyTable] = []
    project: str = ""
    """The project whose own tools are counted as well."""


class ToolsCounted(msgspec.Struct, frozen=True, tag="finder.counted"):
    """Reply to `CountTools`: the tokens of all permitted definitions in the mode `pass-through`.

    In that mode a client lists every tool.
    """

    is_known: bool
    """False until the catalog has been read for the first time."""
    tools: int = 0
    tokens: int | None = None
    """None if they could not be counted."""
    unlisted: list[ServerName] = []
    """Servers that have never been asked for their tools."""


class ListGranted(msgspec.Struct, frozen=True, tag="finder.list_granted"):
    """List the tools that each of the requested capabilities would bring to a session."""

    capabilities: list[CapabilityId]
    rules: list[PolicyTable] = []
    keys: list[str] | None = None
    """Environment keys for which the session has values; None to ignore missing keys."""
    project: str = ""
    domain: str = ""


class Granted(msgspec.Struct, frozen=True):
    """The tools that one capability would bring to a session."""

    id: CapabilityId
    tools: list[ToolHit]
    is_known: bool
    """False if one of its servers has never been asked for its tools."""


class GrantedListed(msgspec.Struct, frozen=True, tag="finder.granted"):
    """Reply to `ListGranted`: the capabilities with their tools, in the order of the request."""

    capabilities: list[Granted]


class DescribeCapabilities(msgspec.Struct, frozen=True, tag="finder.capabilities"):
    """Report the capabilities that sessions of a project can switch on, and their tools."""

    project: str = ""
    waits: bool = False
    """Whether to wait, for a few seconds at most, until the catalog has been read once."""
    counts: bool = False
    """Whether to count the tokens of each one's tools."""


class CapabilityTools(msgspec.Struct, frozen=True):
    """One capability, and those tools of its servers that its filter lets through."""

    capability: CapabilitySpec
    tools: list[WireName] | None = None
    """None if its servers have never been asked."""
    tokens: int | None = None
    """The tokens of the tools' definitions; None if they were not counted."""


class CapabilitiesDescribed(msgspec.Struct, frozen=True, tag="finder.capabilities_described"):
    """Reply to `DescribeCapabilities`: each capability once.

    If two taps have a capability of the same name, the first tap's is listed.
    """

    is_known: bool
    """False until the catalog has been read for the first time."""
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
