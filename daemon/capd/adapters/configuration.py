"""The user's configuration: `config.toml`, then `CAPD_*`, merged key by key.

A layer changes only the keys that it contains. A file that cannot be used changes nothing and is
reported, because a daemon with an old setting is more useful than none (docs/design/operation.md).
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
    """Seconds after which a call is given up, whatever progress it reports; 0 for never."""
    definitions: Literal["notify", "quarantine"] = "notify"
    """What happens to a tool whose definition has changed (docs/definitions.md)."""
    most_processes: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = MOST_PROCESSES
    """How many processes one server's tree may have; 0 for any number."""
    most_memory_mib: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How much memory one server's tree may take. 0: all of it. Unset: half of the machine's, at
    most 6 GiB, and half of that while the tree grows by more than 64 MiB a second."""
    may_connect: tuple[str, ...] = ()
    """Globs of servers whose own processes may use capd as clients do."""


class LoginsTable(msgspec.Struct, frozen=True):
    """`[logins]`: how capd logs in at servers by URL (docs/logins.md)."""

    client_metadata_url: Annotated[
        str, msgspec.Meta(pattern=r"^(https://[^\s/?#@]+/[^\s?#]+)?$", max_length=2048)
    ] = ""
    """Where you publish the metadata document of capd as an OAuth client. Authorization servers
    that take such documents know capd by this address; at others it registers itself."""


class SandboxServerTable(msgspec.Struct, frozen=True):
    """`[sandbox.servers."GLOB"]`: settings for single servers, which override their definitions."""

    level: Level | None = None
    """The level of these servers, whatever their definitions ask for."""
    masks: tuple[MaskName, ...] | None = None
    """What is hidden from these servers, in place of `sandbox.masks`. With `[]`, capd's folders are
    shown, too."""
    network: bool | None = None
    """Whether these servers may use the network at `strict`. Unset: as their definitions ask."""


class SandboxTable(msgspec.Struct, frozen=True):
    """`[sandbox]`: how much of the machine servers see (docs/sandbox.md)."""

    level: Level = "guard"
    """The least confinement of servers. `off`: none. `guard`: capd's folders are hidden, and
    servers are kept apart, if the machine can do that. `strict`: no home and no network."""
    masks: tuple[MaskName, ...] = ()
    """What else is hidden from servers at `guard`, by name; needs bubblewrap."""
    project: Level = "strict"
    """The same as `level`, for servers that a project's files define."""
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

    mode: Literal["auto", "dynamic", "stable", "pass-through"] = "auto"
    """How clients see what is on; `auto` decides by what each client can do."""
    pins: tuple[str, ...] = ()
    """Tools that are always listed: `server:tool` or names as clients see them, with globs."""
    pass_through: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """The largest share of a client's context for the tools in pass-through mode."""
    check_arguments: bool = True
    """Whether a call is refused at once if its arguments do not fit its tool's schema."""
    unchecked_servers: tuple[str, ...] = ()
    """Globs of servers whose calls are passed on without that check."""
    notices: bool = True
    """Whether the user is shown a short line in the editor when something comes on."""


class CurationTable(msgspec.Struct, frozen=True):
    """`[curation]`: which single tools each turn adds (docs/surface.md, "Curation")."""

    kind: Literal["top-k", "off"] = "top-k"
    """`off` selects no tools: everything is listed that the client's list has room for."""
    k: Annotated[int, msgspec.Meta(ge=0, le=256)] = 15
    """How many of the best tools are considered."""
    new_per_turn: Annotated[int, msgspec.Meta(ge=0, le=24)] = 3
    """How many tools one turn may add to a list, or suggest."""
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
    """Where the embedding model runs: in its own process, which frees all memory when idle, or in
    the daemon's."""
    idle: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 900.0
    """Seconds without a text after which the embedding model is unloaded."""
    keep: bool = True
    """Whether the embedding model stays loaded, if memory allows, while a client with a hook is
    connected."""


