"""The user's configuration: `config.toml`, then `CAPD_*`, merged key by key.

A key that is absent from a nearer layer resets nothing. A file that cannot be used leaves what was
before, and says so: a daemon with a wrong setting is of more use than none
(docs/design/operation.md). The text under a key is its documentation: `capd config schema` and the
docs are made of it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from capd.adapters.file_texts import expanded
from capd.adapters.good_file import GoodFile
from capd.core.memories.bootstrap import (
    FILES,
    HOOK_CHARACTERS,
    MOST_CHARACTERS,
    NOTES,
    BootstrapRules,
)
from capd.core.memories.telling import DEFAULT_BUDGET
from capd.core.results.limits import LIMIT, MEDIA_LIMIT
from capd.core.servers.sandbox import Level, MaskName
from capd.core.servers.sandbox_rules import SandboxRule, SandboxRules
from capd.core.servers.tree_limits import MOST_PROCESSES
from capd.core.sessions.domains import Domains
from capd.core.sessions.routing_switch import RoutingSwitch
from capd.core.settings.layers import Layer, Merged, UnusableError, merged, parsed, with_variable

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class ServersTable(msgspec.Struct, frozen=True):
    """`[servers]`."""

    linger: Seconds = 30.0
    """How long an instance that nobody holds is kept."""
    longest_call: Seconds = 0.0
    """After how long a call is given up whatever progress it reports; 0 for never."""
    definitions: Literal["notify", "quarantine"] = "notify"
    """What becomes of a tool that is not defined as it was (docs/definitions.md)."""
    most_processes: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = MOST_PROCESSES
    """How many processes one server's tree may have; 0 for any number."""
    most_memory_mib: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How much memory one server's tree may take; 0 for all, none for half of the machine's, at
    most 6 GiB, and half of that while it grows by more than 64 MiB a second."""
    may_connect: tuple[str, ...] = ()
    """Servers, by globs, whose own processes may use capd as clients do."""


class SandboxServerTable(msgspec.Struct, frozen=True):
    """`[sandbox.servers."GLOB"]`: your word on single servers, which is the last one."""

    level: Level | None = None
    """Their level, whatever their definitions ask for."""
    masks: tuple[MaskName, ...] | None = None
    """What is hidden from them, in place of `sandbox.masks`; where it is `[]`, capd's folders are
    shown, too."""
    network: bool | None = None
    """Whether they may connect where they are `strict`; as their definitions ask where unset."""


class SandboxTable(msgspec.Struct, frozen=True):
    """`[sandbox]`: how much of the machine servers see (docs/sandbox.md)."""

    level: Level = "guard"
    """What servers get at least: `off`, all that you see; `guard`, the same without capd's folders,
    and apart from each other, where the machine can; `strict`, without home and network."""
    masks: tuple[MaskName, ...] = ()
    """What else is hidden from servers at `guard`, by name; needs bubblewrap."""
    project: Level = "strict"
    """The same as `level`, for servers that a project's files define."""
    servers: dict[str, SandboxServerTable] = {}
    """The same for servers, by globs of their names; the first that matches counts."""

    def rules(self) -> SandboxRules:
        """Return them as rules."""
        servers = {
            glob: SandboxRule(table.level, table.masks, table.network)
            for glob, table in self.servers.items()
        }
        return SandboxRules(self.level, self.masks, self.project, servers)


class SessionsTable(msgspec.Struct, frozen=True):
    """`[sessions]`."""

    capabilities: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    """How many capabilities with tools may be on at once."""
    tools: Annotated[int, msgspec.Meta(ge=1, le=256)] = 24
    """How many single tools may be on at once."""


class SurfaceTable(msgspec.Struct, frozen=True):
    """`[surface]` (docs/surface.md)."""

    mode: Literal["auto", "dynamic", "stable", "pass-through"] = "auto"
    """How clients see what is on; `auto` decides by what each can do."""
    pins: tuple[str, ...] = ()
    """Tools that are always listed: `server:tool` or wire names, with globs."""
    pass_through: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """The share of a client's context that everything may take in pass-through mode."""
    check_arguments: bool = True
    """Whether a call whose arguments do not fit its tool's schema is answered at once."""
    unchecked_servers: tuple[str, ...] = ()
    """Servers, by globs, whose calls are passed on whatever their arguments are."""
    notices: bool = True
    """Whether the user is shown a short line in the editor when something comes on."""


