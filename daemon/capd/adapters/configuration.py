"""The user's configuration: `config.toml`, then `CAPD_*`, merged key by key.

The file and the variables change only the keys that they set. A file that cannot be used changes
nothing and is reported, because a daemon with an old setting is more useful than no daemon
(docs/design/operation.md).

The text under a key is its documentation: `capd config schema` and the docs are generated from it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from capd.adapters.file_texts import expanded
from capd.adapters.last_good_file import LastGoodFile
from capd.core.memories.bootstrap import (
    FILES,
    HOOK_CHARACTERS,
    MOST_CHARACTERS,
    NOTES,
    BootstrapRules,
)
from capd.core.memories.delivery import DEFAULT_BUDGET
from capd.core.results.limits import LIMIT, MEDIA_LIMIT
from capd.core.servers.sandbox import Level, MaskName
from capd.core.servers.sandbox_rules import SandboxRule, SandboxRules
from capd.core.servers.tree_limits import MOST_PROCESSES
from capd.core.sessions.approval import ASK_TIMEOUT
from capd.core.sessions.bridges import BridgeRules
from capd.core.sessions.client_traits import ModeSetting
from capd.core.sessions.domains import Domains
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.profiles import Profile
from capd.core.sessions.routing_switch import RoutingSwitch
from capd.core.settings.layers import (
    Layer,
    Merged,
    UnusableError,
    merge_layers,
    parse_layer,
    with_variable,
)

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class ServersTable(msgspec.Struct, frozen=True):
    """`[servers]`: the lifetime and the bounds of servers (docs/servers.md)."""

    linger: Seconds = 30.0
    """Seconds for which a server that no session uses any more is kept."""
    longest_call: Seconds = 0.0
    """Seconds after which a call is ended, even if its server reports progress; 0 for never."""
    definitions: Literal["notify", "quarantine"] = "notify"
    """`quarantine` withholds each tool with a new or changed definition until you accept the
    definition. `notify` reports all of these tools, and withholds few (docs/definitions.md)."""
    most_processes: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = MOST_PROCESSES
    """The most processes of one server, child processes included; 0 for any number."""
    most_memory_mib: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The most memory of one server in MiB, child processes included; 0 for no limit. Unset: half
    of the machine's memory, at most 6 GiB; this default is halved while the server grows by more
    than 64 MiB a second."""
    may_connect: tuple[str, ...] = ()
    """Globs of servers whose processes may connect to capd as clients."""


class LoginsTable(msgspec.Struct, frozen=True):
    """`[logins]`: how capd logs in at servers by URL (docs/logins.md)."""

    client_metadata_url: Annotated[
        str, msgspec.Meta(pattern=r"^(https://[^\s/?#@]+/[^\s?#]+)?$", max_length=2048)
    ] = ""
    """The URL at which you publish a client ID metadata document (OAuth) for capd. Authorization
    servers that support such documents identify capd by this URL; with others, capd registers
    itself."""


class SandboxServerTable(msgspec.Struct, frozen=True):
    """`[sandbox.servers."GLOB"]`: settings for single servers, which override their definitions."""

    level: Level | None = None
    """The level of these servers, whatever their definitions ask for: `off`, `guard` or `strict`.
    """
    masks: tuple[MaskName, ...] | None = None
    """Which places are hidden from these servers, instead of those in `sandbox.masks`. With `[]`,
    they see capd's folders, too."""
    network: bool | None = None
    """Whether these servers may use the network at `strict`. Unset: as their definitions ask."""


class SandboxTable(msgspec.Struct, frozen=True):
    """`[sandbox]`: how much of the machine servers see (docs/sandbox.md)."""

    level: Level = "guard"
    """The weakest confinement of servers. `off`: none. `guard`: capd's folders are hidden, and
    servers are kept apart, if the machine can do that. `strict`: no home and no network."""
    masks: tuple[MaskName, ...] = ()
    """Which places are hidden from servers at `guard`, besides capd's folders; needs bubblewrap."""
    project: Level = "strict"
    """The weakest confinement of servers that a project's files define, as in `sandbox.level`."""
    servers: dict[str, SandboxServerTable] = {}
    """The settings of single servers, by globs of their names; the first that matches counts."""

    def rules(self) -> SandboxRules:
        """Return these settings in the form that decides on the sandbox of each server."""
        servers = {
            glob: SandboxRule(table.level, table.masks, table.network)
            for glob, table in self.servers.items()
        }
        return SandboxRules(self.level, self.masks, self.project, servers)


