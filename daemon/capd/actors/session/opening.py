"""Opens or resumes sessions: decides who may have a session, and what it starts with.

The request for a session is the *hello*, the first line that a client sends on its connection.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import structlog
import trio

from capd.actors.session.drain import Drain
from capd.actors.session.profile import SessionProfile
from capd.actors.session.services import SessionServices
from capd.actors.session.session import Session
from capd.actors.session.store import SessionStore
from capd.actors.session.table import OpenSession, OpenSessions
from capd.actors.session.tool_search import described
from capd.adapters import platform
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.sub_agent_connection import SubAgentConnection
from capd.core.errors import described as described_error
from capd.core.sessions.bridges import session_key
from capd.core.sessions.session_keys import fresh_key, is_key
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.session_record import SessionRecord, claim_refusal
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.sub_agents import AgentId, agent_key
from capd.core.sessions.surface import Surface
from capd.core.sessions.whole_list import ToolTotals
from capd.runtime.boundary import contained
from capd.runtime.handle_table import HandleTable
from capd_protos import curator as messages
from capd_protos import finder
from capd_protos.ledger import SessionNote
from capd_protos.socket import Hello
from capd_protos.types import SessionKey

MOST_OVER_A_BRIDGE = 128
"""The most sessions of one bridge. Those without a connection count too; they stay for 30 s."""
STOPPING = "this daemon is stopping; try again"

log = structlog.get_logger(actor="curator")


def _no_profile() -> str:
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """Has one session saved when it is called. A partial would take three times as much memory."""

    on_change: Callable[[SessionKey], None]
    key: SessionKey

    def __call__(self) -> None:
        self.on_change(self.key)


class SessionOpenings:
    """Opens new sessions for clients, or finds the ones that they resume."""

    def __init__(
        self,
        sessions: OpenSessions,
        services: SessionServices,
        connections: HandleTable[int, Connection],
        store: SessionStore,
        *,
        drain: Drain,
        on_change: Callable[[SessionKey], None],
    ) -> None:
        """Create it. `on_change` is called when a session has to be saved."""
        self._sessions = sessions
        self._services = services
        self._connections = connections
        self._store = store
        self._drain = drain
        self._on_change = on_change

    def run_in(self, nursery: trio.Nursery) -> None:
        """Use `nursery` for tasks that go on after a session was opened."""
        self._nursery = nursery

    async def open(
        self, request: messages.OpenSession
    ) -> tuple[OpenSession, Connection, bool] | messages.CuratorRefused:
        """Return the session for a hello, its connection, and whether the session existed before.

        The session gets a new `resume` token. If the session still had a connection, that
        connection is closed. A hello that gets no session is answered with `CuratorRefused` and a
        code: `stopping`, `bad_hello`, `overloaded`, or a code that `claim_refusal` returns.
        """
        hello = request.hello
        if self._drain.is_on:
            self._connections.take(request.connection)
            return messages.CuratorRefused("stopping", STOPPING)
        record = None
        if is_key(hello.session) and SessionKey(hello.session) not in self._sessions:
            try:
                record = await self._store.load(SessionKey(hello.session))
            except OSError as error:
                text = f"the record of session {hello.session} cannot be read: {error.strerror}"
                self._connections.take(request.connection)
                return messages.CuratorRefused("overloaded", text)
        project = hello.project or hello.cwd
        bridge = request.bridge
        settings = self._services.settings
        await settings.load(project)
        await self._services.memories.load_project(project)
        profile = self._profile(hello, project, bridge)
        await profile.refresh((hello.client.name,))
        view = SessionView(
            profile.applied(settings.rules(project)),
            client=hello.client.name,
            project=project,
            # A client behind a bridge may differ from the local client of the same name.
            habits=None if bridge else self._services.habits.habits,
            version=hello.client.version,
            is_bare=request.is_bare,
            has_results=self._services.results.is_on,
            domain=settings.domain(hello.client.name, project),
        )
        # Awaited before anything is created: another request for this key may come meanwhile.
        found = None
        if SessionKey(hello.session) not in self._sessions and not view.is_bare:
            found = await self._describe(view, record)
        connection = self._connections.take(request.connection)
        if self._drain.is_on:
            return messages.CuratorRefused("stopping", STOPPING)
        if connection is None:
            return messages.CuratorRefused("bad_hello", "the connection is gone")
        opened = self._sessions.get(SessionKey(hello.session))
        resumed = opened is not None or record is not None
        refused = claim_refusal(
            hello.session,
            hello.resume,
            record,
            is_ending=opened is not None and opened.is_ending,
            token=opened.resume if opened is not None else None,
        )
        if refused is not None:
            return messages.CuratorRefused(*refused)
        if opened is None and bridge and self._sessions.count_over(bridge) >= MOST_OVER_A_BRIDGE:
            return messages.CuratorRefused(
                "overloaded", "this bridge has too many sessions, some without a connection"
            )
        if opened is None:
            opened = self._begun(request, view, profile, found, record)
            self._note(opened.session.place)
        elif (upstream := opened.session.connection.upstream) is not None:
            upstream.close("resumed elsewhere", reconnect=False)
        opened.session.connection.may_be_servers = connection.may_be_servers
        opened.session.connection.is_far = connection.is_far
        opened.resume = secrets.token_urlsafe(16)
        opened.claim += 1
        opened.pid = 0 if bridge else request.peer_pid
        opened.parent_pid = platform.parent_pid(opened.pid) or 0
        if hello.client.session:
            opened.session.connection.client_sessions[hello.client.session] = None
        opened.process = platform.process_start_time(opened.pid)
        return opened, connection, resumed

    def _begun(
        self,
        request: messages.OpenSession,
        view: SessionView,
        profile: SessionProfile,
        found: finder.ToolsDescribed | None,
        record: SessionRecord | None,
    ) -> OpenSession:
        """Create the session for a request, with everything that it has when it opens.

        A saved record that cannot be restored is ignored, because its client could otherwise never
        get a session with this key again. If opening fails half-way, no session is left behind.
        """
        opened = self._new_session(request, view, profile)
        key = opened.session.place.key
        try:
            self._begin(opened, request.hello, found, record)
        except Exception as error:
            del self._sessions[key]
            if record is None:
                raise
            log.error("session_not_restored", session=key, **described_error(error))
            return self._begun(request, view, profile, found, None)
        return opened

    def open_agent(
        self, parent: SessionKey, agent: AgentId, record: SessionRecord
    ) -> OpenSession | None:
        """Open a session for a sub-agent, with what was active when the sub-agent started.

        Return None if the conversation has ended, the daemon stops, or the conversation's bridge
        has too many sessions.
        """
        conversation = self._sessions.get(parent)
        if conversation is None or conversation.is_ending or self._drain.is_on:
            return None
        of = conversation.session
        bridge = of.place.bridge
        if bridge and self._sessions.count_over(bridge) >= MOST_OVER_A_BRIDGE:
            return None
        key = agent_key(parent, agent)
        while key in self._sessions:
            key = agent_key(parent, AgentId(f"{agent[:59]}-{secrets.token_hex(2)}"))
        profile = of.profile.copied()
        view = SessionView(
            profile.applied(self._services.settings.rules(of.place.project)),
            client=of.place.client,
            project=of.place.project,
            is_bare=of.view.is_bare,
            has_results=self._services.results.is_on,
            domain=of.view.domain,
            shares=of.view,
        )
        place = replace(of.place, key=key, parent=parent, agent=agent)
        connection = SubAgentConnection(key, of.connection)
        session = Session(place, view, self._services, lambda: None, profile, connection=connection)
        session.begin_as(of, record)
        self._services.results.readers.started(key, parent)
        # Nobody is given this token, so no connection can take the session over.
        token = secrets.token_urlsafe(16)
        opened = self._sessions[key] = OpenSession(
            session, token, time.time(), conversation.pid, conversation.client_pid, parent_pid=0
        )
        self._note(place)
        return opened

    def _begin(
        self,
        opened: OpenSession,
        hello: Hello,
        found: finder.ToolsDescribed | None,
        record: SessionRecord | None,
    ) -> None:
        """Give a new session what it starts with: pins, profile, saved or inherited tools."""
        if found is not None:
            opened.session.initial_tools.pin(found)
        if record is not None:
            opened.session.snapshot.restore(record, is_same_client=bool(hello.resume))
        elif hello.parent and hello.inherit:
            self._inherit(opened, SessionKey(hello.parent))
        # Tasks are started last. If something above fails, none is left that works for a session
        # that nobody has.
        if found is not None:
            lease = partial(self._lease_eager, opened, found)
            self._nursery.start_soon(partial(contained, "eager servers", lease, log=log))
        enable = opened.session.enable_of_profile
        self._nursery.start_soon(partial(contained, "profile", enable, log=log))

    def _profile(self, hello: Hello, project: str, bridge: str) -> SessionProfile:
        return SessionProfile(
            self._services.profiles,
            self._services.environments,
            self._services.settings.profiles,
            project=project,
            variable=hello.profile,
            inherited=self._profile_of(SessionKey(hello.parent)) if hello.parent else _no_profile,
            bridge=bridge,
            bridges=self._services.settings.bridges,
        )

    def _profile_of(self, parent: SessionKey) -> Callable[[], str]:
        """Return a function that returns the name of the profile of the session `parent`.

        After that session has ended, the function returns the last name.
        """
        last = ""

        def inherited() -> str:
            nonlocal last
            opened = self._sessions.get(parent)
            if opened is not None:
                last = opened.session.profile.choice.name
            return last

        return inherited

    async def _describe(
        self, view: SessionView, record: SessionRecord | None
    ) -> finder.ToolsDescribed | None:
        """Ask the finder for the tools of a session that opens, and note them in its view.

        Return the answer; None if the finder does not answer.
        """
        view.decide(Surface(()))
        is_kept = view.keep(record.view if record is not None else None)
        # Mode `auto` depends on the size of the catalog, which is not known yet when the first
        # session of a daemon opens.
        waits = view.rules.mode == "auto" and not is_kept
        found = await described(self._services.finder, view, waits=waits)
        if found is not None and found.is_known:
            pinned = sum(view.is_pinned(h.server, h.name, h.wire_name) for h in found.matching)
            is_all = not found.unlisted
            catalog = ToolTotals(found.tools, found.model_bytes, is_all, found.skills)
            view.described(
                found.tools,
                found.size_bytes,
                is_all=is_all,
                pinned=pinned,
                catalog=catalog if found.everything else None,
            )
        return found

    async def _lease_eager(self, opened: OpenSession, found: finder.ToolsDescribed) -> None:
        session = opened.session
        if opened.is_ending:
            return
        with trio.CancelScope() as opened.opening:
            if not found.is_known:
                # The first session of a daemon comes before the catalog has been read.
                found = await described(self._services.finder, session.view, waits=True) or found
            await session.initial_tools.lease_eager(found.eager)
        opened.opening = None

    def _inherit(self, opened: OpenSession, parent: SessionKey) -> None:
        """Activate in a session everything that is active in its parent."""
        session, of = opened.session, self._sessions.get(parent)
        if of is None or of.is_ending:
            log.warning("parent_unknown", session=session.place.key, parent=parent)
            return
        session.snapshot.restore(of.session.snapshot.record(""), is_same_client=False)
        self._nursery.start_soon(
            partial(contained, "inherited", session.initial_tools.lease_inherited, log=log)
        )

    def _new_session(
        self, request: messages.OpenSession, view: SessionView, profile: SessionProfile
    ) -> OpenSession:
        hello = request.hello
        key = SessionKey(hello.session)
        while not key or key in self._sessions:
            key = fresh_key(hello.client.name, secrets.token_hex(2))
            key = session_key(request.bridge, key) if request.bridge else key
        project = hello.project or hello.cwd
        place = SessionPlace(
            key,
            hello.client.name,
            project,
            domain=view.domain,
            bridge=request.bridge,
            far_project=request.far_project,
            far_folder=request.far_folder,
            parent=hello.parent,
        )
        session = Session(place, view, self._services, _Change(self._on_change, key), profile)
        if hello.parent in self._sessions:
            self._services.results.readers.started(key, SessionKey(hello.parent))
        opened = self._sessions[key] = OpenSession(
            session,
            "",
            time.time(),
            pid := 0 if request.bridge else request.peer_pid,
            hello.client.pid,
            platform.parent_pid(pid) or 0,
        )
        return opened

    def _note(self, place: SessionPlace) -> None:
        note = SessionNote(time.time(), place.key, place.client, place.project, "started")
        self._services.journal.note(note)