class CurationTable(msgspec.Struct, frozen=True):
    """`[curation]`: what each turn brings of single tools (docs/surface.md, "Curation")."""

    kind: Literal["top-k", "off"] = "top-k"
    """`off` chooses nothing: everything is listed that the client's list has room for."""
    k: Annotated[int, msgspec.Meta(ge=0, le=256)] = 15
    """How many of the best are looked at."""
    new_per_turn: Annotated[int, msgspec.Meta(ge=0, le=24)] = 3
    """How many may join a list, or be suggested, in one turn."""
    scorer: Literal["hybrid", "keyword"] = "hybrid"
    """Words and meaning, or the published formula of words alone."""


class RulesTable(msgspec.Struct, frozen=True):
    """Allow and deny patterns, `server:tool` or `tool`, with globs."""

    allow: tuple[str, ...] = ()
    """Where there is one, what none of them matches is denied."""
    deny: tuple[str, ...] = ()
    """What any of them matches is denied."""


class PolicyTable(RulesTable, frozen=True):
    """`[policy]`: for everybody, by client, and by project folder."""

    clients: dict[str, RulesTable] = {}
    """The same for clients, by globs of their names."""
    projects: dict[str, RulesTable] = {}
    """The same for projects, by folder; what is below it is in it."""


class EmbedderTable(msgspec.Struct, frozen=True):
    """`[embedder]`."""

    placement: Literal["process", "daemon"] = "process"
    """Its own process, which gives all memory back when idle, or the daemon's."""
    idle: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 900.0
    """Seconds without a text after which the model is dropped."""


class TapsTable(msgspec.Struct, frozen=True):
    """`[taps]`."""

    watch: bool = True
    """Whether a change of a tap, an overlay or their list is loaded at once."""


class RoutingTable(msgspec.Struct, frozen=True):
    """`[routing]`: whether messages are routed, and what counts beside them (docs/routing.md)."""

    enabled: bool = True
    """Whether a user's message switches capabilities on by itself."""
    files: bool = True
    """Names in the project's root, and key names of its `.env`."""
    session: bool = False
    """What the session had on before."""
    project: bool = False
    """What sessions of the project had on before."""
    scorer: Literal["evidence", "trigger_mean"] = "evidence"
    """`trigger_mean`: the published rule with its published constants, and nothing beside it."""

    @property
    def priors(self) -> tuple[str, ...]:
        """Return the names of those that are on."""
        names = ("files", "session", "project")
        return tuple(name for name in names if getattr(self, name))


class HttpTable(msgspec.Struct, frozen=True):
    """`[listen_http]`: the front for clients that speak only HTTP (docs/http.md)."""

    enabled: bool = False
    """Whether there is such a front."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 8377
    """On 127.0.0.1, which cannot be changed."""
    names: Literal["prefixed", "bare"] = "prefixed"
    """`bare`: servers' own names of tools and prompts, and nothing of capd's own."""
    capabilities: tuple[str, ...] = ()
    """What its sessions have on from the start, as `name` or `tap/name`."""
    project: str = ""
    """The project of its sessions: requests of HTTP name none."""
    poll_after: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """Seconds after which the stream of an answer is closed, once, and its client is to come back
    for the rest; 0 keeps it open."""


class DaemonTable(msgspec.Struct, frozen=True):
    """`[daemon]`."""

    drain: Annotated[float, msgspec.Meta(ge=0, le=60)] = 8.0
    """Seconds that calls under way may take to end when the daemon is asked to stop."""


class LedgerTable(msgspec.Struct, frozen=True):
    """`[ledger]`: what is kept of what happened (docs/records.md)."""

    enabled: bool = True
    """Whether anything is."""
    days: Annotated[float, msgspec.Meta(ge=0.01, le=3650)] = 90.0
    """After how long a note goes."""
    size_mib: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 128
    """Above which size of the file the oldest notes go."""


Characters = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class ResultsTable(msgspec.Struct, frozen=True):
    """`[results]`: when a tool's result is too long to be passed on whole (docs/results.md)."""

    limit: Characters = LIMIT
    """In characters; 0 passes all results on as they come."""
    media: Characters = MEDIA_LIMIT
    """The same for the base64 of a result's images, audio and blobs."""
    servers: dict[str, Characters] = {}
    """Limits of single servers, by name."""
    tools: dict[str, Characters] = {}
    """Limits of single tools, by `server:tool`."""
    store_mib: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 1024
    """How much of the disk kept results may take."""


