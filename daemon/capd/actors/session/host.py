"""The one mailbox of all curators: finds a session by its key, and watches over its life.

    hello ──> connected ──goodbye, or its process is gone──> over (holds nothing)
                 ^  │ socket lost, process alive
       resume ───┘  v
                  lost ──30 s──> over

A mailbox a session would cost two file descriptors each and end at a thousand
(docs/design/actors.md).
"""

import time
from functools import partial

import msgspec
import structlog
import trio

from capd.actors.memory_return import MemoryReturn
from capd.actors.session.client_habits import HabitSaver, HabitStore
from capd.actors.session.drain import Drain
from capd.actors.session.hooks import hook_turn, keyed_turn
from capd.actors.session.index import IndexCache
from capd.actors.session.memory_catalog import MemoryCatalog
from capd.actors.session.opening import SessionOpenings
from capd.actors.session.recent_uses import RecentUses
from capd.actors.session.results import ResultStorage
from capd.actors.session.sampling import sampled
from capd.actors.session.session import Curator
from capd.actors.session.settings import FollowedSettings
from capd.actors.session.store import SessionSaver, SessionStore
from capd.actors.session.table import OpenSession, OpenSessions
from capd.actors.session.token_accounting import TokenAccounting
from capd.adapters import platform
from capd.adapters.argument_checks import ArgumentChecks
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.clients.upstream import Upstream
from capd.adapters.large_frames import held
from capd.adapters.ledger.journal import Journal
from capd.adapters.live_settings import LiveSettings
from capd.adapters.servers.callers import CallHooks
from capd.adapters.servers.instance import Instance
from capd.adapters.trust.real_paths import RealPaths
from capd.core.protocol.generations import raw
from capd.core.protocol.outcomes import CallFailedError, ServerError
from capd.core.sessions.domains import Domains
from capd.core.sessions.session_record import SessionRecord
from capd.core.sessions.session_rules import SessionRules
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.handle_table import HandleTable
from capd.runtime.serving import serve
from capd_protos import curator as messages
from capd_protos import registry, settings, supervisor
from capd_protos.codec import MsgpackCodec
from capd_protos.ledger import SessionNote
from capd_protos.types import ActorName, InstanceId, SessionKey


async def called_from_outside(curator: Curator, request: messages.CallTool) -> messages.ToolCalled:
    """Return the one outcome of a call that no client of the session has made."""
    key = curator.place.key
    members = {"name": raw(request.name), "arguments": msgspec.Raw(request.arguments)}
    caller = CallHooks(client=curator.client)
    try:
        result = await held(await curator.replied(Request("tools/call", members, caller)))
    except UnknownNameError as error:
        return messages.ToolCalled(key, "not_found", message=str(error))
    except CallFailedError as error:
        return messages.ToolCalled(key, error.outcome, message=str(error))
    except ServerError as error:
        return messages.ToolCalled(key, "error", error.error)
    return messages.ToolCalled(key, "result", result)


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


"""Seconds that a session whose socket was lost keeps its leases (docs/design/surface.md)."""


HANDOVER_TIMEOUT = 10.0


LOOK_AGAIN = 0.25


RELEASE_TIMEOUT = 2.0


log = structlog.get_logger(actor="curator")


