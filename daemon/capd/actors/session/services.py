"""The services that all sessions share, and the context that the parts of one session share."""

from collections.abc import Callable
from dataclasses import dataclass

from capd.actor_clients.definitions import DefinitionsClient
from capd.actor_clients.finder import FinderClient
from capd.actor_clients.registry import RegistryClient
from capd.actor_clients.supervisor import SupervisorClient
from capd.actors.session.approval_service import ApprovalService, ApprovalStore
from capd.actors.session.client_habits import HabitSaver, HabitStore
from capd.actors.session.client_skill_reads import ClientSkillReads
from capd.actors.session.index import IndexCache
from capd.actors.session.memory_catalog import MemoryCatalog
from capd.actors.session.profile import ProfileReads
from capd.actors.session.recent_uses import RecentUses
from capd.actors.session.results import NO_STORE, ResultStorage
from capd.actors.session.settings import FollowedSettings
from capd.actors.session.token_accounting import TokenAccounting
from capd.adapters.argument_checks import ArgumentChecks
from capd.adapters.clients.client_connection import ClientConnection
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.ledger.journal import Journal
from capd.adapters.live_settings import LiveSettings
from capd.adapters.scripts.run_files import RunFiles
from capd.adapters.scripts.workers import ScriptWorkers
from capd.adapters.servers.instance import Instance
from capd.core.sessions.domains import Domains
from capd.core.sessions.session import SessionState
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.session_rules import SessionRules
from capd.core.sessions.session_view import SessionView
from capd.runtime.bus import Bus
from capd.runtime.handle_table import HandleTable
from capd_protos.types import InstanceId


@dataclass(frozen=True, slots=True)
class SessionServices:
    """Services shared by all sessions of a daemon; built by `session_services`."""

    bus: Bus
    definitions: DefinitionsClient
    finder: FinderClient
    registry: RegistryClient
    supervisor: SupervisorClient
    instances: HandleTable[InstanceId, Instance]
    environments: SessionEnvironments
    journal: Journal
    settings: FollowedSettings
    habits: HabitSaver
    uses: RecentUses
    checks: ArgumentChecks
    results: ResultStorage
    tokens: TokenAccounting
    memories: MemoryCatalog
    index: IndexCache
    approvals: ApprovalService
    profiles: ProfileReads
    client_skills: ClientSkillReads
    scripts: ScriptWorkers
    script_files: RunFiles | None
    """None if scripts cannot outlive this daemon."""


def session_services(
    bus: Bus,
    instances: HandleTable[InstanceId, Instance],
    environments: SessionEnvironments,
    *,
    rules: SessionRules | None = None,
    domains: Domains | None = None,
    live: LiveSettings | None = None,
    journal: Journal | None = None,
    habits: HabitStore | None = None,
    results: ResultStorage | None = None,
    tokens: TokenAccounting | None = None,
    memories: MemoryCatalog | None = None,
    index: IndexCache | None = None,
    approvals: ApprovalStore | None = None,
    client_skills: ClientSkillReads | None = None,
    scripts: ScriptWorkers | None = None,
    script_files: RunFiles | None = None,
) -> SessionServices:
    """Build the services. One that is not given is replaced by a default that saves nothing.

    `rules` and `domains` are used if `live`, the settings that may change, is not given.
    """
    results = results or ResultStorage(NO_STORE)
    return SessionServices(
        bus,
        DefinitionsClient(bus),
        FinderClient(bus),
        RegistryClient(bus),
        SupervisorClient(bus),
        instances,
        environments,
        # Not `or`: a journal in which nothing waits is false.
        journal=Journal() if journal is None else journal,
        settings=FollowedSettings(rules or SessionRules(), domains or Domains(), live, results),
        habits=HabitSaver(habits),
        uses=RecentUses(bus),
        checks=ArgumentChecks(),
        results=results,
        tokens=tokens or TokenAccounting(bus),
        memories=memories or MemoryCatalog(bus),
        index=index or IndexCache(bus),
        approvals=ApprovalService(bus, environments, approvals),
        profiles=ProfileReads(),
        client_skills=client_skills or ClientSkillReads(),
        scripts=scripts or ScriptWorkers(),
        script_files=script_files,
    )


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The values and services that every part of one session needs."""

    place: SessionPlace
    state: SessionState
    view: SessionView
    connection: ClientConnection
    services: SessionServices
    on_change: Callable[[], None]
    """Called when the session has to be saved."""

    def notify_tools_changed(self) -> None:
        """Notify the client, if it is connected, that its list of tools has changed."""
        if self.connection.upstream is not None:
            self.connection.upstream.list_changed("tools")
            self.view.changed()

    def probe_relisting(self) -> None:
        """Tell the client that its tools have changed, to see whether it then lists them again.

        This is done only if the table of clients alone marks the client as one that never lists
        again.
        """
        if self.connection.is_connected and self.view.is_probe_due:
            self.notify_tools_changed()