class TapsTable(msgspec.Struct, frozen=True):
    """`[taps]`: whether changes of taps are noticed (docs/taps.md)."""

    watch: bool = True
    """Whether changes of taps, overlays and their list are loaded at once."""


class RegistryTable(msgspec.Struct, frozen=True):
    """`[registry]`: where `capd find` and `capd add` look (docs/find.md)."""

    urls: tuple[str, ...] = ("https://registry.modelcontextprotocol.io",)
    """The MCP registries by URL, without `/v0.1`. If several registries
    have a server, the entry of the first one counts."""


class RoutingTable(msgspec.Struct, frozen=True):
    """`[routing]`: whether messages are routed, and what else is considered (docs/routing.md)."""

    enabled: bool = True
    """Whether a user's message switches capabilities on automatically."""
    files: bool = True
    """Whether names in the project's root and key names in its `.env` count."""
    session: bool = False
    """Whether capabilities that were on earlier in the session are favoured."""
    project: bool = False
    """Whether capabilities that were on earlier in sessions of the project are favoured."""
    learn: bool = True
    """Whether what you switch on and off, and what is then called, moves later decisions."""
    scorer: Literal["evidence", "trigger_mean"] = "evidence"
    """How messages are compared with capabilities. `trigger_mean` is an older, simpler rule
    (docs/routing.md)."""

    @property
    def priors(self) -> tuple[str, ...]:
        """Return the names of the facts, besides the message, that routing considers."""
        names = ("files", "session", "project")
        return tuple(name for name in names if getattr(self, name))


class HttpTable(msgspec.Struct, frozen=True):
    """`[listen_http]`: the front for clients that speak only HTTP (docs/http.md)."""

    enabled: bool = False
    """Whether the HTTP front runs."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 8377
    """The port on 127.0.0.1. The address cannot be changed."""
    names: Literal["prefixed", "bare"] = "prefixed"
    """`bare`: tools and prompts have their servers' own names, and capd's own tools are left out.
    """
    capabilities: tuple[str, ...] = ()
    """What is on in its sessions from the start, as `name` or `tap/name`."""
    project: str = ""
    """The project of its sessions, because HTTP requests name none."""
    poll_after: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """Seconds after which the stream of an answer is closed, once, so that the client returns for
    the rest; 0 keeps it open."""


class DaemonTable(msgspec.Struct, frozen=True):
    """`[daemon]`: how the daemon stops."""

    drain: Annotated[float, msgspec.Meta(ge=0, le=60)] = 8.0
    """Seconds for calls in progress to end when the daemon is asked to stop."""


class LedgerTable(msgspec.Struct, frozen=True):
    """`[ledger]`: which past events are recorded (docs/records.md)."""

    enabled: bool = True
    """Whether events are recorded."""
    days: Annotated[float, msgspec.Meta(ge=0.01, le=3650)] = 90.0
    """Days after which an entry is removed."""
    size_mib: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 128
    """The size of the file above which the oldest entries are removed."""


Characters = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class ResultsTable(msgspec.Struct, frozen=True):
    """`[results]`: when a tool's result is too long to be passed on whole (docs/results.md)."""

    limit: Characters = LIMIT
    """The limit in characters; 0 passes all results on unchanged."""
    media: Characters = MEDIA_LIMIT
    """The limit for the base64 of a result's images, audio and blobs."""
    servers: dict[str, Characters] = {}
    """Limits for single servers, by name."""
    tools: dict[str, Characters] = {}
    """Limits for single tools, by `server:tool`."""
    store_mib: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 1024
    """How much disk space stored results may take."""


