"""The control role of a connection: a method in, messages to actors, one document out."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import structlog
import trio

from capd.actors import reports
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.frame_writer import FrameWriter
from capd.adapters.line_texts import checked_text, recover_id
from capd.adapters.stdio_frames import (
    Frame,
    FrameCutError,
    FrameReader,
    FrameStalledError,
    Oversized,
    WriterFullError,
    WriterStalledError,
)
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd_protos import curator, embedder, finder, registry, supervisor
from capd_protos import socket as frames
from capd_protos.codec import JsonCodec, MalformedError, MsgpackCodec
from capd_protos.types import ActorName, SessionKey

REGISTRY = ActorName("registry")
SUPERVISOR = ActorName("supervisor")
CURATOR = ActorName("curator")
EMBEDDER = ActorName("embedder")
FINDER = ActorName("finder")

REGISTRY_REPLIES: MsgpackCodec[registry.Reply] = MsgpackCodec(registry.Reply)
SUPERVISOR_REPLIES: MsgpackCodec[supervisor.Reply] = MsgpackCodec(supervisor.Reply)
CURATOR_REPLIES: MsgpackCodec[curator.Reply] = MsgpackCodec(curator.Reply)
EMBEDDER_REPLIES: MsgpackCodec[embedder.Reply] = MsgpackCodec(embedder.Reply)
FINDER_REPLIES: MsgpackCodec[finder.Reply] = MsgpackCodec(finder.Reply)
ANY_EVENT: MsgpackCodec[dict[str, Any]] = MsgpackCodec(dict[str, Any])

ASK_TIMEOUT = 5.0
FIND_TIMEOUT = 2.0
EMBEDDER_TIMEOUT = 0.05
"""The status does not wait for a model that is busy or stopped."""
TURN_TIMEOUT = 150.0
MOST_REQUESTS = 256
CALL_TIMEOUT = 3600.0
INSTALL_TIMEOUT = 1000.0
LOGIN_TIMEOUT = 700.0
INDEX_TIMEOUT = 3600.0

_OUTCOME_CODES = {
    "not_sent": frames.NOT_SENT,
    "outcome_unknown": frames.OUTCOME_UNKNOWN,
    "refused": frames.REFUSED,
    "not_found": frames.NOT_FOUND,
}
_CODE_NAMES = {
    frames.NOT_SENT: "not_sent",
    frames.OUTCOME_UNKNOWN: "outcome_unknown",
    frames.REFUSED: "refused",
    frames.NOT_FOUND: "not_found",
    frames.UNAVAILABLE: "unavailable",
}
_REQUEST: JsonCodec[frames.RpcRequest] = JsonCodec(frames.RpcRequest)
_PARAMS: dict[str, JsonCodec[Any]] = {
    method: JsonCodec(params) for method, params in frames.METHODS.items()
}
_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)

log = structlog.get_logger(actor="gateway")

T = TypeVar("T")


class MethodError(Exception):
    """A method's error answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Control:
    """What every control connection shares."""

    def __init__(
        self,
        bus: Bus,
        environments: SessionEnvironments,
        *,
        daemon: Callable[[], dict[str, Any]],
        stop: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._environments = environments
        self._daemon = daemon
        self._stop = stop

    async def serve(self, stream: trio.SocketStream, reader: FrameReader, peer_pid: int) -> None:
        """Answer one connection's requests, side by side, until it closes."""
        writer = FrameWriter(stream, max_frames=1024, max_bytes=256 << 20, timeout=60.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write, writer, nursery.cancel_scope)
            with suppress(FrameStalledError):
                async for line in reader:
                    if isinstance(line, Frame) and line.data.startswith(frames.LINK_PREFIX):
                        continue
                    while len(nursery.child_tasks) > MOST_REQUESTS:
                        # Back-pressure: the client's next line waits in its socket.
                        await trio.sleep(0.01)
                    nursery.start_soon(self._contained, line, writer, peer_pid)
            nursery.cancel_scope.cancel()

    async def _contained(self, line: Frame | Oversized, writer: FrameWriter, peer_pid: int) -> None:
        await contained("control request", self._answer, line, writer, peer_pid, log=log)

    async def _answer(self, line: Frame | Oversized, writer: FrameWriter, peer_pid: int) -> None:
        with suppress(WriterFullError, FrameCutError):
            await self._reply(line, writer, peer_pid)

    async def _reply(self, line: Frame | Oversized, writer: FrameWriter, peer_pid: int) -> None:
        if isinstance(line, Oversized):
            text = f"a line of {line.size_bytes} bytes is over the limit"
            await writer.send(_error(recover_id(line.head), frames.INVALID_REQUEST, text))
            return
        try:
            request = _REQUEST.decode(checked_text(line.data))
        except MalformedError as error:
            code, text = _unreadable(line.data, str(error))
            await writer.send(_error(recover_id(line.data), code, text))
            return
        if request.id is msgspec.UNSET:
            return
        assert not isinstance(request.id, msgspec.UnsetType)
        try:
            params = _params(request)
            if isinstance(params, frames.EventParams):
                await self._stream_events(request.id, params, writer)
                return
            result = await self._result(request.method, params, peer_pid)
        except MalformedError as error:
            text = f"params of {request.method}: {error}"
            await writer.send(_error(request.id, frames.INVALID_PARAMS, text))
        except MethodError as error:
            await writer.send(_error(request.id, error.code, str(error)))
        except _UNANSWERED as error:
            await writer.send(_error(request.id, frames.UNAVAILABLE, str(error)))
        else:
            if request.method == "stop":
                # Before the answer: who has it may be gone, and this task with the connection.
                self._stop()
            await writer.send(_response(request.id, result))

    async def _result(self, method: str, params: Any, peer_pid: int) -> Any:
        match method:
            case "status" | "secrets":
                tell = self._status if method == "status" else self._secrets
                return await tell()
            case "caps":
                listed = await self._registry(
                    registry.ListCapabilities(), registry.CapabilitiesListed
                )
                sessions = await self._sessions()
                return reports.caps(listed, sessions.sessions, self._keys(sessions))
            case "servers":
                return reports.servers(await self._servers())
            case "sessions":
                return reports.sessions(await self._sessions())
            case "discover":
                return await self._discover(params)
            case "index" | "search":
                act = self._index if method == "index" else self._search
                return await act(params)
            case "reload":
                described = await self._registry(
                    registry.ReloadCatalog(), registry.RegistryDescribed
                )
                return {"schema": reports.SCHEMA, "taps": reports.taps(described)}
            case "stop":
                return {"schema": reports.SCHEMA, "stopping": True}
            case "hook":
                return await self._hook(params, peer_pid)
            case "login":
                begin = supervisor.LogIn(params.name)
                opened = await self._login(begin, supervisor.LoginOpened, ASK_TIMEOUT * 10)
                document = {"schema": reports.SCHEMA, "ticket": opened.ticket}
                return {**document, "open": opened.address}
            case "login_wait":
                wait = supervisor.AwaitLogin(params.ticket)
                await self._login(wait, supervisor.LoggedIn, LOGIN_TIMEOUT)
                return {"schema": reports.SCHEMA, "logged_in": True}
            case _:
                return await self._session_result(method, params)

    async def _session_result(self, method: str, params: Any) -> Any:
        session = SessionKey(params.session)
        match method:
            case "turn":
                request = curator.TakeTurn(session, params.text)
                taken = await self._curator(request, curator.TurnTaken, TURN_TIMEOUT)
                return reports.turn(taken)
            case "tools":
                tools = await self._curator(curator.ListTools(session), curator.ToolsListed)
                return {
                    "schema": reports.SCHEMA,
                    "session": tools.session,
                    "tools": [msgspec.Raw(tool) for tool in tools.tools],
                }
            case "call":
                return await self._call(session, params)
        is_enable = method == "enable"
        change = curator.EnableCapability if is_enable else curator.DisableCapability
        answered = await self._curator(
            change(session, params.name), curator.CapabilityAnswered, INSTALL_TIMEOUT
        )
        return {
            "schema": reports.SCHEMA,
            "session": answered.session,
            "ok": answered.is_ok,
            "text": answered.text,
            "changed": {"added": answered.added, "removed": answered.removed},
        }

    async def _hook(self, params: frames.HookParams, peer_pid: int) -> dict[str, Any]:
        request = curator.TakeHookTurn(
            params.text, params.client, params.client_session, params.project, peer_pid
        )
        taken = await self._curator(request, curator.TurnTaken, TURN_TIMEOUT)
        return {**reports.turn(taken), "context": taken.context or taken.suggestion}

    async def _call(self, session: SessionKey, params: frames.CallParams) -> dict[str, Any]:
        request = curator.CallTool(session, params.name, bytes(params.arguments))
        called = await self._curator(request, curator.ToolCalled, CALL_TIMEOUT)
        if called.outcome in _OUTCOME_CODES:
            raise MethodError(_OUTCOME_CODES[called.outcome], called.message)
        if called.outcome == "error":
            text = f"the server answered with an error: {called.result.decode(errors='replace')}"
            raise MethodError(frames.REFUSED, text)
        return {
            "schema": reports.SCHEMA,
            "session": called.session,
            "outcome": called.outcome,
            "result": msgspec.Raw(called.result),
        }

    async def _discover(self, params: frames.DiscoverParams) -> dict[str, Any]:
        request = registry.DiscoverCapabilities(params.intent, params.limit)
        found = await self._bus.ask(REGISTRY, request, REGISTRY_REPLIES, ASK_TIMEOUT)
        if isinstance(found, registry.RegistryRefused):
            is_empty = found.code == "no_intent"
            code = frames.INVALID_PARAMS if is_empty else frames.UNAVAILABLE
            raise MethodError(code, found.message)
        assert isinstance(found, registry.CapabilitiesFound)
        sessions = await self._sessions()
        skills: list[finder.SkillHit] = []
        with suppress(*_UNANSWERED):
            reply = await self._bus.ask(
                FINDER, finder.FindSkills(params.intent), FINDER_REPLIES, FIND_TIMEOUT
            )
            skills = reply.hits if isinstance(reply, finder.SkillsFound) else []
        return reports.discovered(found, skills, sessions.sessions, self._keys(sessions))

    async def _index(self, params: frames.IndexParams) -> dict[str, Any]:
        session = params.session
        if not session:
            live = (await self._sessions()).sessions
            session = live[0].key if len(live) == 1 else ""
        request = finder.IndexServers(SessionKey(session), params.project)
        reply = await self._bus.ask(FINDER, request, FINDER_REPLIES, INDEX_TIMEOUT)
        assert isinstance(reply, finder.ServersIndexed)
        return reports.indexed(reply)

    async def _search(self, params: frames.SearchParams) -> dict[str, Any]:
        request = finder.FindTools(params.query, params.limit)
        reply = await self._bus.ask(FINDER, request, FINDER_REPLIES, ASK_TIMEOUT)
        if isinstance(reply, finder.FinderRefused):
            raise MethodError(frames.INVALID_PARAMS, reply.message)
        assert isinstance(reply, finder.ToolsFound)
        return reports.found_tools(reply)

    async def _status(self) -> dict[str, Any]:
        described = await self._registry(registry.DescribeRegistry(), registry.RegistryDescribed)
        model = None
        if described.embedder_state in {"ready", "loading"}:
            with suppress(*_UNANSWERED):
                reply = await self._bus.ask(
                    EMBEDDER, embedder.DescribeEmbedder(), EMBEDDER_REPLIES, EMBEDDER_TIMEOUT
                )
                model = reply if isinstance(reply, embedder.EmbedderDescribed) else None
        daemon = self._daemon()
        daemon["degraded"] = [*daemon["degraded"], *_degraded(described)]
        daemon["degraded"] += self._environments.stored.problems()
        return reports.status(
            daemon, described, model, await self._sessions(), await self._servers()
        )

    async def _stream_events(
        self, request_id: int | str | None, params: frames.EventParams, writer: FrameWriter
    ) -> None:
        async with self._bus.subscribe(ANY_EVENT, *params.topics) as events:
            result = {"schema": reports.SCHEMA, "topics": params.topics}
            await writer.send(_response(request_id, result))
            async for event in events:
                notification = {
                    "jsonrpc": "2.0",
                    "method": "event",
                    "params": {"topic": event.get("type", ""), "at": time.time(), "event": event},
                }
                await writer.send(msgspec.json.encode(notification))

    def _keys(self, sessions: curator.SessionsListed) -> frozenset[str]:
        """Return the keys that are stored, or that some live session has a value for."""
        own = (self._environments.own(SessionKey(s.key)) for s in sessions.sessions)
        return frozenset(self._environments.stored.values()).union(*own)

    async def _secrets(self) -> dict[str, Any]:
        listed = await self._registry(registry.ListCapabilities(), registry.CapabilitiesListed)
        sessions = await self._sessions()
        keys = [SessionKey(session.key) for session in sessions.sessions]
        own = {key: self._environments.own(key).keys() for key in keys}
        return reports.secrets(listed, self._environments.stored, own)

    async def _sessions(self) -> curator.SessionsListed:
        return await self._curator(curator.ListSessions(), curator.SessionsListed)

    async def _servers(self) -> supervisor.ServersListed:
        reply = await self._bus.ask(
            SUPERVISOR, supervisor.ListServers(), SUPERVISOR_REPLIES, ASK_TIMEOUT
        )
        assert isinstance(reply, supervisor.ServersListed)
        return reply

    async def _login(self, request: msgspec.Struct, expected: type[T], timeout: float) -> T:
        reply = await self._bus.ask(SUPERVISOR, request, SUPERVISOR_REPLIES, timeout)
        if isinstance(reply, supervisor.LoginFailed):
            raise MethodError(frames.REFUSED, reply.message)
        assert isinstance(reply, expected)
        return reply

    async def _registry(self, request: msgspec.Struct, expected: type[T]) -> T:
        reply = await self._bus.ask(REGISTRY, request, REGISTRY_REPLIES, ASK_TIMEOUT)
        assert isinstance(reply, expected)
        return reply

    async def _curator(
        self, request: msgspec.Struct, expected: type[T], timeout: float = ASK_TIMEOUT
    ) -> T:
        reply = await self._bus.ask(CURATOR, request, CURATOR_REPLIES, timeout)
        if isinstance(reply, curator.CuratorRefused):
            raise MethodError(frames.NOT_FOUND, reply.message)
        assert isinstance(reply, expected)
        return reply


def _params(request: frames.RpcRequest) -> Any:
    if request.method not in _PARAMS:
        text = f"no method {request.method[:100]!r}: one of {', '.join(_PARAMS)}"
        raise MethodError(frames.METHOD_NOT_FOUND, text)
    return _PARAMS[request.method].decode(request.params)


async def _write(writer: FrameWriter, scope: trio.CancelScope) -> None:
    with suppress(WriterStalledError):
        await writer.run()
    scope.cancel()


def _degraded(described: registry.RegistryDescribed) -> list[str]:
    found = [tap.error for tap in described.taps if tap.error]
    if described.embedder_state == "unusable":
        found.append(f"no routing: {described.embedder_reason}")
    return found


def _unreadable(data: bytes, why: str) -> tuple[int, str]:
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return frames.PARSE_ERROR, f"not JSON: {why}"
    return frames.INVALID_REQUEST, f"not a request: {why}"


def _response(request_id: int | str | None, result: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def _error(request_id: int | str | None, code: int, text: str) -> bytes:
    data = {"code": _CODE_NAMES[code]} if code in _CODE_NAMES else None
    error = frames.RpcError(code, text, data)
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})
