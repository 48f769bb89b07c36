"""The one mailbox of all curators: finds a session by its key, and watches over its life.

    hello ──> connected ──goodbye, or its process is gone──> over (holds nothing)
                 ^  │ socket lost, process alive
       resume ───┘  v
                  lost ──30 s──> over

A mailbox a session would cost two file descriptors each and end at a thousand (85-facts, 2).
"""

import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec
import structlog
import trio

from capd.actors.activation import SessionPlace
from capd.actors.curator import Curator
from capd.adapters import platform
from capd.adapters.clients.connection import Connection
from capd.adapters.clients.conversation import Request, UnknownNameError
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.clients.upstream import Upstream
from capd.adapters.large_frames import held
from capd.adapters.servers.callers import CallHooks
from capd.adapters.servers.instance import Instance
from capd.core.protocol.eras import raw
from capd.core.protocol.outcomes import CallFailedError, ServerError
from capd.core.sessions.linking import Candidate, Hook, link
from capd.core.sessions.session_keys import fresh_key, is_key
from capd.core.sessions.session_record import SessionRecord, may_resume
from capd.core.tools.names import near_names
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.handover import Handover
from capd.runtime.serving import serve
from capd_protos import curator as messages
from capd_protos import registry, supervisor
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, InstanceId, SessionKey

NAME = ActorName("curator")
REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
Hint = supervisor.ServerToolsChanged | registry.CatalogChanged | messages.DaemonStopping
HINTS: MsgpackCodec[Hint] = MsgpackCodec(Hint)
TOPICS = ("server.tools_changed", "registry.changed", "daemon.stopping")

SAVE_TIMEOUT = 2.0
SAVE_PAUSE = 0.1
"""Seconds from a change to its writing down: what a turn changes is one record."""
LOST_RETENTION = 30.0
"""Seconds that a session whose socket was lost keeps its leases (30-activation)."""
HANDOVER_TIMEOUT = 10.0
LOOK_AGAIN = 0.25

log = structlog.get_logger(actor="curator")


