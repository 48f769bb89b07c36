"""Creates all actors of a daemon, and their parts. It is the only file that imports them all."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import trio
from trio.abc import Listener

from capd import __version__
from capd.actor_clients import names
from capd.actors import cache_cleanup as sweeper
from capd.actors import definitions, ledger
from capd.actors import settings as settings_watcher
from capd.actors import stored_secrets as secret_preloader
from capd.actors.embedder import embedder
from capd.actors.embedder.process import EmbedderProcess
from capd.actors.finder import finder
from capd.actors.gateway import gateway
from capd.actors.index import index as index_actor
from capd.actors.registry import registry
from capd.actors.registry.tool_triggers import ToolTriggers
from capd.actors.session import host as session_host
from capd.actors.session.client_skill_reads import ClientSkillReads, skill_folders
from capd.actors.session.index import IndexCache
from capd.actors.session.memory_catalog import MemoryCatalog
from capd.actors.session.results import ResultStorage
from capd.actors.session.services import session_services
from capd.actors.session.token_accounting import TokenAccounting
from capd.actors.supervisor import supervisor
from capd.actors.supervisor.starts import Starts, SupervisorSettings
from capd.adapters import platform
from capd.adapters.approval_file import ApprovalFile
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.open_bridges import OpenBridges
from capd.adapters.clients.peers import Peers
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.definition_files import DefinitionFiles
from capd.adapters.habit_file import HabitFile
from capd.adapters.index_file import IndexFile
from capd.adapters.index_text import NAME as INDEX_FILE
from capd.adapters.learning_file import LearningFile
from capd.adapters.ledger.database import Database
from capd.adapters.ledger.journal import Journal
from capd.adapters.leftover_files import LeftoverFiles
from capd.adapters.live_settings import LiveSettings
from capd.adapters.log import SECRET_REMOVER
from capd.adapters.memory_files import MEMORIES
from capd.adapters.memory_outcome_file import MemoryOutcomeFile
from capd.adapters.parsing.parser import Parser
from capd.adapters.result_store import ResultStore
from capd.adapters.scripts.run_files import RunFiles
from capd.adapters.scripts.workers import ScriptWorkers
from capd.adapters.secrets.stored_secrets import StoredSecrets
from capd.adapters.servers.child_environment import uvx_folder
from capd.adapters.servers.containers import Containers
from capd.adapters.servers.generation_file import GenerationFile
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.instance import Instance
from capd.adapters.servers.launching import remove_empty
from capd.adapters.servers.sandboxing import Sandboxes, own_folders
from capd.adapters.servers.trees import TREES
from capd.adapters.session_files import SessionFiles
from capd.adapters.session_settings import result_limits
from capd.adapters.spool import Spool
from capd.adapters.tokens.counted_texts import CountedTexts
from capd.adapters.tokens.piece_counts import PieceCounts
from capd.adapters.tool_lists import ToolLists
from capd.adapters.tool_trigger_file import ToolTriggerFile
from capd.adapters.trust.trust_file import TrustFile
from capd.core.errors import CapdError
from capd.core.records.retention import Retention
from capd.core.servers.tree_limits import usual_limits
from capd.core.sessions.bridges import BridgeRules
from capd.core.sessions.own_tool_list import OWN_TOOLS, SCRIPT_TOOL
from capd.embedder_process import import_before_usearch, load_model
from capd.runtime.bus import Bus
from capd.runtime.handle_table import HandleTable
from capd.runtime.supervision import Child
from capd_protos.places import Places
from capd_protos.socket import StopParams
from capd_protos.tree_marks import VARIABLE
from capd_protos.types import ActorName, Address, InstanceId

if TYPE_CHECKING:
    from capd.actors.control.connection import Control

_EMBEDDER_ENVIRONMENT = (
    "HOME",
    "LANG",
    "LD_LIBRARY_PATH",
    "PATH",
    "TMPDIR",
    "NO_COLOR",
    "CAPD_LOG",
    "CAPD_DEBUG",
)

log = structlog.get_logger()


def addresses() -> dict[ActorName, Address]:
    """Return the address of each actor's mailbox, by the actor's name."""
    return {name: Address(f"inproc://{name}") for name in names.EVERY}


@dataclass(frozen=True, slots=True)
class Shared:
    """The daemon's own objects, which some of its actors are given."""

    bus: Bus
    listener: Listener[trio.SocketStream]
    described: Callable[[], dict[str, Any]]
    """Returns the daemon's own part of the status."""
    stop: Callable[[StopParams], None]
    stopping: trio.Event
    path_known: trio.Event
    """Set when the login shell's PATH is known."""