class ScriptsTable(msgspec.Struct, frozen=True):
    """`[scripts]`: many calls in one request (docs/scripts.md)."""

    enabled: bool = True
    """Whether models may run scripts."""
    listed: bool = False
    """Whether `script_run` is on every list of tools; else a search names it."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    """How many processes compute scripts at once."""


class MemoriesTable(msgspec.Struct, frozen=True):
    """`[memories]`: how much a model gets from memories (docs/memories.md)."""

    tokens: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = DEFAULT_BUDGET
    """The tokens that memories may take in one conversation. 0 delivers none; known mistakes are
    still refused."""


class BootstrapTable(msgspec.Struct, frozen=True):
    """`[bootstrap]`: files of a project that models get at the start (docs/memories.md)."""

    enabled: bool = False
    """Whether the project's files that `files` lists are delivered at the start of a conversation,
    in every project. `[projects."/FOLDER"] bootstrap` sets it for one."""
    files: tuple[str, ...] = FILES
    """The files, by their paths in the project, in the order of delivery."""
    notes: str = NOTES
    """The daily notes of today and yesterday, with `{date}`; empty for none."""
    most_characters: Annotated[int, msgspec.Meta(ge=0, le=100_000_000)] = MOST_CHARACTERS
    """A total above this is reported in the log."""
    hook_characters: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = HOOK_CHARACTERS
    """How many characters a prompt hook delivers; the rest is in the prompt `bootstrap`."""

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
    """The domain; capabilities of other domains are left out (docs/routing.md)."""
    routing: bool | None = None
    """Whether messages switch capabilities on automatically. Unset: as `[routing]` says."""
    bootstrap: bool | None = None
    """Whether the project's own files are delivered at the start. Unset: as `[bootstrap]` says."""


class ProfileTable(msgspec.Struct, frozen=True):
    """`[profiles.NAME]`: rules and accounts for one kind of work (docs/profiles.md)."""

    folders: tuple[str, ...] = ()
    """It is chosen in these folders and their subfolders. Each kind of condition that is set has
    to fit."""
    remotes: tuple[str, ...] = ()
    """It is chosen in git checkouts with such a remote, as globs of `host/path`."""
    branches: tuple[str, ...] = ()
    """It is chosen on such git branches, as globs."""
    clients: tuple[str, ...] = ()
    """It is chosen for such clients, as globs of their names."""
    on: tuple[str, ...] = ()
    """Capabilities that are switched on with it."""
    off: tuple[str, ...] = ()
    """Capabilities that are off with it, whoever asks for them: `name` or `tap/name`."""
    pins: tuple[str, ...] = ()
    """More tools that are always listed, in sessions that begin with it."""
    secrets: Annotated[str, msgspec.Meta(pattern="^([A-Za-z][A-Za-z0-9_]*)?$", max_length=64)] = ""
    """The namespace of its secrets: with `work`, `WORK__KEY` counts before `KEY`."""
    policy: RulesTable = RulesTable()
    """More rules; they narrow yours."""
    sandbox: Level | None = None
    """The least level at which servers run for it: `guard` or `strict`. It never lowers one."""


class BridgeTable(RulesTable, frozen=True):
    """`[bridges.NAME]`: what sessions over one bridge may use (docs/bridges.md).

    `allow`, `deny` and `ask` narrow your own policy. Without `allow` and `capabilities` nothing may
    be used.
    """

    capabilities: tuple[str, ...] = ()
    """Globs of the capabilities that may be used, as `name` or `tap/name`. Without any, those that
    have a tool that `allow` matches."""
    profile: str = ""
    """The profile of its sessions, by name. Empty: none, whatever chooses profiles elsewhere."""
    secrets: bool = False
    """Whether servers that run over there (`where = "project"`) get the secrets that their
    definitions name. Then every program of the same user over there can read them."""
    starts: tuple[str, ...] = ()
    """Globs of the servers that may run over there (`where = "project"`), as `name` or `tap/name`.
    Servers that you defined yourself (`capd add`) need no glob here."""


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

    A value in a later layer counts before one in an earlier layer, and a variable before both. The
    second result has the origin of each key, the third a line for each unusable variable.
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

    The second result is a line for each of them that could not be used.
    """
    own = LastGoodFile(file, lambda text: parse_layer(text, Configuration, str(file)))
    own.load()
    configuration, _, problems = effective([own.layer] if own.layer else [], environment)
    return configuration, [*([own.problem] if own.problem else []), *problems]