class SessionsTable(msgspec.Struct, frozen=True):
    """`[sessions]`: how much may be on at once in a session."""

    capabilities: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """How many capabilities with tools may be on at once."""
    tools: Annotated[int, msgspec.Meta(ge=1, le=256)] = 24
    """How many single tools may be on at once."""


class SurfaceTable(msgspec.Struct, frozen=True):
    """`[surface]`: what a client lists of the tools that are on (docs/surface.md)."""

    mode: ModeSetting = "auto"
    """Which tools clients list (docs/surface.md). `auto` chooses a mode for each session."""
    pins: tuple[str, ...] = ()
    """Tools that are always listed: `server:tool` or names as clients see them, with globs."""
    pass_through: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """If `mode` is `pass-through`: the largest share of a model's context window that tools may
    take."""
    check_arguments: bool = True
    """Whether a call is refused at once if its arguments do not fit its tool's schema."""
    unchecked_servers: tuple[str, ...] = ()
    """Globs of servers whose calls `check_arguments` leaves unchecked."""
    notices: bool = True
    """Whether the editor shows its user a short line when a message switches something on."""


class CurationTable(msgspec.Struct, frozen=True):
    """`[curation]`: which single tools each turn adds (docs/surface.md, "Curation")."""

    kind: Literal["top-k", "off"] = "top-k"
    """`top-k` adds the tools that fit a message best. `off` adds none: all permitted tools are
    listed, up to the client's limit."""
    k: Annotated[int, msgspec.Meta(ge=0, le=256)] = 15
    """How many of the best-ranked tools are considered; with 0 none is added."""
    new_per_turn: Annotated[int, msgspec.Meta(ge=0, le=24)] = 3
    """How many tools one message may add to the list, or suggest."""
    scorer: Literal["hybrid", "keyword"] = "hybrid"
    """`hybrid`: words and meaning. `keyword`: an older rule, by words alone."""


class RulesTable(msgspec.Struct, frozen=True):
    """Patterns that allow, deny or ask, as `server:tool` or `tool`, with globs."""

    allow: tuple[str, ...] = ()
    """If this list has patterns, whatever matches none of them is denied."""
    deny: tuple[str, ...] = ()
    """Whatever matches any of these patterns is denied."""
    ask: tuple[str, ...] = ()
    """A call of a tool that matches any of these patterns waits until you approve it
    (docs/approval.md). `*:destructive` matches every tool that may destroy something."""


class PolicyTable(RulesTable, frozen=True):
    """`[policy]`: for all sessions, by client, and by project folder."""

    clients: dict[str, RulesTable] = {}
    """Rules for single clients, by globs of their names."""
    projects: dict[str, RulesTable] = {}
    """Rules for single projects, by folder; subfolders are included."""
    ask_timeout: Annotated[float, msgspec.Meta(ge=1, le=600)] = ASK_TIMEOUT
    """Seconds for which a call waits for your approval. Then it is refused."""


class EmbedderTable(msgspec.Struct, frozen=True):
    """`[embedder]`: where the embedding model runs, and for how long it stays loaded."""

    placement: Literal["process", "daemon"] = "process"
    """Where the embedding model runs. `process`: in a process of its own, which frees all its
    memory when idle. `daemon`: in the daemon."""
    idle: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 900.0
    """The embedding model is unloaded after this many seconds without use."""
    keep: bool = True
    """Whether the embedding model stays loaded, if memory allows, while a client with a hook is
    connected."""


class TapsTable(msgspec.Struct, frozen=True):
    """`[taps]`: whether changes of taps are noticed (docs/taps.md)."""

    watch: bool = True
    """Whether changes of taps, overlays and `taps.toml` are loaded at once."""


class RegistryTable(msgspec.Struct, frozen=True):
    """`[registry]`: where `capd find` and `capd add` look (docs/find.md)."""

    urls: tuple[str, ...] = ("https://registry.modelcontextprotocol.io",)
    """The URLs of MCP registries, without `/v0.1`. If several registries have a server, the entry
    of the first one counts."""


class RoutingTable(msgspec.Struct, frozen=True):
    """`[routing]`: whether messages are routed, and what else is considered (docs/routing.md)."""

    enabled: bool = True
    """Whether a user's message switches capabilities on automatically."""
    files: bool = True
    """Whether routing considers the names in the project's root folder, and the names of the keys
    in its `.env`."""
    session: bool = False
    """Whether capabilities that were on earlier in the session are favoured."""
    project: bool = False
    """Whether capabilities that were on earlier in sessions of the project are favoured."""
    learn: bool = True
    """Whether routing learns from what you switch on and off, and from which tools are called."""
    scorer: Literal["evidence", "trigger_mean"] = "evidence"
    """How messages are compared with capabilities. `trigger_mean` is an older, simpler rule
    (docs/routing.md)."""

    @property
    def priors(self) -> tuple[str, ...]:
        """The names of the facts, besides the message, that routing considers."""
        names = ("files", "session", "project")
        return tuple(name for name in names if getattr(self, name))