class Children:
    """The actors of one daemon, in the order in which they start."""

    def __init__(
        self,
        where: Places,
        live: LiveSettings,
        environment: dict[str, str],
        problems: list[str],
        parser: Parser,
    ) -> None:
        """Keep what the actors are created from; `all` creates them.

        `where` are the daemon's folders, `live` its settings, and `environment` is the base of
        servers' environments. `all` adds the problems that it finds to `problems`. `parser` reads
        files that others may have written.
        """
        self._parser = parser
        self._where = where
        self._live = live
        self._configuration = live.current
        self._environment = environment
        self._problems = problems

    def all(self, shared: Shared) -> list[Child]:
        """Return all actors as children of the daemon, in the order in which they start."""
        bus = shared.bus
        where, configuration = self._where, self._configuration
        instances: HandleTable[InstanceId, Instance] = HandleTable()
        connections: HandleTable[int, Connection] = HandleTable()
        stored = StoredSecrets(
            Path(where.config),
            self._environment.get("CREDENTIALS_DIRECTORY", ""),
            namespaces=lambda: (
                {each.secrets for each in self._live.current.profiles.values()} - {""}
            ),
        )
        environments = SessionEnvironments(stored)
        SECRET_REMOVER.secrets = environments.all_values
        shared_cwd = Path(where.state, "shared")
        shared_cwd.mkdir(mode=0o700, exist_ok=True)
        install_cwd = Path(where.state, "installs")
        install_cwd.mkdir(mode=0o700, exist_ok=True)
        empty_folders = Path(where.state, "empty")
        empty_folders.mkdir(mode=0o700, exist_ok=True)
        remove_empty(empty_folders)
        tool_lists = ToolLists(Path(where.cache, "tools"))
        trust = TrustFile(Path(where.state, "trust.json"))
        settings = SupervisorSettings(
            linger=configuration.servers.linger,
            trust=trust,
            parser=self._parser,
            linger_now=lambda: self._live.current.servers.linger,
            client_metadata_url=lambda: self._live.current.logins.client_metadata_url,
            longest_call=configuration.servers.longest_call,
            shared_cwd=shared_cwd,
            environment=self._environment,
            extra_path=uvx_folder(),
            version=__version__,
            spool=Spool(Path(where.cache)),
            tool_lists=tool_lists,
            path_known=shared.path_known,
            generations=GenerationFile(Path(where.cache, "eras.json")),
            is_vetting=True,
            install_cwd=install_cwd,
            empty_folders=empty_folders,
            containers=Containers(
                Path(where.state, "containers"),
                self._environment,
                [where.config, where.state, where.cache, where.data, where.run],
            ),
            tree_limits=usual_limits(
                configuration.servers.most_processes,
                configuration.servers.most_memory_mib,
                platform.machine_bytes(),
            ),
            sandboxes=Sandboxes(
                configuration.sandbox.rules(),
                tuple(Path(each) for each in (where.config, where.state, where.cache, where.run)),
                Path(where.cache, "sandbox"),
                folders=own_folders(where, self._environment),
                may_connect=configuration.servers.may_connect,
            ),
            far_rules=self._far_rules,
        )
        logins = Logins(Path(where.state, "logins"))
        starts = Starts(settings, logins)
        results = self._result_storage()
        counts = CountedTexts()
        # A separate counter: the many words of a catalog would evict the counts of other texts.
        pieces = PieceCounts(CountedTexts(), Path(where.cache, "piece_counts.json"))
        journal = Journal(is_kept=configuration.ledger.enabled)
        database = self._database()
        may_connect = configuration.servers.may_connect
        bridges = OpenBridges(Path(where.run, "bridges"), self._bridge_rules)
        bridges.clear()

        @cache
        def control() -> "Control":
            # Imported when a person's first command arrives: no session needs these 40 modules.
            from capd.actors.control.bridges import BridgeMethods  # noqa: PLC0415
            from capd.actors.control.connection import Control  # noqa: PLC0415
            from capd.actors.gateway.bridges import BridgeGateway  # noqa: PLC0415

            return Control(
                bus,
                environments,
                bridges=BridgeMethods(
                    bridges,
                    BridgeGateway(
                        bus,
                        connections,
                        __version__,
                        may_connect=may_connect,
                        peers=Peers(is_marked=TREES.is_marked),
                        runners=settings.runners,
                    ),
                ),
                daemon=shared.described,
                stop=shared.stop,
                tally=journal.tally,
                memories=Path(where.data, MEMORIES),
            )

        sessions = SessionFiles(Path(where.state, "sessions"))
        script_files = RunFiles(Path(where.state, "scripts"))
        return [
            self._embedder_child(bus),
            Child(
                names.SETTINGS,
                lambda task_status: settings_watcher.SettingsWatcher(bus, self._live).run(
                    task_status=task_status
                ),
            ),
            Child(
                names.REGISTRY,
                lambda task_status: registry.Registry(
                    bus,
                    Path(where.config, "taps.toml"),
                    Path(where.cache, "vectors.bin"),
                    lambda project: self._live.of(project).configuration.routing.priors,
                    is_watching=configuration.taps.watch,
                    trust=trust,
                    journal=journal,
                    memories=Path(where.data, MEMORIES),
                    parser=self._parser,
                    scorer=configuration.routing.scorer,
                    labels=LearningFile(Path(where.state, "learning.json")),
                    has_program=partial(self._has_program, shared.path_known),
                    learns=lambda project: self._live.of(project).configuration.routing.learn,
                    tool_triggers=ToolTriggers(
                        bus, tool_lists, ToolTriggerFile(Path(where.state, "tool_triggers.json"))
                    ),
                ).run(task_status=task_status),
            ),
            Child(
                secret_preloader.NAME,
                lambda task_status: secret_preloader.SecretPreloader(bus, stored).run(
                    task_status=task_status
                ),
            ),
            Child(
                names.LEDGER,
                lambda task_status: ledger.Ledger(bus, journal, database).run(
                    task_status=task_status
                ),
            ),
            Child(
                names.DEFINITIONS,
                lambda task_status: definitions.Definitions(
                    bus,
                    DefinitionFiles(Path(where.state, "definitions")),
                    configuration.servers.definitions,
                    tuple(own.name for own in (*OWN_TOOLS, SCRIPT_TOOL)),
                ).run(task_status=task_status),
            ),
            Child(
                names.SUPERVISOR,
                lambda task_status: supervisor.Supervisor(
                    bus, instances, environments, settings, starts
                ).run(task_status=task_status),
            ),
            Child(
                names.FINDER,
                lambda task_status: finder.ToolFinder(
                    bus,
                    tool_lists,
                    environments,
                    Path(where.cache, "tool_vectors.bin"),
                    counts,
                    pieces=pieces,
                    is_screened=True,
                ).run(task_status=task_status),
            ),
            Child(
                names.INDEX,
                lambda task_status: index_actor.Index(
                    bus, IndexFile(Path(where.data, INDEX_FILE)), pieces
                ).run(task_status=task_status),
            ),
            Child(
                names.CURATOR,
                lambda task_status: session_host.SessionHost(
                    session_services(
                        bus,
                        instances,
                        environments,
                        live=self._live,
                        results=results,
                        journal=journal,
                        habits=HabitFile(Path(where.state, "habits.json")),
                        tokens=TokenAccounting(bus, counts),
                        memories=MemoryCatalog(
                            bus, counts, MemoryOutcomeFile(Path(where.state, "memories.json"))
                        ),
                        index=IndexCache(bus, pieces),
                        approvals=ApprovalFile(Path(where.state, "approvals.json")),
                        client_skills=ClientSkillReads(
                            skill_folders(self._environment), self._parser
                        ),
                        scripts=ScriptWorkers(
                            configuration.scripts.workers,
                            environment=lambda: {VARIABLE: TREES.mark.of_helper},
                        ),
                        script_files=script_files,
                    ),
                    connections,
                    sessions,
                    version=__version__,
                    model_idle=configuration.embedder.idle if configuration.embedder.keep else 0.0,
                ).run(task_status=task_status),
            ),
            Child(
                "gateway",
                lambda task_status: gateway.Gateway(
                    bus,
                    shared.listener,
                    connections,
                    control,
                    __version__,
                    stopping=shared.stopping,
                    may_connect=configuration.servers.may_connect,
                    peers=Peers(is_marked=TREES.is_marked),
                ).run(task_status=task_status),
            ),
            Child(
                "sweeper",
                lambda task_status: sweeper.Sweeper(
                    bus,
                    LeftoverFiles(Path(where.cache), trust),
                    [sessions.sweep, script_files.sweep],
                ).run(task_status=task_status),
            ),
            *self._http_children(bus, connections),
        ]

    def _far_rules(self, bridge: str) -> BridgeRules:
        return self._bridge_rules().get(bridge, BridgeRules())

    def _bridge_rules(self) -> dict[str, BridgeRules]:
        return self._live.current.bridge_rules()

    def _has_program(self, path_known: trio.Event, command: str) -> bool:
        """Tell whether servers would find a command on their PATH; True until PATH is known."""
        if not path_known.is_set():
            return True
        folders = [self._environment.get("PATH", ""), uvx_folder()]
        return shutil.which(command, path=os.pathsep.join(filter(None, folders))) is not None

    def _database(self) -> Database | None:
        """Return the ledger's database; None if the ledger is switched off."""
        table = self._configuration.ledger
        if not table.enabled:
            return None
        retention = Retention(table.days, table.size_mib << 20)
        return Database(Path(self._where.state, "ledger.sqlite"), retention)

    def _result_storage(self) -> ResultStorage | None:
        """Return the store of long results; None if results are never shortened."""
        table = self._configuration.results
        limits = result_limits(self._configuration)
        if not (table.limit or any(table.servers.values()) or any(table.tools.values())):
            return None
        folder = Path(self._where.cache, "results")
        return ResultStorage(ResultStore(folder, most_bytes=table.store_mib << 20), limits)

    def _http_children(self, bus: Bus, connections: HandleTable[int, Connection]) -> list[Child]:
        table = self._configuration.listen_http
        if not table.enabled:
            return []
        # Imported here, so that it takes no memory unless it is switched on.
        from capd.actors.gateway import http as http_gateway  # noqa: PLC0415
        from capd.adapters.clients.http_front.admission import Admission  # noqa: PLC0415
        from capd.adapters.clients.http_front.bearer_token import load_token  # noqa: PLC0415
        from capd.adapters.clients.http_front.tcp_peers import can_tell  # noqa: PLC0415

        try:
            token = load_token(Path(self._where.state, "http.token"))
            listener = http_gateway.listener_on(table.port)
        except (CapdError, OSError) as error:
            problem = f"[listen_http] is not served on port {table.port}: {error}"
            log.error("configuration_problem", reason=problem)
            self._problems.append(problem)
            return []
        if not can_tell():
            self._problems.append(
                "[listen_http] cannot see here which process connects: whoever has read its token"
                ' is let in, a server included; with [sandbox] masks = ["capd"] none can read it'
            )
        settings = http_gateway.HttpSettings(
            Admission(table.port, token),
            is_bare=table.names == "bare",
            capabilities=table.capabilities,
            project=table.project,
            poll_after=table.poll_after,
        )
        return [
            Child(
                http_gateway.NAME,
                lambda task_status: http_gateway.HttpGateway(
                    bus,
                    listener,
                    connections,
                    settings,
                    may_connect=self._configuration.servers.may_connect,
                    peers=Peers(is_marked=TREES.is_marked),
                ).run(task_status=task_status),
            )
        ]

    def _embedder_child(self, bus: Bus) -> Child:
        settings = self._configuration.embedder
        if settings.placement != "process":
            import_before_usearch()
            return Child(
                names.EMBEDDER,
                lambda task_status: embedder.Embedder(
                    bus, load_model, idle=settings.idle, on_idle="unload"
                ).run(task_status=task_status),
            )
        # -E -P: neither PYTHONPATH nor the working directory is searched for modules. The process
        # watcher finds this process by the mark. The mark is an argument as well as a variable,
        # because the process hides its environment from the watcher.
        mark = f"{VARIABLE}={TREES.mark.of_helper}"
        argv = [sys.executable, "-E", "-P", "-m", "capd", "embedder", str(settings.idle), mark]
        kept = {
            key: self._environment[key] for key in _EMBEDDER_ENVIRONMENT if key in self._environment
        }
        # onnxruntime uploads usage data unless this is set before it is imported.
        embedder_environment = {
            **kept,
            "ORT_DISABLE_TELEMETRY": "1",
            VARIABLE: TREES.mark.of_helper,
        }
        return Child(
            names.EMBEDDER,
            lambda task_status: EmbedderProcess(bus, argv, embedder_environment).run(
                task_status=task_status
            ),
        )