class MemoriesTable(msgspec.Struct, frozen=True):
    """`[memories]`: what a model is told of what is known (docs/memories.md)."""

    tokens: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = DEFAULT_BUDGET
    """What memories may take of one conversation, in tokens; 0 tells none, and still refuses."""


class BootstrapTable(msgspec.Struct, frozen=True):
    """`[bootstrap]`: a project's files that models see from the start (docs/memories.md)."""

    enabled: bool = False
    """Whether they are told in every project; `[projects."/FOLDER"] bootstrap` says it of one."""
    files: tuple[str, ...] = FILES
    """Which, by their paths in the project, in the order in which they are told."""
    notes: str = NOTES
    """Daily notes of today and yesterday, with `{date}`; empty for none."""
    most_characters: Annotated[int, msgspec.Meta(ge=0, le=100_000_000)] = MOST_CHARACTERS
    """More than that is warned of in the log."""
    hook_characters: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = HOOK_CHARACTERS
    """How much a prompt hook hands over; what has no room is in the prompt `bootstrap`."""

    def rules(self) -> BootstrapRules:
        """Return them as rules."""
        return BootstrapRules(
            files=self.files,
            notes=self.notes,
            most_characters=self.most_characters,
            hook_characters=self.hook_characters,
        )


class PlaceTable(msgspec.Struct, frozen=True):
    """`[clients.NAME]` and `[projects."/FOLDER"]`: what holds for the sessions of one."""

    domain: str = ""
    """Capabilities of other domains are left out (docs/routing.md)."""
    routing: bool | None = None
    """Whether messages switch capabilities on by themselves; as `[routing]` says where unset."""
    bootstrap: bool | None = None
    """Whether the project's own files are told at the start; as `[bootstrap]` says where unset."""


class Configuration(msgspec.Struct, frozen=True):
    """Everything that can be set."""

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
    ledger: LedgerTable = LedgerTable()
    sandbox: SandboxTable = SandboxTable()
    memories: MemoriesTable = MemoriesTable()
    bootstrap: BootstrapTable = BootstrapTable()

    def domains(self) -> Domains:
        """Return the domains of sessions."""
        projects = {str(expanded(folder)): table.domain for folder, table in self.projects.items()}
        return Domains({name: table.domain for name, table in self.clients.items()}, projects)

    def routing_switch(self) -> RoutingSwitch:
        """Return whose messages are routed."""
        clients = {name: t.routing for name, t in self.clients.items() if t.routing is not None}
        projects = {
            str(expanded(folder)): t.routing
            for folder, t in self.projects.items()
            if t.routing is not None
        }
        return RoutingSwitch(self.routing.enabled, clients, projects)

    def bootstrap_switch(self) -> RoutingSwitch:
        """Return whose sessions begin with their projects' files."""
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
}


def effective(
    layers: Sequence[Layer], environment: Mapping[str, str]
) -> tuple[Configuration, Merged, list[str]]:
    """Return what files and variables say together, and a line for each variable that does not."""
    used = list(layers)
    problems: list[str] = []
    for variable, path in VARIABLES.items():
        if variable not in environment:
            continue
        below = merged(used).tables
        try:
            layer = with_variable(below, Configuration, path, environment[variable], variable)
        except UnusableError as error:
            problems.append(f"{variable} is not used: {error}")
        else:
            used.append(layer)
    whole = merged(used)
    return msgspec.convert(whole.tables, Configuration, strict=False), whole, problems


def load_configuration(
    file: Path, environment: Mapping[str, str]
) -> tuple[Configuration, list[str]]:
    """Return the configuration, and a line for each layer that could not be used."""
    own = GoodFile(file, lambda text: parsed(text, Configuration, str(file)))
    own.load()
    configuration, _, problems = effective([own.layer] if own.layer else [], environment)
    return configuration, [*([own.problem] if own.problem else []), *problems]
