"""The one mailbox of all curators: finds a session by its key, and watches over its life.

    hello ──> connected ──goodbye, or its process is gone──> over (holds nothing)
                 ^  │ socket lost, process alive
       resume ───┘  v
                  lost ──30 s──> over

A mailbox a session would cost two file descriptors each and end at a thousand (85-facts, 2).
"""

import secrets
import time
from dataclasses import dataclass, field
from functools import partial

import structlog
import trio

from capd.actors.curator import Curator
from capd.actors.draining import Drain
from capd.actors.followed_settings import FollowedSettings
from capd.actors.habit_keeper import HabitKeeper, HabitStore
from capd.actors.hook_linking import HookCounts, candidate_of, hook_of
from capd.actors.index_desk import IndexDesk
from capd.actors.outside_calls import called_from_outside
from capd.actors.recent_uses import RecentUses
from capd.actors.result_desk import ResultRoom
from capd.actors.sampling import sampled
from capd.actors.searching import described
from capd.actors.session_keeper import SAVE_TIMEOUT, SessionKeeper, SessionStore
from capd.actors.token_desk import TokenBook, TokenDesk
from capd.adapters import platform
from capd.adapters.argument_checks import ArgumentChecks
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.clients.upstream import Upstream
from capd.adapters.ledger.journal import Journal
from capd.adapters.live_settings import LiveSettings
from capd.adapters.servers.instance import Instance
from capd.adapters.trust.real_paths import RealPaths
from capd.core.sessions import hook_context
from capd.core.sessions.claiming import refusal
from capd.core.sessions.domains import Domains
from capd.core.sessions.linking import link
from capd.core.sessions.session_keys import fresh_key, is_key
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.session_record import SessionRecord
from capd.core.sessions.session_rules import SessionRules
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.surface import Surface
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.handover import Handover
from capd.runtime.serving import serve
from capd_protos import curator as messages
from capd_protos import finder, registry, settings, supervisor
from capd_protos.codec import MsgpackCodec
from capd_protos.ledger import SessionNote
from capd_protos.naming import NameBook, Named, advice
from capd_protos.socket import Hello
from capd_protos.types import ActorName, InstanceId, SessionKey

NAME = ActorName("curator")
REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
Hint = (
    supervisor.ServerToolsChanged
    | supervisor.ServerStarted
    | supervisor.ServerExited
    | registry.CatalogChanged
    | settings.SettingsChanged
)
HINTS: MsgpackCodec[Hint] = MsgpackCodec(Hint)
TOPICS = (
    *("server.tools_changed", "server.started", "server.exited"),
    "registry.changed",
    "settings.changed",
)

LOST_RETENTION = 30.0
"""Seconds that a session whose socket was lost keeps its leases (30-activation)."""
HANDOVER_TIMEOUT = 10.0
LOOK_AGAIN = 0.25
INDEX_PATIENCE = 1.5
"""Seconds for which a connection's first answer waits for what its instructions are to name."""

STOPPING = "this daemon is stopping; try again"

log = structlog.get_logger(actor="curator")