class SessionStore(Protocol):
    """Where sessions are written down."""

    async def load(self, key: SessionKey) -> SessionRecord | None:
        """Return what is kept of `key`, if anything is."""
        ...

    async def save(self, record: SessionRecord) -> None:
        """Keep `record`."""
        ...

    async def sweep(self) -> None:
        """Remove what is past its retention."""
        ...


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
        cap: int,
        version: str,
    ) -> None:
        self._bus = bus
        self._store = store
        self._connections = connections
        self._instances = instances
        self._environments = environments
        self._cap = cap
        self._version = version
        self._sessions: dict[SessionKey, _Session] = {}
        self._unsaved: dict[SessionKey, None] = {}
        self._has_unsaved = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; before a planned stop clients are told to come back."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._listen)
                nursery.start_soon(self._keep)
                await serve(
                    self._bus, NAME, REQUESTS, self._replied, log=log, task_status=task_status
                )
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(SAVE_TIMEOUT):
                await self._save_all()
            self._sessions.clear()

    async def _replied(self, request: messages.Request) -> messages.Reply:
        match request:
            case messages.OpenSession():
                return await self._open(request)
            case messages.ListSessions():
                return self._listed()
            case messages.TakeHookTurn():
                return await self._hook_turn(request)
        curator = self._find(request.session)
        if isinstance(curator, messages.CuratorRefused):
            return curator
        key = curator.place.key
        match request:
            case messages.TakeTurn(text=text):
                return await curator.take_turn(text)
            case messages.EnableCapability(name=name):
                outcome = await curator.activation.enable(name)
            case messages.DisableCapability(name=name):
                outcome = await curator.activation.disable(name)
            case messages.CallTool():
                return await self._called(curator, request)
            case messages.ListTools():
                return messages.ToolsListed(key, curator.definitions())
        return messages.CapabilityAnswered(
            key, outcome.is_ok, outcome.text, list(outcome.added), list(outcome.removed)
        )

    async def _hook_turn(self, request: messages.TakeHookTurn) -> messages.Reply:
        candidates = [
            Candidate(
                key,
                session.curator.place.client,
                frozenset(session.curator.client_sessions),
                session.parent_pid,
                session.curator.place.project,
            )
            for key, session in self._sessions.items()
        ]
        hook = Hook(
            request.client, request.client_session, _ancestors(request.peer_pid), request.project
        )
        found = link(hook, candidates)
        log.info("hook_linked", client=request.client, session=found.key, how=found.how)
        if found.key is None:
            text = f"no one session belongs to this hook ({found.how}): name it with --session"
            return messages.CuratorRefused("unlinked", text)
        curator = self._sessions[found.key].curator
        curator.linked_by = found.how
        if request.client_session:
            curator.client_sessions.add(request.client_session)
        return await curator.take_turn(request.text)

    def _find(self, key: SessionKey) -> Curator | messages.CuratorRefused:
        if not key and len(self._sessions) == 1:
            return next(iter(self._sessions.values())).curator
        session = self._sessions.get(key)
        if session is not None:
            return session.curator
        known = ", ".join(self._sessions) or "none is open"
        if not key:
            text = f"which session? ({known}) Name one with --session."
            return messages.CuratorRefused("session_ambiguous", text)
        near = near_names(key, self._sessions)
        hint = f" Near names: {', '.join(near)}." if near else f" Sessions: {known}."
        return messages.CuratorRefused("session_unknown", f"no session {key!r}.{hint}")

    def _listed(self) -> messages.SessionsListed:
        now = time.time()
        return messages.SessionsListed(
            [
                session.curator.entry(now, session.opened_at, session.client_pid or session.pid)
                for session in self._sessions.values()
            ]
        )

    async def _called(self, curator: Curator, request: messages.CallTool) -> messages.ToolCalled:
        key = curator.place.key
        members = {"name": raw(request.name), "arguments": msgspec.Raw(request.arguments)}
        caller = CallHooks(client=curator.client)
        try:
            result = await held(await curator.relayed(Request("tools/call", members, caller)))
        except UnknownNameError as error:
            return messages.ToolCalled(key, "not_found", message=str(error))
        except CallFailedError as error:
            return messages.ToolCalled(key, error.outcome, message=str(error))
        except ServerError as error:
            return messages.ToolCalled(key, "error", error.error)
        return messages.ToolCalled(key, "result", result)

    # Life of a session

    async def _open(self, request: messages.OpenSession) -> messages.Reply:
        hello = request.hello
        record = None
        if is_key(hello.session) and SessionKey(hello.session) not in self._sessions:
            record = await self._store.load(SessionKey(hello.session))
        connection = self._connections.take(request.connection)
        if connection is None:
            return messages.CuratorRefused("bad_hello", "the connection is gone")
        if hello.session and not is_key(hello.session):
            text = "a session key is 1 to 128 of A-Z a-z 0-9 . _ : -"
            return messages.CuratorRefused("bad_hello", text)
        session = self._sessions.get(SessionKey(hello.session))
        resumed = session is not None or record is not None
        if session is None:
            if record is not None and not may_resume(record, hello.resume):
                text = f"session {hello.session} has another token by now"
                return messages.CuratorRefused("resume_refused", text)
            session = self._new_session(request)
            if record is not None:
                session.curator.restore(record)
        elif session.is_ending:
            text = f"session {hello.session} is just ending; try again"
            return messages.CuratorRefused("session_in_use", text)
        # As bytes: two strings must be ASCII, and one is the client's.
        elif not secrets.compare_digest(hello.resume.encode(), session.resume.encode()):
            code = "resume_refused" if hello.resume else "session_in_use"
            text = f"session {hello.session} is not over; resume it with its last token"
            return messages.CuratorRefused(code, text)
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
        self._changed(key)
        served = (self._serve_connection, session, connection, hello.dispatched)
        self._nursery.start_soon(partial(contained, log=log), "session", *served)
        self._bus.publish(messages.SessionStarted(key, hello.client.name))
        log.info("session_opened", session=key, client=hello.client.name, resumed=resumed)
        return messages.SessionOpened(key, session.resume, resumed)

    def _new_session(self, request: messages.OpenSession) -> _Session:
        hello = request.hello
        key = SessionKey(hello.session)
        while not key or key in self._sessions:
            key = fresh_key(hello.client.name, secrets.token_hex(2))
        place = SessionPlace(key, hello.client.name, hello.project or hello.cwd)
        curator = Curator(
            place,
            bus=self._bus,
            instances=self._instances,
            environments=self._environments,
            cap=self._cap,
            is_bare=request.is_bare,
            on_change=lambda: self._changed(key),
        )
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
        await self._save(key)
        await session.curator.activation.release_all()
        self._environments.drop(key)
        del self._sessions[key]
        log.info("session_ended", session=key)
        self._bus.publish(messages.SessionEnded(key))

    # What is written down

    def _changed(self, key: SessionKey) -> None:
        self._unsaved[key] = None
        self._has_unsaved.set()

    async def _keep(self) -> None:
        await self._store.sweep()
        while True:
            await self._has_unsaved.wait()
            await trio.sleep(SAVE_PAUSE)
            self._has_unsaved = trio.Event()
            await self._save_all()

    async def _save_all(self) -> None:
        for key in list(self._unsaved):
            await self._save(key)

    async def _save(self, key: SessionKey) -> None:
        self._unsaved.pop(key, None)
        session = self._sessions.get(key)
        if session is not None:
            await self._store.save(session.curator.record(session.resume))

    # What others say

    async def _listen(self) -> None:
        async with self._bus.subscribe(HINTS, *TOPICS) as hints:
            async for hint in hints:
                if isinstance(hint, supervisor.ServerToolsChanged):
                    for session in list(self._sessions.values()):
                        self._nursery.start_soon(self._follow_tools, session, hint.instance)
                    continue
                if isinstance(hint, messages.DaemonStopping):
                    for session in self._sessions.values():
                        if session.curator.upstream is not None:
                            session.curator.upstream.close("stopping", reconnect=True)
                    continue
                for session in self._sessions.values():
                    if session.curator.upstream is not None and hint.wanted_keys:
                        session.curator.upstream.want_environment(hint.wanted_keys)

    async def _follow_tools(self, session: _Session, instance: InstanceId) -> None:
        changed = session.curator.activation.server_tools_changed
        await contained("changed tools", changed, instance, log=log)


def _ancestors(pid: int) -> list[int]:
    """Return the processes above `pid`, the nearest first, down to process 1."""
    found: list[int] = []
    parent = platform.parent_pid(pid)
    while parent and parent not in found:
        found.append(parent)
        parent = platform.parent_pid(parent)
    return found
