"""How a session is opened, or found again: who may have it, and what it begins with."""

import secrets
import time
from collections.abc import Callable
from functools import partial

import structlog
import trio

from capd.actors.session.client_habits import HabitSaver
from capd.actors.session.drain import Drain
from capd.actors.session.index import IndexCache
from capd.actors.session.memory_catalog import MemoryCatalog
from capd.actors.session.recent_uses import RecentUses
from capd.actors.session.results import ResultStorage
from capd.actors.session.session import Curator
from capd.actors.session.settings import FollowedSettings
from capd.actors.session.store import SessionStore
from capd.actors.session.table import OpenSession, OpenSessions
from capd.actors.session.token_accounting import TokenAccounting
from capd.actors.session.tool_search import described
from capd.adapters import platform
from capd.adapters.argument_checks import ArgumentChecks
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.ledger.journal import Journal
from capd.adapters.servers.instance import Instance
from capd.core.sessions.claiming import refusal
from capd.core.sessions.session_keys import fresh_key, is_key
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.session_record import SessionRecord
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.surface import Surface
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.handle_table import HandleTable
from capd_protos import curator as messages
from capd_protos import finder
from capd_protos.ledger import SessionNote
from capd_protos.socket import Hello
from capd_protos.types import InstanceId, SessionKey

STOPPING = "this daemon is stopping; try again"

log = structlog.get_logger(actor="curator")


