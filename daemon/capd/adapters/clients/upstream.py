"""One client's MCP connection: lines in, answers and notifications out.

It knows JSON-RPC, the handshake and the socket's link frames; what a session can do is behind
`Conversation`. Requests run side by side and each is answered exactly once; what is only passed
on is never decoded. A malformed line costs an error answer, never the connection.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.stdio_frames import (
    Frame,
    FrameCutError,
    FrameReader,
    FrameStalledError,
    FrameWriter,
    Oversized,
    WriterFullError,
    WriterStalledError,
    checked_text,
    recover_id,
)
from capd.core.handshake import initialize_result
from capd.core.outcomes import CallFailedError, RefusedError, ServerError, failed_result
from capd_protos import socket as frames
from capd_protos.codec import JsonCodec, MalformedError

MOST_REQUESTS = 96
"""Requests of one session under way at once (80, E7: 32 in flight and 64 queued)."""
WRITE_TIMEOUT = 60.0
_QUEUED_FRAMES = 1024
_QUEUED_BYTES = 256 * 1024 * 1024

RequestId = int | str | None


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A `tools/call` as the client wrote it; `arguments` and `meta` are JSON objects or empty."""

    name: str
    arguments: bytes
    meta: bytes
    dispatched: Callable[[], Awaitable[None]]
    progress: Callable[[bytes], None]


class Conversation(Protocol):
    """What a session offers to its connection."""

    def instructions(self) -> str:
        """Return the text for the model in the answer to `initialize`."""
        ...

    def tools(self) -> bytes:
        """Return the result of `tools/list`."""
        ...

    async def call(self, request: ToolRequest) -> bytes:
        """Return the result of a call; raise CallFailedError, ServerError or UnknownToolError."""
        ...

    async def turn(self, text: str) -> bytes:
        """Return the result of `capd/turn`."""
        ...

    def environment(self, values: dict[str, str]) -> None:
        """Take over what the client sent for the keys it was asked for."""
        ...


class UnknownToolError(Exception):
    """No tool of this name is on the surface; the text has near names."""


class _Request(msgspec.Struct):
    method: str = ""
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw(b"")


class _CallParams(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="_meta")


class _InitializeParams(msgspec.Struct):
    protocolVersion: str = ""  # noqa: N815 - the protocol's name


class _CancelledParams(msgspec.Struct):
    requestId: int | str  # noqa: N815 - the protocol's name


class _MetaToken(msgspec.Struct):
    progressToken: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - the protocol's name


_REQUEST: JsonCodec[_Request] = JsonCodec(_Request)
_CALL: JsonCodec[_CallParams] = JsonCodec(_CallParams)
_INITIALIZE: JsonCodec[_InitializeParams] = JsonCodec(_InitializeParams)
_CANCELLED: JsonCodec[_CancelledParams] = JsonCodec(_CancelledParams)
_META: JsonCodec[_MetaToken] = JsonCodec(_MetaToken)
_LINK: JsonCodec[frames.FromClient] = JsonCodec(frames.FromClient)
_TURN: JsonCodec[frames.TurnParams] = JsonCodec(frames.TurnParams)
_MEMBERS: JsonCodec[dict[str, msgspec.Raw]] = JsonCodec(dict[str, msgspec.Raw])

LIST_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