class CuratorHost:
    """Message in, the right curator asked."""

    def __init__(
        self,
        bus: Bus,
        connections: HandleTable[int, Connection],
        instances: HandleTable[InstanceId, Instance],
        environments: SessionEnvironments,
        store: SessionStore,
        *,
        version: str,
        rules: SessionRules | None = None,
        results: ResultStorage | None = None,
        domains: Domains | None = None,
        journal: Journal | None = None,
        live: LiveSettings | None = None,
        habits: HabitStore | None = None,
        tokens: TokenAccounting | None = None,
        paths: RealPaths | None = None,
        memories: MemoryCatalog | None = None,
        index: IndexCache | None = None,
    ) -> None:
        """`rules` and `domains` are for who has no settings that live."""
        # Not `or`: a journal that nothing waits in is false.
        self._journal = Journal() if journal is None else journal
        self._uses = RecentUses(bus)
        self._tokens = tokens or TokenAccounting(bus)
        self._memories = memories or MemoryCatalog(bus)
        self._index = index or IndexCache(bus)
        self._results = results
        self._paths = paths or RealPaths()
        self._settings = FollowedSettings(
            rules or SessionRules(), domains or Domains(), live, results
        )
        self._bus = bus
        self._environments = environments
        self._habit_saver = HabitSaver(habits)
        self._checks = ArgumentChecks()
        self._version = version
        self._sessions = OpenSessions()
        self._index.open_projects = self._memories.open_projects = self._sessions.projects
        self._saver = SessionSaver(store, self._record)
        self._drain = Drain()
        self._memory_return = MemoryReturn(lambda: not self._sessions)
        self._openings = SessionOpenings(
            self._sessions,
            bus,
            connections,
            store,
            instances=instances,
            environments=environments,
            settings=self._settings,
            habits=self._habit_saver,
            drain=self._drain,
            uses=self._uses,
            checks=self._checks,
            results=results,
            journal=self._journal,
            tokens=self._tokens,
            memories=self._memories,
            index=self._index,
            on_change=self._saver.changed,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; before a planned stop clients are told to come back."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._openings.work_in(nursery)
                nursery.start_soon(self._listen)
                nursery.start_soon(self._saver.run)
                nursery.start_soon(self._memory_return.run)
                await self._habit_saver.load()
                nursery.start_soon(self._habit_saver.run)
                await self._memories.load()
                nursery.start_soon(self._memories.run, self._correct)
                nursery.start_soon(self._checks.run)
                nursery.start_soon(self._uses.follow)
                nursery.start_soon(self._index.follow)
                nursery.start_soon(self._tokens.run, self._sessions.books)
                if self._results is not None:
                    nursery.start_soon(self._results.store.sweep)
                await serve(
                    self._bus, NAME, REQUESTS, self._replied, log=log, task_status=task_status
                )
        finally:
            # Not cancelled from outside, this actor has failed: what its sessions hold would be
            # held for ever, for the next one does not know of them.
            has_failed = trio.current_effective_deadline() != float("-inf")
            await self._saver.flush()
            if has_failed:
                await self._release_all()
            self._sessions.clear()

    @property
    def _problem(self) -> str:
        """Why not all of what is known here outlives this daemon, a line each, or nothing."""
        savers = (self._saver, self._habit_saver, self._memories)
        return "\n".join(each.problem for each in savers if each.problem)

    async def _release_all(self) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(RELEASE_TIMEOUT):
            async with trio.open_nursery() as nursery:
                for session in self._sessions.values():
                    nursery.start_soon(session.curator.activation.leases.release_all)

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.OpenSession():
                return await self._open(request)
            case messages.ListSessions():
                return self._sessions.listed(self._problem)
            case messages.TakeHookTurn():
                return await self._hook_turn(request)
            case messages.DrainSessions():
                return await self._drain.finish(
                    self._sessions.upstreams, request.within, is_for_good=request.is_for_good
                )
            case messages.LeaveProject(project=project):
                return await self._leave(project)
            case messages.DescribeTokens():
                return await self._tokens.described(request.within, self._sessions.books)
            case messages.DescribeMemories(project):
                return await self._memories.described(project)
        curator = self._sessions.find(request.session)
        if isinstance(curator, messages.CuratorRefused):
            return curator
        return await self._session_reply(curator, request)

    async def _session_reply(
        self, curator: Curator, request: messages.SessionRequest
    ) -> messages.Reply:
        key = curator.place.key
        match request:
            case messages.TakeTurn():
                return await keyed_turn(curator, request, self._nursery)
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
        curator = self._sessions.hooked(request, self._settings.rules("").table)
        if isinstance(curator, messages.CuratorRefused):
            return curator
        return await hook_turn(curator, request, self._nursery)

    async def _leave(self, project: str) -> messages.ProjectLeft:
        async with trio.open_nursery() as nursery:
            for curator in self._sessions.curators():
                leave = partial(self._left_by, curator, project)
                nursery.start_soon(partial(contained, "leave project", leave, log=log))
        return messages.ProjectLeft()

    async def _left_by(self, curator: Curator, project: str) -> None:
        await curator.activation.leave_project(project)
        own = curator.place.project
        if await self._paths.again(own) == project:
            await self._memories.meet_again(own)
            await curator.correct_again()

    # Life of a session

    async def _open(self, request: messages.OpenSession) -> messages.Reply:
        opened = await self._openings.opened(request)
        if isinstance(opened, messages.CuratorRefused):
            return opened
        session, connection, resumed = opened
        key, client = session.curator.place.key, request.hello.client.name
        self._saver.changed(key)
        served = (self._serve_connection, session, connection, request.hello.dispatched)
        self._nursery.start_soon(partial(contained, log=log), "session", *served)
        self._bus.publish(messages.SessionStarted(key, client))
        log.info("session_opened", session=key, client=client, resumed=resumed)
        return messages.SessionOpened(key, session.resume, resumed)

    async def _serve_connection(
        self, session: OpenSession, connection: Connection, wants_dispatched: bool
    ) -> None:
        claim = session.claim
        curator = session.curator
        upstream: Upstream | None = None
        try:
            with trio.move_on_after(HANDOVER_TIMEOUT):
                await connection.welcomed.wait()
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

    async def _wait_while_lost(self, session: OpenSession, claim: int) -> None:
        """Wait until the session is taken up again, its process is gone, or 30 s have passed."""
        log.info("session_lost", session=session.curator.place.key)
        with trio.move_on_after(LOST_RETENTION):
            while claim == session.claim:
                alive = platform.process_start_time(session.pid)
                if alive is None or alive != session.process:
                    return
                await trio.sleep(LOOK_AGAIN)

    async def _end(self, session: OpenSession) -> None:
        key = session.curator.place.key
        # Found until it holds nothing: another session of this key must not share its holds.
        session.is_ending = True
        session.beginning.cancel()
        await self._saver.save(key)
        await session.curator.activation.leases.release_all()
        self._environments.drop(key)
        del self._sessions[key]
        if self._results is not None:
            self._results.readers.ended(key)
        place = session.curator.place
        note = SessionNote(time.time(), key, place.client, place.project, "ended")
        self._journal.note(note)
        log.info("session_ended", session=key)
        self._bus.publish(messages.SessionEnded(key))
        self._memory_return.ended()

    def _record(self, key: SessionKey) -> SessionRecord | None:
        session = self._sessions.get(key)
        return session.curator.record(session.resume) if session is not None else None

    # What others say

    def _follow_settings(self) -> None:
        curators = self._sessions.curators()
        self._settings.changed(curators)
        for curator in curators:
            release = curator.activation.release_left
            self._nursery.start_soon(partial(contained, "release", release, log=log))

    def _correct(self) -> None:
        for curator in self._sessions.curators():
            # Each by itself: one may wait for a server that starts.
            correct = partial(contained, "corrections", curator.correct_again, log=log)
            self._nursery.start_soon(correct)

    async def _listen(self) -> None:
        async with self._bus.subscribe(HINTS, *TOPICS) as hints:
            async for hint in hints:
                # A method of its own: a name here would keep the last session after its end.
                self._heard(hint)

    def _heard(self, hint: Hint) -> None:
        if isinstance(hint, supervisor.ServerToolsChanged):
            for session in self._sessions.values():
                self._nursery.start_soon(self._follow_tools, session, hint.instance)
            return
        if isinstance(hint, supervisor.ServerStarted | supervisor.ServerExited):
            for session in self._sessions.values():
                if hint.identity in session.curator.activation.leases.subscribed.servers:
                    self._nursery.start_soon(self._renew, session)
            return
        if isinstance(hint, settings.SettingsChanged):
            self._follow_settings()
            return
        if hint.has_other_memories:
            self._memories.changed()
        for session in list(self._sessions.values()):
            if hint.project:
                self._nursery.start_soon(self._follow_project, session, hint)
            else:
                _follow_catalog(session, hint)

    async def _follow_project(self, session: OpenSession, hint: registry.CatalogChanged) -> None:
        """Follow a catalog if it is of the session's project."""
        if await self._paths.again(session.curator.place.project) == hint.project:
            _follow_catalog(session, hint)

    async def _follow_tools(self, session: OpenSession, instance: InstanceId) -> None:
        changed = session.curator.activation.server_tools_changed
        await contained("changed tools", changed, instance, log=log)

    async def _renew(self, session: OpenSession) -> None:
        await contained("subscriptions", session.curator.renew_subscriptions, log=log)


def _follow_catalog(session: OpenSession, hint: registry.CatalogChanged) -> None:
    if hint.has_other_skills:
        session.curator.skills_changed()
    if session.curator.upstream is not None and hint.wanted_keys:
        session.curator.upstream.want_environment(hint.wanted_keys)