class HttpTable(msgspec.Struct, frozen=True):
    """`[listen_http]`: the front for clients that speak only HTTP (docs/http.md)."""

    enabled: bool = False
    """Whether capd listens for clients over HTTP (docs/http.md)."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 8377
    """The port on 127.0.0.1. The address cannot be changed."""
    names: Literal["prefixed", "bare"] = "prefixed"
    """`prefixed`: names of tools and prompts begin with their server's name. `bare`: they have no
    prefix, and capd's own tools are left out."""
    capabilities: tuple[str, ...] = ()
    """Capabilities that are on in sessions over HTTP from the start, as `name` or `tap/name`."""
    project: str = ""
    """The project folder of sessions over HTTP, because HTTP requests name none."""
    poll_after: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """Seconds after which capd closes the stream of an unfinished answer once, so that the client
    requests the rest; 0 for never."""


class DaemonTable(msgspec.Struct, frozen=True):
    """`[daemon]`: how the daemon stops."""

    drain: Annotated[float, msgspec.Meta(ge=0, le=60)] = 8.0
    """Seconds for which running calls may go on after the daemon was asked to stop."""


class LedgerTable(msgspec.Struct, frozen=True):
    """`[ledger]`: which past events are recorded (docs/records.md)."""

    enabled: bool = True
    """Whether calls, routing decisions and activations are recorded (docs/records.md)."""
    days: Annotated[float, msgspec.Meta(ge=0.01, le=3650)] = 90.0
    """Days after which an entry is removed."""
    size_mib: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 128
    """The size of the ledger in MiB above which the oldest entries are removed."""


Characters = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class ResultsTable(msgspec.Struct, frozen=True):
    """`[results]`: when a tool's result is too long to be passed on whole (docs/results.md)."""

    limit: Characters = LIMIT
    """A result with more characters than this is shortened, and stored whole (docs/results.md). 0
    for no limit."""
    media: Characters = MEDIA_LIMIT
    """How many characters of base64 the images, audio and blobs of a result may have together.
    Links replace those that do not fit."""
    servers: dict[str, Characters] = {}
    """Values of `limit` for single servers, by name."""
    tools: dict[str, Characters] = {}
    """Values of `limit` for single tools, by `server:tool`."""
    store_mib: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 1024
    """How much disk space stored results may take, in MiB."""


class ScriptsTable(msgspec.Struct, frozen=True):
    """`[scripts]`: many calls in one request (docs/scripts.md)."""

    enabled: bool = True
    """Whether models may run scripts."""
    listed: bool = False
    """Whether the tool `script_run` is listed; if not, models call it through `tool_call`."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    """How many processes compute scripts at once."""


class MemoriesTable(msgspec.Struct, frozen=True):
    """`[memories]`: how much a model gets from memories (docs/memories.md)."""

    tokens: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = DEFAULT_BUDGET
    """The most tokens of memories that one conversation gets. With 0 none are delivered, but calls
    that repeat a known mistake are still refused."""


class BootstrapTable(msgspec.Struct, frozen=True):
    """`[bootstrap]`: files of a project that models get at the start (docs/memories.md)."""

    enabled: bool = False
    """Whether, at the start of a conversation, models get the project's files that `files` lists.
    This is for every project; `[projects."/FOLDER"] bootstrap` sets it for one."""
    files: tuple[str, ...] = FILES
    """The bootstrap files, by their paths in the project, in the order of delivery."""
    notes: str = NOTES
    """The path of daily notes; those of today and yesterday are delivered as well. `{date}` stands
    for the day. Empty for none."""
    most_characters: Annotated[int, msgspec.Meta(ge=0, le=100_000_000)] = MOST_CHARACTERS
    """If the bootstrap files together have more characters than this, the log has a warning."""
    hook_characters: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = HOOK_CHARACTERS
    """The most characters of bootstrap files that a prompt hook delivers; the MCP prompt
    `bootstrap` has all."""

    def rules(self) -> BootstrapRules:
        """Return these settings in the form by which bootstrap files are chosen and shortened."""
        return BootstrapRules(
            files=self.files,
            notes=self.notes,
            most_characters=self.most_characters,
            hook_characters=self.hook_characters,
        )


class PlaceTable(msgspec.Struct, frozen=True):
    """`[clients.NAME]` and `[projects."/FOLDER"]`.

    Settings for the sessions of one client or project.
    """

    domain: str = ""
    """The domain of the sessions of this client or project: capabilities of other domains are left
    out (docs/routing.md)."""
    routing: bool | None = None
    """Whether messages switch capabilities on automatically. Unset: as `[routing]` says."""
    bootstrap: bool | None = None
    """Whether models get the project's bootstrap files. Unset: as `[bootstrap]` says."""