@dataclass(slots=True, eq=False)
class _Session:
    curator: Curator
    resume: str
    opened_at: float
    pid: int
    """The process at the other end of the socket, by the kernel's word."""
    client_pid: int
    parent_pid: int
    """The process that started the one at the other end: the client itself, behind a shim."""
    is_ending: bool = False
    claim: int = 0
    """Counts connections: only the newest may end the session."""
    process: str | None = None
    beginning: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Of what goes on beside the session from its opening on."""


class CuratorHost:
    """Message in, the right curator asked."""

    def __init__(
        self,
        bus: Bus,
        connections: Handover[int, Connection],
        instances: Handover[InstanceId, Instance],
        environments: SessionEnvironments,
        store: SessionStore,
        *,
        version: str,
        rules: SessionRules | None = None,
        results: ResultRoom | None = None,
        domains: Domains | None = None,
        journal: Journal | None = None,
        live: LiveSettings | None = None,
        habits: HabitStore | None = None,
        tokens: TokenDesk | None = None,
        paths: RealPaths | None = None,
        index: IndexDesk | None = None,
    ) -> None:
        """`rules` and `domains` are for who has no settings that live."""
        # Not `or`: a journal that nothing waits in is false.
        self._journal = Journal() if journal is None else journal
        self._uses = RecentUses(bus)
        self._tokens = tokens or TokenDesk(bus)
        self._index = index or IndexDesk(bus)
        self._results = results
        self._paths = paths or RealPaths()
        self._settings = FollowedSettings(
            rules or SessionRules(), domains or Domains(), live, results
        )
        self._bus = bus
        self._store = store
        self._connections = connections
        self._instances = instances
        self._environments = environments
        self._habit_keeper = HabitKeeper(habits)
        self._checks = ArgumentChecks()
        self._version = version
        self._sessions: dict[SessionKey, _Session] = {}
        self._keeper = SessionKeeper(store, self._record)
        self._drain = Drain()
        self._hooks = HookCounts()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; before a planned stop clients are told to come back."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._listen)
                nursery.start_soon(self._keeper.run)
                await self._habit_keeper.load()
                nursery.start_soon(self._habit_keeper.run)
                nursery.start_soon(self._checks.run)
                nursery.start_soon(self._uses.follow)
                nursery.start_soon(self._index.follow)
                nursery.start_soon(self._tokens.run, self._books)
                if self._results is not None:
                    nursery.start_soon(self._results.store.sweep)
                await serve(
                    self._bus, NAME, REQUESTS, self._replied, log=log, task_status=task_status
                )
        finally:
            # Not cancelled from outside, this actor has failed: what its sessions hold would be
            # held for ever, for the next one does not know of them.
            has_failed = trio.current_effective_deadline() != float("-inf")
            with trio.CancelScope(shield=True), trio.move_on_after(SAVE_TIMEOUT):
                await self._keeper.save_all()
            if has_failed:
                await self._release_all()
            self._sessions.clear()

    async def _release_all(self) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(SAVE_TIMEOUT):
            async with trio.open_nursery() as nursery:
                for session in self._sessions.values():
                    nursery.start_soon(session.curator.activation.holds.release_all)

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.OpenSession():
                return await self._open(request)
            case messages.ListSessions():
                return self._listed()
            case messages.TakeHookTurn():
                return await self._hook_turn(request)
            case messages.DrainSessions():
                return await self._drain.finish(self._upstreams, request.within)
            case messages.DescribeTokens():
                return await self._tokens.described(request.within, self._books)
        curator = self._find(request.session)
        if isinstance(curator, messages.CuratorRefused):
            return curator
        return await self._session_reply(curator, request)

    async def _session_reply(
        self, curator: Curator, request: messages.SessionRequest
    ) -> messages.Reply:
        key = curator.place.key
        match request:
            case messages.TakeTurn(text=text):
                return await curator.take_turn(text)
            case messages.EnableCapability(name=name):
                outcome = await curator.activation.enable(name, by="person")
            case messages.DisableCapability(name=name):
                outcome = await curator.activation.disable(name, by="person")
            case messages.SwitchRouting(is_on=is_on):
                outcome = curator.switch_routing(is_on=is_on)
            case messages.SampleText():
                return await sampled(curator, request)
            case messages.DescribeReach():
                return curator.reach()
            case messages.CallTool():
                with self._drain.call():
                    return await called_from_outside(curator, request)
            case messages.ListTools():
                return messages.ToolsListed(key, curator.definitions())
        return messages.CapabilityAnswered(
            key, outcome.is_ok, outcome.text, list(outcome.added), list(outcome.removed)
        )

    async def _hook_turn(self, request: messages.TakeHookTurn) -> messages.Reply:
        found = link(
            hook_of(request),
            [candidate_of(s.curator, s.parent_pid) for s in self._sessions.values()],
        )
        self._hooks.note(request.client, found)
        log.info("hook_linked", client=request.client, session=found.key, how=found.how)
        if found.key is None:
            text = f"no one session belongs to this hook ({found.how}): name it with --session"
            return messages.CuratorRefused("unlinked", text)
        curator = self._sessions[found.key].curator
        curator.linked_by = found.how
        if request.client_session:
            curator.client_sessions.add(request.client_session)
        taken = await curator.take_hook_turn(request.text)
        curator.tokens.turned(hook_context.said(taken.context, taken.suggestion, taken.index))
        return taken

    def _books(self) -> list[TokenBook]:
        return [session.curator.tokens for session in self._sessions.values()]

    def _upstreams(self) -> list[Upstream]:
        found = (session.curator.upstream for session in self._sessions.values())
        return [upstream for upstream in found if upstream is not None]

    def _find(self, key: SessionKey) -> Curator | messages.CuratorRefused:
        if not key and len(self._sessions) == 1:
            return next(iter(self._sessions.values())).curator
        known = ", ".join(self._sessions) or "none is open"
        if not key:
            text = f"which session? ({known}) Name one with --session."
            return messages.CuratorRefused("session_ambiguous", text)
        meant = NameBook(self._sessions).find(key)
        if isinstance(meant, Named):
            return self._sessions[SessionKey(meant.name)].curator
        hint = advice(meant) or f"Sessions: {known}."
        text = f"no session {key!r}. {hint}"
        return messages.CuratorRefused("session_unknown", text)

    def _listed(self) -> messages.SessionsListed:
        now = time.time()
        return messages.SessionsListed(
            [
                session.curator.entry(now, session.opened_at, session.client_pid or session.pid)
                for session in self._sessions.values()
            ],
            self._hooks.listed(),
        )

    # Life of a session

    async def _open(self, request: messages.OpenSession) -> messages.Reply:
        hello = request.hello
        if self._drain.is_on:
            self._connections.take(request.connection)
            return messages.CuratorRefused("stopping", STOPPING)
        record = None
        if is_key(hello.session) and SessionKey(hello.session) not in self._sessions:
            record = await self._store.load(SessionKey(hello.session))
        project = hello.project or hello.cwd
        await self._settings.meet(project)
        view = SessionView(
            self._settings.rules(project),
            client=hello.client.name,
            project=project,
            habits=self._habit_keeper.habits,
            version=hello.client.version,
            is_bare=request.is_bare,
            has_results=self._results is not None,
            domain=self._settings.domain(hello.client.name, project),
        )
        # Before anything is created: another request for this key may come while we wait.
        found = None
        if SessionKey(hello.session) not in self._sessions and not view.is_bare:
            found = await self._described(view)
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
            self._note(session.curator.place, "started")
        elif session.curator.upstream is not None:
            session.curator.upstream.close("resumed elsewhere", reconnect=False)
        session.resume = secrets.token_urlsafe(16)
        session.claim += 1
        session.pid = request.peer_pid
        session.parent_pid = platform.parent_pid(request.peer_pid) or 0
        if hello.client.session:
            session.curator.client_sessions.add(hello.client.session)
        session.process = platform.process_start_time(request.peer_pid)
        key = session.curator.place.key
        self._keeper.changed(key)
        served = (self._serve_connection, session, connection, hello.dispatched)
        self._nursery.start_soon(partial(contained, log=log), "session", *served)
        self._bus.publish(messages.SessionStarted(key, hello.client.name))
        log.info("session_opened", session=key, client=hello.client.name, resumed=resumed)
        return messages.SessionOpened(key, session.resume, resumed)

    def _begin(
        self,
        session: _Session,
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

    async def _described(self, view: SessionView) -> finder.ToolsDescribed | None:
        """Return what there is for a session that is to be opened, and have its view follow."""
        view.settle(Surface(()))
        # What a changing list costs depends on how much there is, which the first sessions of a
        # daemon come before.
        waits = view.rules.mode == "auto" and view.plan.mode == "dynamic"
        found = await described(self._bus, view, waits=waits)
        if found is not None and found.is_known:
            pinned = sum(view.is_pinned(h.server, h.name, h.wire_name) for h in found.matching)
            is_all = not found.unlisted
            view.described(found.tools, found.size_bytes, is_all=is_all, pinned=pinned)
        return found

    async def _hold_eager(self, session: _Session, found: finder.ToolsDescribed) -> None:
        with trio.CancelScope() as session.beginning:
            if not found.is_known:
                # The first session of a daemon comes before the catalog has been read.
                found = await described(self._bus, session.curator.view, waits=True) or found
            await contained(
                "eager servers", session.curator.beginning.hold_eager, found.eager, log=log
            )

    def _inherit(self, session: _Session, parent: SessionKey) -> None:
        """Give a session what the one that started it has on at this moment."""
        of = self._sessions.get(parent)
        if of is None or of.is_ending:
            log.warning("parent_unknown", session=session.curator.place.key, parent=parent)
            return
        session.curator.restore(of.curator.record(""), is_same_client=False)
        self._nursery.start_soon(
            partial(contained, "inherited", session.curator.beginning.hold_inherited, log=log)
        )

    def _new_session(self, request: messages.OpenSession, view: SessionView) -> _Session:
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
            on_change=lambda: self._keeper.changed(key),
            uses=self._uses,
            checks=self._checks,
            results=self._results,
            journal=self._journal,
            tokens=self._tokens,
            index=self._index,
        )
        if self._results is not None and hello.parent in self._sessions:
            self._results.readers.started(key, SessionKey(hello.parent))
        session = self._sessions[key] = _Session(
            curator,
            "",
            time.time(),
            request.peer_pid,
            hello.client.pid,
            platform.parent_pid(request.peer_pid) or 0,
        )
        return session

    async def _serve_connection(
        self, session: _Session, connection: Connection, wants_dispatched: bool
    ) -> None:
        claim = session.claim
        curator = session.curator
        upstream: Upstream | None = None
        try:
            with trio.move_on_after(HANDOVER_TIMEOUT):
                await connection.welcomed.wait()
            with trio.move_on_after(INDEX_PATIENCE):
                await curator.index.meet()
            upstream = Upstream(
                connection.sink,
                connection.lines,
                session=curator.place.key,
                client=curator.client,
                wants_dispatched=wants_dispatched,
                is_initialized=curator.is_initialized,
                version=self._version,
                log=log,
            )
            upstream.is_draining = self._drain.is_on
            curator.upstream = upstream
            await upstream.run(curator)
        finally:
            if upstream is not None:
                curator.is_initialized = upstream.is_initialized
            if claim == session.claim:
                curator.upstream = None
                is_goodbye = upstream is not None and upstream.is_goodbye
                if not is_goodbye:
                    await self._wait_while_lost(session, claim)
                if claim == session.claim:
                    await self._end(session)

    async def _wait_while_lost(self, session: _Session, claim: int) -> None:
        """Wait until the session is taken up again, its process is gone, or 30 s have passed."""
        log.info("session_lost", session=session.curator.place.key)
        with trio.move_on_after(LOST_RETENTION):
            while claim == session.claim:
                alive = platform.process_start_time(session.pid)
                if alive is None or alive != session.process:
                    return
                await trio.sleep(LOOK_AGAIN)

    async def _end(self, session: _Session) -> None:
        key = session.curator.place.key
        # Found until it holds nothing: another session of this key must not share its holds.
        session.is_ending = True
        session.beginning.cancel()
        await self._keeper.save(key)
        await session.curator.activation.holds.release_all()
        self._environments.drop(key)
        del self._sessions[key]
        if self._results is not None:
            self._results.readers.ended(key)
        self._note(session.curator.place, "ended")
        log.info("session_ended", session=key)
        self._bus.publish(messages.SessionEnded(key))

    def _note(self, place: SessionPlace, action: str) -> None:
        note = SessionNote(time.time(), place.key, place.client, place.project, action)
        self._journal.note(note)

    def _record(self, key: SessionKey) -> SessionRecord | None:
        session = self._sessions.get(key)
        return session.curator.record(session.resume) if session is not None else None

    # What others say

    def _follow_settings(self) -> None:
        curators = [each.curator for each in self._sessions.values()]
        self._settings.changed(curators)
        for curator in curators:
            release = curator.activation.release_left
            self._nursery.start_soon(partial(contained, "release", release, log=log))

    async def _listen(self) -> None:
        async with self._bus.subscribe(HINTS, *TOPICS) as hints:
            async for hint in hints:
                if isinstance(hint, supervisor.ServerToolsChanged):
                    for session in list(self._sessions.values()):
                        self._nursery.start_soon(self._follow_tools, session, hint.instance)
                    continue
                if isinstance(hint, supervisor.ServerStarted | supervisor.ServerExited):
                    for session in list(self._sessions.values()):
                        if hint.identity in session.curator.activation.holds.subscribed.servers:
                            self._nursery.start_soon(self._renew, session)
                    continue
                if isinstance(hint, settings.SettingsChanged):
                    self._follow_settings()
                    continue
                for session in list(self._sessions.values()):
                    if hint.project:
                        self._nursery.start_soon(self._follow_project, session, hint)
                    else:
                        _follow_catalog(session, hint)

    async def _follow_project(self, session: _Session, hint: registry.CatalogChanged) -> None:
        """Follow a catalog if it is of the session's project."""
        if await self._paths.again(session.curator.place.project) == hint.project:
            _follow_catalog(session, hint)

    async def _follow_tools(self, session: _Session, instance: InstanceId) -> None:
        changed = session.curator.activation.server_tools_changed
        await contained("changed tools", changed, instance, log=log)

    async def _renew(self, session: _Session) -> None:
        await contained("subscriptions", session.curator.renew_subscriptions, log=log)


def _follow_catalog(session: _Session, hint: registry.CatalogChanged) -> None:
    if hint.has_other_skills:
        session.curator.skills_changed()
    if session.curator.upstream is not None and hint.wanted_keys:
        session.curator.upstream.want_environment(hint.wanted_keys)