class SessionOpenings:
    """Makes a session of a hello, or finds the one that it is to go on."""

    def __init__(
        self,
        sessions: OpenSessions,
        bus: Bus,
        connections: HandleTable[int, Connection],
        store: SessionStore,
        *,
        instances: HandleTable[InstanceId, Instance],
        environments: SessionEnvironments,
        settings: FollowedSettings,
        habits: HabitSaver,
        drain: Drain,
        uses: RecentUses,
        checks: ArgumentChecks,
        results: ResultStorage | None,
        journal: Journal,
        tokens: TokenAccounting,
        memories: MemoryCatalog,
        index: IndexCache,
        on_change: Callable[[SessionKey], None],
    ) -> None:
        """`on_change` is called when a session has something to write down."""
        self._sessions = sessions
        self._bus = bus
        self._connections = connections
        self._instances = instances
        self._environments = environments
        self._store = store
        self._settings = settings
        self._habit_saver = habits
        self._drain = drain
        self._uses = uses
        self._checks = checks
        self._results = results
        self._journal = journal
        self._tokens = tokens
        self._memories = memories
        self._index = index
        self._on_change = on_change

    def work_in(self, nursery: trio.Nursery) -> None:
        """Have what goes on beside a session that begins run there."""
        self._nursery = nursery

    async def opened(
        self, request: messages.OpenSession
    ) -> tuple[OpenSession, Connection, bool] | messages.CuratorRefused:
        """Return the session that a hello asks for, with its connection, and whether it was known.

        Its `resume` token is another one, and a connection that it had before is closed.
        """
        hello = request.hello
        if self._drain.is_on:
            self._connections.take(request.connection)
            return messages.CuratorRefused("stopping", STOPPING)
        record = None
        if is_key(hello.session) and SessionKey(hello.session) not in self._sessions:
            record = await self._store.load(SessionKey(hello.session))
        project = hello.project or hello.cwd
        await self._settings.meet(project)
        await self._memories.meet(project)
        view = SessionView(
            self._settings.rules(project),
            client=hello.client.name,
            project=project,
            habits=self._habit_saver.habits,
            version=hello.client.version,
            is_bare=request.is_bare,
            has_results=self._results is not None,
            domain=self._settings.domain(hello.client.name, project),
        )
        # Before anything is created: another request for this key may come while we wait.
        found = None
        if SessionKey(hello.session) not in self._sessions and not view.is_bare:
            found = await self._described(view, record)
        connection = self._connections.take(request.connection)
        if self._drain.is_on:
            return messages.CuratorRefused("stopping", STOPPING)
        if connection is None:
            return messages.CuratorRefused("bad_hello", "the connection is gone")
        session = self._sessions.get(SessionKey(hello.session))
        resumed = session is not None or record is not None
        refused = refusal(
            hello.session,
            hello.resume,
            record,
            is_ending=session is not None and session.is_ending,
            token=session.resume if session is not None else None,
        )
        if refused is not None:
            return messages.CuratorRefused(*refused)
        if session is None:
            session = self._new_session(request, view)
            self._begin(session, hello, found, record)
            self._note(session.curator.place)
        elif session.curator.upstream is not None:
            session.curator.upstream.close("resumed elsewhere", reconnect=False)
        session.resume = secrets.token_urlsafe(16)
        session.claim += 1
        session.pid = request.peer_pid
        session.parent_pid = platform.parent_pid(request.peer_pid) or 0
        if hello.client.session:
            session.curator.client_sessions.add(hello.client.session)
        session.process = platform.process_start_time(request.peer_pid)
        return session, connection, resumed

    def _begin(
        self,
        session: OpenSession,
        hello: Hello,
        found: finder.ToolsDescribed | None,
        record: SessionRecord | None,
    ) -> None:
        """Give a session what it has from its opening on."""
        curator = session.curator
        if found is not None:
            curator.beginning.pin(found)
            self._nursery.start_soon(self._hold_eager, session, found)
        if record is not None:
            curator.restore(record, is_same_client=bool(hello.resume))
        elif hello.parent and hello.inherit:
            self._inherit(session, SessionKey(hello.parent))

    async def _described(
        self, view: SessionView, record: SessionRecord | None
    ) -> finder.ToolsDescribed | None:
        """Return what there is for a session that is to be opened, and have its view follow."""
        view.settle(Surface(()))
        is_kept = view.keep(record.view if record is not None else None)
        # What a changing list costs depends on how much there is, which the first sessions of a
        # daemon come before.
        waits = view.rules.mode == "auto" and view.plan.mode == "dynamic" and not is_kept
        found = await described(self._bus, view, waits=waits)
        if found is not None and found.is_known:
            pinned = sum(view.is_pinned(h.server, h.name, h.wire_name) for h in found.matching)
            is_all = not found.unlisted
            view.described(found.tools, found.size_bytes, is_all=is_all, pinned=pinned)
        return found

    async def _hold_eager(self, session: OpenSession, found: finder.ToolsDescribed) -> None:
        with trio.CancelScope() as session.beginning:
            if not found.is_known:
                # The first session of a daemon comes before the catalog has been read.
                found = await described(self._bus, session.curator.view, waits=True) or found
            await contained(
                "eager servers", session.curator.beginning.hold_eager, found.eager, log=log
            )

    def _inherit(self, session: OpenSession, parent: SessionKey) -> None:
        """Give a session what the one that started it has on at this moment."""
        of = self._sessions.get(parent)
        if of is None or of.is_ending:
            log.warning("parent_unknown", session=session.curator.place.key, parent=parent)
            return
        session.curator.restore(of.curator.record(""), is_same_client=False)
        self._nursery.start_soon(
            partial(contained, "inherited", session.curator.beginning.hold_inherited, log=log)
        )

    def _new_session(self, request: messages.OpenSession, view: SessionView) -> OpenSession:
        hello = request.hello
        key = SessionKey(hello.session)
        while not key or key in self._sessions:
            key = fresh_key(hello.client.name, secrets.token_hex(2))
        project = hello.project or hello.cwd
        place = SessionPlace(
            key, hello.client.name, project, domain=view.domain, parent=hello.parent
        )
        curator = Curator(
            place,
            bus=self._bus,
            instances=self._instances,
            environments=self._environments,
            view=view,
            on_change=partial(self._on_change, key),
            uses=self._uses,
            checks=self._checks,
            results=self._results,
            journal=self._journal,
            tokens=self._tokens,
            memories=self._memories,
            index=self._index,
        )
        if self._results is not None and hello.parent in self._sessions:
            self._results.readers.started(key, SessionKey(hello.parent))
        session = self._sessions[key] = OpenSession(
            curator,
            "",
            time.time(),
            request.peer_pid,
            hello.client.pid,
            platform.parent_pid(request.peer_pid) or 0,
        )
        return session

    def _note(self, place: SessionPlace) -> None:
        note = SessionNote(time.time(), place.key, place.client, place.project, "started")
        self._journal.note(note)