class Upstream:
    """A client's connection; `run` it in a task of its own."""

    def __init__(
        self,
        stream: trio.SocketStream,
        reader: FrameReader,
        *,
        wants_dispatched: bool,
        is_initialized: bool,
        version: str,
        log: FilteringBoundLogger,
    ) -> None:
        self.is_goodbye = False
        """Whether the client ended its session on purpose."""
        self.is_initialized = is_initialized
        """Whether the handshake is over: before it no notification may be sent."""
        self._stream = stream
        self._reader = reader
        self._writer = FrameWriter(
            stream, max_frames=_QUEUED_FRAMES, max_bytes=_QUEUED_BYTES, timeout=WRITE_TIMEOUT
        )
        self._wants_dispatched = wants_dispatched
        self._version = version
        self._log = log
        self._under_way: dict[RequestId, trio.CancelScope] = {}
        self._scope = trio.CancelScope()

    async def run(self, conversation: Conversation) -> None:
        """Serve until the client is gone, says goodbye, or `close` is called."""
        with self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    try:
                        async for line in self._reader:
                            self._received(line, conversation, nursery)
                            if self.is_goodbye:
                                break
                    except FrameStalledError:
                        self._log.info("client_stalled")
                    nursery.cancel_scope.cancel()
            finally:
                with trio.move_on_after(1.0, shield=True):
                    await trio.aclose_forcefully(self._stream)

    def close(self, reason: str, *, reconnect: bool) -> None:
        """Tell the client why, and end the connection."""
        self._post(msgspec.json.encode(frames.Closing(reason, reconnect)))
        # The writer gets its turn before the cancellation arrives.
        self._scope.deadline = trio.current_time() + 0.2

    def tools_changed(self) -> None:
        """Notify the client that its list of tools is another one."""
        if self.is_initialized:
            self._post(LIST_CHANGED)

    def want_environment(self, keys: list[str]) -> None:
        """Ask the client for the values of `keys`."""
        self._post(msgspec.json.encode(frames.WantEnv(keys)))

    async def _write(self) -> None:
        with suppress(WriterStalledError):
            await self._writer.run()
        self._scope.cancel()

    def _post(self, line: bytes) -> None:
        with suppress(WriterFullError):
            self._writer.post(line)

    def _received(
        self, line: Frame | Oversized, conversation: Conversation, nursery: trio.Nursery
    ) -> None:
        if isinstance(line, Oversized):
            limit = frames.LINE_LIMIT_BYTES
            text = f"a line of {line.size_bytes} bytes is over the limit of {limit}"
            self._error(recover_id(line.head), frames.INVALID_REQUEST, text)
            return
        if line.data.startswith(frames.LINK_PREFIX):
            self._linked(line.data, conversation)
            return
        try:
            request = _REQUEST.decode(checked_text(line.data))
        except MalformedError as error:
            self._unreadable(line.data, str(error))
            return
        if not request.method:
            # A reply: to nothing that capd asked.
            return
        if request.id is msgspec.UNSET:
            self._notified(request)
            return
        assert not isinstance(request.id, msgspec.UnsetType)
        # Tasks, the writer's among them: an id that comes twice is one entry in the table.
        if len(nursery.child_tasks) > MOST_REQUESTS:
            text = f"{MOST_REQUESTS} requests of this session are under way already"
            self._error(request.id, frames.REFUSED, text)
            return
        # Here and not in the task: a cancellation may stand in the very next line.
        scope = self._under_way[request.id] = trio.CancelScope()
        nursery.start_soon(self._answer, request, request.id, scope, conversation)

    def _unreadable(self, data: bytes, why: str) -> None:
        try:
            msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._error(recover_id(data), frames.PARSE_ERROR, f"not JSON: {why}")
        else:
            self._error(recover_id(data), frames.INVALID_REQUEST, f"not a request: {why}")

    def _linked(self, data: bytes, conversation: Conversation) -> None:
        try:
            frame = _LINK.decode(data)
        except MalformedError:
            # Unknown kinds are the future's, and ignored (docs/protocol.md).
            self._log.info("link_frame_ignored")
            return
        if isinstance(frame, frames.EnvValues):
            conversation.environment(frame.env)
        elif isinstance(frame, frames.Goodbye):
            self.is_goodbye = True

    def _notified(self, request: _Request) -> None:
        if request.method == "notifications/initialized":
            self.is_initialized = True
        elif request.method == "notifications/cancelled":
            with suppress(MalformedError):
                scope = self._under_way.get(_CANCELLED.decode(request.params).requestId)
                if scope is not None:
                    scope.cancel()

    async def _answer(
        self,
        request: _Request,
        request_id: RequestId,
        scope: trio.CancelScope,
        conversation: Conversation,
    ) -> None:
        try:
            # A cancelled request gets no answer (MCP, "Cancellation").
            with scope, suppress(WriterFullError, FrameCutError):
                await trio.lowlevel.checkpoint_if_cancelled()
                await self._writer.send(await self._answered(request, request_id, conversation))
        finally:
            if self._under_way.get(request_id) is scope:
                del self._under_way[request_id]

    async def _answered(
        self, request: _Request, request_id: RequestId, conversation: Conversation
    ) -> bytes:
        """Return the response line of one request."""
        try:
            result = await self._result(request, request_id, conversation)
        except MalformedError as error:
            text = f"params of {request.method}: {error}"
            return _error_line(request_id, frames.INVALID_PARAMS, text)
        except UnknownToolError as error:
            return _error_line(request_id, frames.INVALID_PARAMS, str(error))
        except _NoMethodError:
            text = f"no method {request.method[:100]!r}"
            return _error_line(request_id, frames.METHOD_NOT_FOUND, text)
        except ServerError as error:
            return _line(request_id, b'"error":', error.error)
        except CallFailedError as error:
            result = failed_result(error)
        return _line(request_id, b'"result":', result)

    async def _result(
        self, request: _Request, request_id: RequestId, conversation: Conversation
    ) -> bytes:
        params = request.params if len(request.params) else msgspec.Raw(b"{}")
        match request.method:
            case "tools/call":
                return await conversation.call(self._tool_request(params, request_id))
            case "tools/list":
                return conversation.tools()
            case "initialize":
                asked = _INITIALIZE.decode(params).protocolVersion
                return msgspec.json.encode(
                    initialize_result(asked, self._version, conversation.instructions())
                )
            case "ping":
                return b"{}"
            case "capd/turn":
                return await conversation.turn(_TURN.decode(params).text)
            case _:
                raise _NoMethodError

    def _tool_request(self, params: msgspec.Raw, request_id: RequestId) -> ToolRequest:
        call = _CALL.decode(params)
        meta = bytes(call.meta)
        token = bytes(_META.decode(meta).progressToken) if b"progressToken" in meta else b""

        async def dispatched() -> None:
            if not self._wants_dispatched or request_id is None:
                return
            frame = msgspec.json.encode(frames.Dispatched(request_id))
            try:
                await self._writer.send(frame)
            except (WriterFullError, FrameCutError):
                raise RefusedError("the client's connection is gone") from None

        def progress(raw: bytes) -> None:
            if token:
                members = _MEMBERS.decode(raw)
                members["progressToken"] = msgspec.Raw(token)
                body = msgspec.json.encode(members)
                self._post(
                    b'{"jsonrpc":"2.0","method":"notifications/progress","params":' + body + b"}"
                )

        return ToolRequest(call.name, bytes(call.arguments), meta, dispatched, progress)

    def _error(self, request_id: RequestId, code: int, text: str) -> None:
        self._post(_error_line(request_id, code, text))


class _NoMethodError(Exception):
    """The request's method is none that capd serves."""


def _line(request_id: RequestId, member: bytes, value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,%s%s}' % (msgspec.json.encode(request_id), member, value)


def _error_line(request_id: RequestId, code: int, text: str) -> bytes:
    return _line(request_id, b'"error":', msgspec.json.encode(frames.RpcError(code, text)))