class ProfileTable(msgspec.Struct, frozen=True):
    """`[profiles.NAME]`: rules and accounts for one kind of work (docs/profiles.md)."""

    folders: tuple[str, ...] = ()
    """The profile is chosen in these folders and their subfolders. If a profile has several kinds
    of conditions (folders, remotes, branches, clients), each kind has to fit."""
    remotes: tuple[str, ...] = ()
    """The profile is chosen in git checkouts with one of these remotes (globs of `host/path`)."""
    branches: tuple[str, ...] = ()
    """The profile is chosen on these git branches (globs)."""
    clients: tuple[str, ...] = ()
    """The profile is chosen for these clients (globs of their names)."""
    on: tuple[str, ...] = ()
    """Capabilities that are switched on in sessions that get the profile."""
    off: tuple[str, ...] = ()
    """Capabilities that nobody can switch on in sessions with the profile, as `name` or
    `tap/name`."""
    pins: tuple[str, ...] = ()
    """Further tools that are always listed, in sessions that begin with the profile."""
    secrets: Annotated[str, msgspec.Meta(pattern="^([A-Za-z][A-Za-z0-9_]*)?$", max_length=64)] = ""
    """The namespace of the profile's secrets: with `work`, `WORK__KEY` is used instead of `KEY` if
    it has a value."""
    policy: RulesTable = RulesTable()
    """More rules; they narrow yours."""
    sandbox: Level | None = None
    """The weakest sandbox level at which servers run for the profile's sessions: `guard` or
    `strict`. It never lowers a level."""


class BridgeTable(RulesTable, frozen=True):
    """`[bridges.NAME]`: what sessions over one bridge may use (docs/bridges.md).

    `allow`, `deny` and `ask` narrow your own policy. Without `allow` and `capabilities` nothing may
    be used.
    """

    capabilities: tuple[str, ...] = ()
    """Globs of the capabilities that may be used over the bridge, as `name` or `tap/name`. If the
    list is empty: those that have a tool that `allow` matches."""
    profile: str = ""
    """The name of the profile of sessions over the bridge. Empty for none: the conditions of
    profiles do not count for these sessions."""
    secrets: bool = False
    """Whether servers that run on the far side (`where = "project"`) get the secrets that their
    definitions name. If so, every program of the bridge's user there can read them."""
    starts: tuple[str, ...] = ()
    """Globs of the servers that may run on the far side (`where = "project"`), as `name` or
    `tap/name`. Servers that you defined yourself (`capd add`) need no glob here."""


