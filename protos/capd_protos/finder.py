"""Messages of the finder: which tools there are, and which of them fit."""

import msgspec

from capd_protos.types import (
    CapabilityId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    SkillSpec,
    ToolName,
    WireName,
)


class ToolBar(msgspec.Struct, frozen=True):
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
    barred: dict[WireName, ToolBar] = {}
    rules: list[PolicyTable] = []
    """The policy of the session that asks."""
    keys: list[str] | None = None
    """Environment keys that it has values for; None where that does not matter."""
    project: str = ""
    """The project of the session, whose own tools count as well."""


class ToolHit(msgspec.Struct, frozen=True):
    """One tool that fits."""

    wire_name: WireName
    name: ToolName
    server: ServerName
    identity: ServerIdentity
    definition: bytes
    """As its server wrote it."""
    score: float = 0.0
    spec: ServerSpec | None = None
    via: CapabilityId | None = None
    """A capability that grants it and whose secrets are there, if one's are."""


class ToolsFound(msgspec.Struct, frozen=True, tag="finder.found"):
    """The hits, best first or as selected; `text` says what is missing and why."""

    hits: list[ToolHit]
    text: str
    searched: int
    mode: str
    """`fused`, `lexical` where the model is not ready, or `selected`."""
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


class ToolLookedUp(msgspec.Struct, frozen=True, tag="finder.looked_up"):
    """The tool, or why it is not to be had."""

    hit: ToolHit | None = None
    bar: ToolBar | None = None
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


Request = FindTools | IndexServers | FindSkills | LookUpTool | DescribeTools
Reply = ToolsFound | FinderRefused | ServersIndexed | SkillsFound | ToolLookedUp | ToolsDescribed
Event = ServerIndexed | ToolsIndexed
