"""The one mailbox of all sessions, the *curator*: opens sessions, finds them by key, ends them.

    hello ──> connected ──goodbye, or its process is gone──> over (holds nothing)
                 ^  │ socket lost, process alive
       resume ───┘  v
                  lost ──30 s──> over

A mailbox for each session would need two file descriptors per session, which would limit a daemon
to about a thousand sessions (docs/design/actors.md).
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog
import trio

from capd.actor_clients.embedder import EmbedderClient
from capd.actor_clients.names import CURATOR
from capd.actors.session.drain import Drain
from capd.actors.session.hooks import answering, hook_turn, keyed_turn
from capd.actors.session.model_keeping import ModelKeeping
from capd.actors.session.opening import SessionOpenings
from capd.actors.session.parts import SessionHosting
from capd.actors.session.sampling import sample
from capd.actors.session.services import SessionServices
from capd.actors.session.session import Session
from capd.actors.session.store import SessionSaver, SessionStore
from capd.actors.session.sub_agents import AgentSession
from capd.actors.session.table import OpenSession, OpenSessions
from capd.adapters import platform
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.clients.parking import Parking
from capd.adapters.clients.upstream import Upstream
from capd.adapters.large_frames import read_all
from capd.adapters.memory_trimming import MemoryTrimmer
from capd.adapters.servers.callers import CallHooks
from capd.adapters.step_boundary import boundary
from capd.adapters.trust.real_paths import RealPaths
from capd.core.errors import described
from capd.core.protocol.generations import raw
from capd.core.protocol.outcomes import CallFailedError, ServerError, internal_failure
from capd.core.sessions.bridges import session_key
from capd.core.sessions.session_record import SessionRecord
from capd.core.sessions.sub_agents import AgentId
from capd.runtime.boundary import contained, kept_running
from capd.runtime.handle_table import HandleTable
from capd.runtime.mailbox import serve
from capd_protos import curator as messages
from capd_protos import finder, registry, settings, supervisor
from capd_protos.codec import MsgpackCodec
from capd_protos.ledger import SessionNote
from capd_protos.socket import Hello
from capd_protos.types import InstanceId, SessionKey

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
Hint = (
    supervisor.ServerToolsChanged
    | supervisor.ServerStarted
    | supervisor.ServerExited
    | registry.CatalogChanged
    | settings.SettingsChanged
    | finder.ToolsIndexed
)
HINTS: MsgpackCodec[Hint] = MsgpackCodec(Hint)
TOPICS = (
    *("server.tools_changed", "server.started", "server.exited"),
    "registry.changed",
    "settings.changed",
    "index.tools",
)
LOST_RETENTION = 30.0
"""Seconds for which a session without a socket keeps its leases (docs/design/surface.md)."""
WELCOME_TIMEOUT = 10.0
LOOK_AGAIN = 0.25
RELEASE_TIMEOUT = 2.0

log = structlog.get_logger(actor="curator")


class SessionHost:
    """The curator's mailbox: finds the session that a message is for, and answers the message."""

    def __init__(
        self,
        services: SessionServices,
        connections: HandleTable[int, Connection],
        store: SessionStore,
        *,
        version: str,
        model_idle: float = 0.0,
    ) -> None:
        """Create it.

        `model_idle` is the number of seconds after which the embedder unloads its model; 0 if capd
        does not keep the model loaded for a user who is connected.
        """
        self.services = services
        self._bus = services.bus
        self._memories = services.memories
        self._paths = RealPaths()
        self._version = version
        self._sessions = OpenSessions()
        services.index.open_projects = services.memories.open_projects = self._sessions.projects
        self._store = store
        self._saver = SessionSaver(store, self._record)
        self._drain = Drain()
        self._parking = Parking()
        self._memory_trimmer = MemoryTrimmer(lambda: not self._sessions)
        self._model_keeping = ModelKeeping(
            EmbedderClient(services.bus), self._sessions.has_prompts, idle=model_idle
        )
        self._openings = SessionOpenings(
            self._sessions,
            services,
            connections,
            store,
            drain=self._drain,
            on_change=self._saver.changed,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then save the sessions."""
        services = self.services
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._openings.run_in(nursery)
                self._hosting = SessionHosting(nursery, self._open_agent, self._end_agent)
                self._answering = partial(answering, nursery=nursery)
                # One bound method for all sessions, which saves memory.
                self._serve_on = self._serve_again
                await services.habits.load()
                await services.approvals.load()
                await self._memories.load()
                kept: dict[str, Callable[[], Awaitable[object]]] = {
                    "hints": self._listen,
                    "session records": self._saver.run,
                    "open sessions": partial(self._saver.save_again, self._sessions.saved_keys),
                    "idle connections": self._parking.run,
                    "memory trimming": self._memory_trimmer.run,
                    "model keeping": self._model_keeping.run,
                    "habits": services.habits.run,
                    "approvals": services.approvals.run,
                    "memories": partial(self._memories.run, self._correct),
                    "recent uses": services.uses.follow,
                    "index": services.index.follow,
                    "tokens": partial(services.tokens.run, self._sessions.token_counts),
                    "stored results": services.results.store.sweep,
                }
                for name, run in kept.items():
                    nursery.start_soon(partial(kept_running, log=log), name, run)
                await serve(
                    self._bus, CURATOR, REQUESTS, self._replied, log=log, task_status=task_status
                )
        finally:
            # If nobody cancelled this actor, it has failed and is restarted. Its successor does not
            # know these sessions, so their leases would never end.
            has_failed = trio.current_effective_deadline() != float("-inf")
            await self._saver.flush()
            self.services.scripts.close()
            if has_failed:
                await self._release_all()
            self._parking.close()
            self._sessions.clear()

    @property
    def _problem(self) -> str:
        """Return why a restart would lose some state, one reason a line; empty if it would not."""
        services = self.services
        savers = (self._saver, services.habits, self._memories, services.approvals)
        return "\n".join(each.problem for each in savers if each.problem)

    async def _release_all(self) -> None:
        with trio.CancelScope(shield=True), trio.move_on_after(RELEASE_TIMEOUT):
            async with trio.open_nursery() as nursery:
                for opened in self._sessions.values():
                    release_all = opened.session.activation.leases.release_all
                    nursery.start_soon(partial(contained, log=log), "leases", release_all)

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.OpenSession():
                return await self._open(request)
            case messages.ListSessions():
                return self._sessions.entries(self._problem)
            case messages.TakeHookTurn():
                return await self._hook_turn(request)
            case messages.DrainSessions():
                return await self._drain.finish(
                    self._sessions.upstreams, request.within, is_for_good=request.is_for_good
                )
            case messages.LeaveProject(project=project):
                return await self._leave(project)
            case messages.EndBridge(bridge):
                return await self._end_bridge(bridge)
            case messages.DescribeTokens():
                return await self.services.tokens.described(
                    request.within, self._sessions.token_counts
                )
            case messages.DescribeMemories(project):
                return await self._memories.described(project)
            case messages.ListProfiles():
                return self._profiles()
            case messages.ListApprovals() | messages.AnswerApproval() | messages.ForgetApprovals():
                return self._on_approvals(request)
        session = self._sessions.find(request.session)
        if isinstance(session, messages.CuratorRefused):
            return session
        return await self._session_reply(session, request)

    async def _session_reply(
        self, session: Session, request: messages.SessionRequest
    ) -> messages.Reply:
        key = session.place.key
        match request:
            case messages.TakeTurn():
                return await keyed_turn(session, request, self._nursery)
            case messages.EnableCapability(name=name):
                outcome = await session.activation.enable(name, by="program")
            case messages.DisableCapability(name=name):
                outcome = await session.activation.disable(name, by="program")
            case messages.SwitchCapability(name=name, is_on=is_on):
                outcome = await session.switch(name, is_on=is_on)
            case messages.UseProfile(name=name):
                outcome = await session.use_profile(name)
            case messages.SwitchRouting(is_on=is_on):
                outcome = session.switch_routing(is_on=is_on)
            case messages.SampleText():
                return await sample(session, request)
            case messages.DescribeReach():
                return session.reach()
            case messages.CallTool():
                with self._drain.call():
                    return await call_from_outside(session, request)
            case messages.ListTools():
                return messages.ToolsListed(key, session.calls.definitions())
        return messages.CapabilityAnswered(
            key, outcome.is_ok, outcome.text, list(outcome.added), list(outcome.removed)
        )

    def _profiles(self) -> messages.ProfilesListed:
        profiles = [
            messages.ProfileEntry(
                each.name,
                folders=list(each.folders),
                remotes=list(each.remotes),
                branches=list(each.branches),
                clients=list(each.clients),
                capabilities=list(each.on),
                secrets=each.secrets,
            )
            for each in self.services.settings.profiles().values()
        ]
        choices = [(each.place.key, each.profile.choice) for each in self._sessions.sessions()]
        return messages.ProfilesListed(
            profiles,
            [
                messages.SessionProfile(key, choice.name, choice.why, choice.problem)
                for key, choice in choices
            ],
        )

    def _on_approvals(
        self, request: messages.ListApprovals | messages.AnswerApproval | messages.ForgetApprovals
    ) -> messages.Reply:
        approvals = self.services.approvals
        match request:
            case messages.ListApprovals():
                return approvals.listed()
            case messages.ForgetApprovals(name):
                return messages.ApprovalsForgotten(approvals.forget(name))
            case messages.AnswerApproval(number, answer):
                if numbers := approvals.answer(number, answer):
                    return messages.ApprovalAnswered(numbers)
                text = (
                    f"no call {number} waits for you: it was answered, given up or is too old. "
                    "capd approve lists those that wait."
                )
                return messages.CuratorRefused("no_approval", text)

    async def _hook_turn(self, request: messages.TakeHookTurn) -> messages.Reply:
        table = self.services.settings.rules("").table
        session = self._sessions.find_by_hook(request, table)
        if isinstance(session, messages.CuratorRefused):
            return session
        return await hook_turn(session, request, self._nursery)

    async def _end_bridge(self, bridge: str) -> messages.BridgeEnded:
        """End the sessions of a bridge at once, so that none of them can be resumed."""
        ended = [each for each in self._sessions.values() if each.session.place.bridge == bridge]
        for opened in ended:
            self._close(opened, "its bridge was revoked", reconnect=False)
        for opened in ended:
            if not opened.is_ending:
                await self._end(opened)
        await self._store.forget(session_key(bridge, ""))
        return messages.BridgeEnded(len(ended))

    async def _leave(self, project: str) -> messages.ProjectLeft:
        async with trio.open_nursery() as nursery:
            for session in self._sessions.sessions():
                leave = partial(self._leave_project, session, project)
                nursery.start_soon(partial(contained, "leave project", leave, log=log))
        return messages.ProjectLeft()

    async def _leave_project(self, session: Session, project: str) -> None:
        if session.may_hold_servers:
            await session.activation.leave_project(project)
        own = session.place.project
        if await self._paths.again(own) == project:
            await self._memories.reload_project(own)
            await session.on_memories_changed()

    # Life of a session

    async def _open(self, request: messages.OpenSession) -> messages.Reply:
        found = await self._openings.open(request)
        if isinstance(found, messages.CuratorRefused):
            return found
        opened, connection, resumed = found
        key, client = opened.session.place.key, request.hello.client.name
        opened.session.host(self._hosting, self._answering)
        read_ahead = partial(contained, "skills", opened.session.read_client_skills, log=log)
        self._nursery.start_soon(read_ahead)
        self._saver.changed(key)
        served = (self._serve_connection, opened, connection, request.hello)
        self._nursery.start_soon(partial(contained, log=log), "session", *served)
        may_compare = opened.session.view.may_compare
        self._bus.publish(messages.SessionStarted(key, client, may_compare))
        log.info("session_opened", session=key, client=client, resumed=resumed)
        return messages.SessionOpened(key, opened.resume, resumed)

    async def _open_agent(
        self, parent: SessionKey, agent: AgentId, record: SessionRecord
    ) -> AgentSession | None:
        await trio.lowlevel.checkpoint()
        opened = self._openings.open_agent(parent, agent, record)
        if opened is None:
            return None
        session = opened.session
        session.client_skills.nursery = self._nursery
        key, client = session.place.key, session.place.client
        self._bus.publish(messages.SessionStarted(key, client))
        log.info("session_opened", session=key, client=client, resumed=False)
        return session.as_agent()

    def _end_agent(self, key: SessionKey) -> None:
        opened = self._sessions.get(key)
        if opened is not None and not opened.is_ending:
            opened.is_ending = True
            self._nursery.start_soon(partial(contained, log=log), "sub-agent", self._end, opened)

    async def _serve_connection(
        self, opened: OpenSession, connection: Connection, hello: Hello
    ) -> None:
        claim = opened.claim
        session = opened.session
        try:
            with trio.move_on_after(WELCOME_TIMEOUT):
                await connection.welcomed.wait()
            upstream = Upstream(
                connection.sink,
                connection.lines,
                connection=session.connection,
                wants_dispatched=hello.dispatched,
                knows_durable=hello.durable,
                again=hello.again,
                version=self._version,
                log=log,
            )
            upstream.is_draining = self._drain.is_on
            session.connection.upstream = upstream
        except BaseException:
            await self._after_connection(opened, claim, None)
            raise
        await self._serve(opened, claim, upstream)

    async def _serve(self, opened: OpenSession, claim: int, upstream: Upstream) -> None:
        """Serve a connection until it is over, or has nothing to do.

        `claim` is the number of this connection; the session's next connection has a higher one. A
        connection with nothing to do keeps no task; the next bytes from its client start one.
        """
        self._parking.serve(upstream)
        try:
            # Errors are caught here, not around everything, so that they are logged before
            # `_after_connection`, which may take half a minute.
            await contained("connection", upstream.run, opened.session.calls, log=log)
        finally:
            self._parking.leave(upstream)
            if not upstream.is_idle:
                await self._after_connection(opened, claim, upstream)
        if upstream.is_idle:
            upstream.park(self._parking, _ServeAgain(self._serve_on, opened, claim, upstream))

    def _serve_again(self, opened: OpenSession, claim: int, upstream: Upstream) -> None:
        served = (self._serve, opened, claim, upstream)
        self._nursery.start_soon(partial(contained, log=log), "session", *served)

    async def _after_connection(
        self, opened: OpenSession, claim: int, upstream: Upstream | None
    ) -> None:
        if claim == opened.claim:
            opened.session.connection.upstream = None
            is_goodbye = upstream is not None and upstream.is_goodbye
            if not is_goodbye:
                await contained("lost", self._wait_while_lost, opened, claim, log=log)
            if claim == opened.claim:
                await self._end(opened)

    async def _wait_while_lost(self, opened: OpenSession, claim: int) -> None:
        """Wait until the session is resumed, its process is gone, or 30 s have passed."""
        log.info("session_lost", session=opened.session.place.key)
        with trio.move_on_after(LOST_RETENTION):
            while claim == opened.claim:
                # The process of a client behind a bridge cannot be seen from here.
                if not opened.session.place.bridge:
                    alive = platform.process_start_time(opened.pid)
                    if alive is None or alive != opened.process:
                        return
                await trio.sleep(LOOK_AGAIN)

    def _close(self, opened: OpenSession, reason: str, *, reconnect: bool) -> None:
        """Close a session's connection, which does not end the session; `_end` does."""
        opened.claim += 1
        upstream = opened.session.connection.upstream
        if upstream is not None:
            with boundary("close", log=log):
                upstream.close(reason, reconnect=reconnect)

    async def _end(self, opened: OpenSession) -> None:
        """End a session.

        If one step fails, the others still run, so the key and the leases become free.
        """
        place = opened.session.place
        key = place.key
        # The session stays in the table until its leases are released. Otherwise a new session with
        # this key would have them.
        opened.is_ending = True
        if opened.opening is not None:
            opened.opening.cancel()
        for each in self._sessions.of_agents(key):
            if not each.is_ending:
                await self._end(each)
        if not place.agent:
            await contained("save", self._saver.save, key, log=log)
        await contained("leases", opened.session.activation.leases.release_all, log=log)
        del self._sessions[key]
        with boundary("environment", log=log):
            self.services.environments.drop(key)
        with boundary("results", log=log):
            self.services.results.readers.ended(key)
        with boundary("approvals", log=log):
            self.services.approvals.approvals.end_session(key)
        with boundary("ledger note", log=log):
            note = SessionNote(time.time(), key, place.client, place.project, "ended")
            self.services.journal.note(note)
        log.info("session_ended", session=key)
        self._bus.publish(messages.SessionEnded(key))
        self._memory_trimmer.ended()

    def _record(self, key: SessionKey) -> SessionRecord | None:
        opened = self._sessions.get(key)
        return opened.session.snapshot.record(opened.resume) if opened is not None else None

    # Events of other actors

    def _follow_settings(self) -> None:
        settings = self.services.settings
        if not settings.are_live:
            return
        settings.on_change()
        for opened in list(self._sessions.values()):
            session = opened.session
            try:
                session.on_rules(settings.rules(session.place.project))
            except Exception as error:  # noqa: BLE001 - the boundary of one session
                log.error(
                    "task_failed", task="rules", session=session.place.key, **described(error)
                )
                # The session may have tools on that the new rules forbid. So end it; the client
                # connects again, and gets a session with the new rules.
                self._close(opened, "capd failed over its settings", reconnect=True)
                if not opened.is_ending:
                    opened.is_ending = True
                    self._nursery.start_soon(self._end, opened)
        for session in self._sessions.sessions():
            follow = session.follow_profile
            self._nursery.start_soon(partial(contained, "profile", follow, log=log))
        for session in self._sessions.with_servers():
            release = session.activation.release_left
            self._nursery.start_soon(partial(contained, "release", release, log=log))

    def _correct(self) -> None:
        for session in self._sessions.sessions():
            # Each in a task of its own, because a session may wait for a server that starts.
            correct = partial(contained, "corrections", session.on_memories_changed, log=log)
            self._nursery.start_soon(correct)

    async def _listen(self) -> None:
        async with self._bus.subscribe(HINTS, *TOPICS) as hints:
            async for hint in hints:
                # In a method of its own: a local variable here would keep the last session alive.
                with boundary("hint", log=log):
                    self._on_hint(hint)

    def _on_hint(self, hint: Hint) -> None:
        if isinstance(hint, supervisor.ServerToolsChanged):
            for session in self._sessions.with_servers():
                self._nursery.start_soon(self._follow_tools, session, hint.instance)
            return
        if isinstance(hint, supervisor.ServerStarted | supervisor.ServerExited):
            for session in self._sessions.with_servers():
                if hint.identity in session.activation.leases.subscribed.servers:
                    self._nursery.start_soon(self._renew, session)
            return
        if isinstance(hint, settings.SettingsChanged):
            self._follow_settings()
            return
        if isinstance(hint, finder.ToolsIndexed):
            for session in self._sessions.sessions():
                self._nursery.start_soon(self._follow_index, session)
            return
        if hint.has_other_memories:
            self._memories.changed()
        for session in self._sessions.sessions():
            if hint.project:
                follow = partial(self._follow_project, session, hint)
                self._nursery.start_soon(partial(contained, "project catalog", follow, log=log))
            else:
                with boundary("catalog", log=log):
                    _follow_catalog(session, hint)

    async def _follow_project(self, session: Session, hint: registry.CatalogChanged) -> None:
        """Apply a change of a project's catalog if `session` belongs to that project."""
        if await self._paths.again(session.place.project) == hint.project:
            _follow_catalog(session, hint)

    async def _follow_tools(self, session: Session, instance: InstanceId) -> None:
        changed = session.activation.server_tools_changed
        await contained("changed tools", changed, instance, log=log)

    async def _follow_index(self, session: Session) -> None:
        await contained("more tools", session.on_tools_indexed, log=log)

    async def _renew(self, session: Session) -> None:
        await contained("subscriptions", session.calls.renew_subscriptions, log=log)


@dataclass(frozen=True, slots=True, eq=False)
class _ServeAgain:
    """Serves the connection of one idle session again when it is called.

    A partial would take four times as much memory.
    """

    serve: Callable[[OpenSession, int, Upstream], None]
    opened: OpenSession
    claim: int
    upstream: Upstream

    def __call__(self) -> None:
        self.serve(self.opened, self.claim, self.upstream)


def _follow_catalog(session: Session, hint: registry.CatalogChanged) -> None:
    if hint.has_other_skills:
        session.on_skills_changed()
    upstream = session.connection.upstream
    # A client behind a bridge is not asked for values of its environment.
    if upstream is not None and hint.wanted_keys and not session.place.bridge:
        upstream.want_environment(hint.wanted_keys)


async def call_from_outside(session: Session, request: messages.CallTool) -> messages.ToolCalled:
    """Call a tool for somebody other than the session's client; return the outcome.

    Every failure is an outcome of the reply, not an exception.
    """
    key = session.place.key
    members = {"name": raw(request.name), "arguments": msgspec.Raw(request.arguments)}
    may_have_run = False

    async def on_dispatched() -> None:
        nonlocal may_have_run
        may_have_run = True

    caller = CallHooks(on_dispatched, client=session.connection.client)
    try:
        result = await read_all(await session.calls.answer(Request("tools/call", members, caller)))
    except UnknownNameError as error:
        return messages.ToolCalled(key, "not_found", message=str(error))
    except CallFailedError as error:
        return messages.ToolCalled(key, error.outcome, message=str(error))
    except ServerError as error:
        return messages.ToolCalled(key, "error", error.error)
    except Exception as error:  # noqa: BLE001 - the boundary: every failure is an outcome
        log.error("task_failed", task="call", session=key, **described(error))
        failure = internal_failure(error, was_sent=may_have_run)
        return messages.ToolCalled(key, failure.outcome, message=str(failure))
    return messages.ToolCalled(key, "result", result)