class Configuration(msgspec.Struct, frozen=True):
    """All settings, by table."""

    servers: ServersTable = ServersTable()
    sessions: SessionsTable = SessionsTable()
    embedder: EmbedderTable = EmbedderTable()
    listen_http: HttpTable = HttpTable()
    daemon: DaemonTable = DaemonTable()
    taps: TapsTable = TapsTable()
    results: ResultsTable = ResultsTable()
    surface: SurfaceTable = SurfaceTable()
    policy: PolicyTable = PolicyTable()
    routing: RoutingTable = RoutingTable()
    curation: CurationTable = CurationTable()
    clients: dict[str, PlaceTable] = {}
    projects: dict[str, PlaceTable] = {}
    profiles: dict[str, ProfileTable] = {}
    bridges: dict[str, BridgeTable] = {}
    logins: LoginsTable = LoginsTable()
    ledger: LedgerTable = LedgerTable()
    sandbox: SandboxTable = SandboxTable()
    memories: MemoriesTable = MemoriesTable()
    bootstrap: BootstrapTable = BootstrapTable()
    scripts: ScriptsTable = ScriptsTable()
    registry: RegistryTable = RegistryTable()

    def domains(self) -> Domains:
        """Return the domains that the configuration gives to sessions, by client and by project."""
        projects = {str(expanded(folder)): table.domain for folder, table in self.projects.items()}
        return Domains({name: table.domain for name, table in self.clients.items()}, projects)

    def sessions_profiles(self) -> dict[str, Profile]:
        """Return the profiles by name, in the order of the file."""
        return {
            name: Profile(
                name,
                tuple(str(expanded(folder)) for folder in table.folders),
                table.remotes,
                table.branches,
                table.clients,
                table.on,
                table.pins,
                table.secrets,
                PolicyRules(
                    f"[profiles.{name}.policy]",
                    table.policy.allow,
                    table.policy.deny,
                    table.policy.ask,
                ),
                table.off,
                table.sandbox or "off",
            )
            for name, table in self.profiles.items()
        }

    def bridge_rules(self) -> dict[str, BridgeRules]:
        """Return the rules of each bridge, by its name."""
        return {
            name: BridgeRules(
                PolicyRules(
                    f"[bridges.{name}]",
                    table.allow,
                    table.deny,
                    table.ask,
                    table.capabilities or None,
                ),
                table.profile,
                table.secrets,
                table.starts,
            )
            for name, table in self.bridges.items()
        }

    def routing_switch(self) -> RoutingSwitch:
        """Return the rules that say in which sessions a user's messages are routed."""
        clients = {name: t.routing for name, t in self.clients.items() if t.routing is not None}
        projects = {
            str(expanded(folder)): t.routing
            for folder, t in self.projects.items()
            if t.routing is not None
        }
        return RoutingSwitch(self.routing.enabled, clients, projects)

    def bootstrap_switch(self) -> RoutingSwitch:
        """Return the rules that say in which sessions bootstrap files are delivered."""
        clients = {name: t.bootstrap for name, t in self.clients.items() if t.bootstrap is not None}
        projects = {
            str(expanded(folder)): t.bootstrap
            for folder, t in self.projects.items()
            if t.bootstrap is not None
        }
        return RoutingSwitch(self.bootstrap.enabled, clients, projects)


# Each variable with the key that it sets.
VARIABLES = {
    "CAPD_DRAIN": ("daemon", "drain"),
    "CAPD_LINGER": ("servers", "linger"),
    "CAPD_LONGEST_CALL": ("servers", "longest_call"),
    "CAPD_DEFINITIONS": ("servers", "definitions"),
    "CAPD_CAPABILITIES": ("sessions", "capabilities"),
    "CAPD_TOOLS": ("sessions", "tools"),
    "CAPD_SURFACE": ("surface", "mode"),
    "CAPD_CURATION": ("curation", "kind"),
    "CAPD_CURATION_K": ("curation", "k"),
    "CAPD_CURATION_SCORER": ("curation", "scorer"),
    "CAPD_EMBEDDER": ("embedder", "placement"),
    "CAPD_EMBEDDER_IDLE": ("embedder", "idle"),
    "CAPD_WATCH": ("taps", "watch"),
    "CAPD_RESULT_LIMIT": ("results", "limit"),
    "CAPD_ROUTING": ("routing", "enabled"),
    "CAPD_PRIOR_FILES": ("routing", "files"),
    "CAPD_PRIOR_SESSION": ("routing", "session"),
    "CAPD_PRIOR_PROJECT": ("routing", "project"),
    "CAPD_LEARN": ("routing", "learn"),
}


def effective(
    layers: Sequence[Layer], environment: Mapping[str, str]
) -> tuple[Configuration, Merged, list[str]]:
    """Return the configuration that the `layers` and the variables `environment` give together.

    A later layer overrides an earlier one, and a variable overrides every layer. The second result
    has the origin of each key, the third a line for each unusable variable.
    """
    used = list(layers)
    problems: list[str] = []
    for variable, path in VARIABLES.items():
        if variable not in environment:
            continue
        below = merge_layers(used).tables
        try:
            layer = with_variable(below, Configuration, path, environment[variable], variable)
        except UnusableError as error:
            problems.append(f"{variable} is not used: {error}")
        else:
            used.append(layer)
    whole = merge_layers(used)
    return msgspec.convert(whole.tables, Configuration, strict=False), whole, problems


def load_configuration(
    file: Path, environment: Mapping[str, str]
) -> tuple[Configuration, list[str]]:
    """Return the configuration that `file` and `environment` give together.

    The second result has a line for the file and for each variable that could not be used.
    """
    own = LastGoodFile(file, lambda text: parse_layer(text, Configuration, str(file)))
    own.load()
    configuration, _, problems = effective([own.layer] if own.layer else [], environment)
    return configuration, [*([own.problem] if own.problem else []), *problems]
