"""A connection with the control role: each request is answered with one document."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

from capd.actors.control import documents
from capd.actors.control.actions import ActionMethods
from capd.actors.control.actors import Actors, MethodError
from capd.actors.control.approvals import ApprovalMethods
from capd.actors.control.bridges import BridgeMethods
from capd.actors.control.callers import READING, check_still_let_in
from capd.actors.control.definitions import DefinitionMethods
from capd.actors.control.index import IndexMethods
from capd.actors.control.learning import LearningMethods
from capd.actors.control.memories import MemoryMethods
from capd.actors.control.profiles import ProfileMethods
from capd.actors.control.queries import QueryMethods
from capd.actors.control.records import RecordMethods
from capd.actors.control.tool_edits import ToolEditMethods
from capd.actors.control.trust import TrustMethods
from capd.adapters.clients.peers import Peer
from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.frame_writer import (
    FrameCutError,
    FrameWriter,
    WriterFullError,
    WriterStalledError,
)
from capd.adapters.line_texts import checked_text, one_line, recover_id
from capd.adapters.memory_store import MemoryStore
from capd.adapters.stdio_frames import Frame, FrameReader, FrameStalledError, Oversized
from capd.core.errors import described
from capd.core.protocol.outcomes import internal_error
from capd.core.records.tally import Tally
from capd.core.results.half_pairs import decoded
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError, Bus
from capd_protos import socket as frames
from capd_protos.codec import JsonCodec, MalformedError, MsgpackCodec

ANY_EVENT: MsgpackCodec[dict[str, Any]] = MsgpackCodec(dict[str, Any])

MOST_REQUESTS = 256
LARGE = frozenset({"caps"})
"""Methods whose results grow with the catalog: ten thousand capabilities are six megabytes."""

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

log = structlog.get_logger(actor="gateway")


class Control:
    """Serves all control connections, with all control methods."""

    def __init__(
        self,
        bus: Bus,
        environments: SessionEnvironments,
        *,
        daemon: Callable[[], dict[str, Any]],
        stop: Callable[[frames.StopParams], None],
        tally: Tally | None = None,
        memories: Path | None = None,
        bridges: BridgeMethods | None = None,
    ) -> None:
        """Create it. `daemon` returns the daemon's own part of the status; `stop` stops the daemon.

        `tally` counts events since the daemon started. `memories` is the folder with the user's own
        memories. Without `bridges` no bridge can be opened.
        """
        self._bridges = bridges or BridgeMethods()
        self._bus = bus
        self._stop = stop
        actors = Actors(bus)
        self._acting = ActionMethods(actors)
        reading = QueryMethods(actors, environments, daemon, self._bridges.listed)
        definitions = DefinitionMethods(actors)
        # Without a folder, adding a memory fails.
        store = MemoryStore(memories or Path(os.devnull), environments.all_values)
        known = MemoryMethods(actors, store)
        learning = LearningMethods(actors)
        approvals = ApprovalMethods(actors)
        profiles = ProfileMethods(actors)
        self._personal = {
            **TrustMethods(actors).methods,
            **definitions.personal,
            **known.personal,
            **self._acting.personal,
            **learning.personal,
            **approvals.personal,
            **profiles.personal,
        }
        status, caps = reading.methods["status"], reading.methods["caps"]
        records = RecordMethods(actors, tally or Tally(), status=status, caps=caps)
        self._methods = {
            **reading.methods,
            **records.methods,
            **self._acting.methods,
            **definitions.methods,
            **known.methods,
            **learning.methods,
            **approvals.methods,
            **profiles.methods,
            **ToolEditMethods(actors).methods,
            **self._bridges.methods,
            **IndexMethods(actors).methods,
        }

    async def serve(self, stream: trio.SocketStream, reader: FrameReader, peer: Peer) -> None:
        """Answer the requests of one connection, several at a time, until the connection closes."""
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
                    nursery.start_soon(self._contained, line, writer, peer)
            nursery.cancel_scope.cancel()

    async def _contained(self, line: Frame | Oversized, writer: FrameWriter, peer: Peer) -> None:
        await contained("control request", self._answer, line, writer, peer, log=log)

    async def _answer(self, line: Frame | Oversized, writer: FrameWriter, peer: Peer) -> None:
        with suppress(WriterFullError, FrameCutError):
            await self._reply(line, writer, peer)

    async def _reply(self, line: Frame | Oversized, writer: FrameWriter, peer: Peer) -> None:
        if isinstance(line, Oversized):
            text = f"a line of {line.size_bytes} bytes is over the limit"
            await writer.send(_error(recover_id(line.head), frames.INVALID_REQUEST, text))
            return
        try:
            request = decoded(_REQUEST, checked_text(line.data))
        except MalformedError as error:
            code, text = _unreadable(line.data, str(error))
            await writer.send(_error(recover_id(line.data), code, text))
            return
        if request.id is msgspec.UNSET:
            return
        assert not isinstance(request.id, msgspec.UnsetType)
        try:
            await self._reply_to(request, request.id, writer, peer)
        except MalformedError as error:
            text = f"params of {request.method}: {error}"
            await writer.send(_error(request.id, frames.INVALID_PARAMS, text))
        except MethodError as error:
            await writer.send(_error(request.id, error.code, str(error)))
        except ActorUnavailableError as error:
            await writer.send(_error(request.id, frames.UNAVAILABLE, str(error)))
        except (WriterFullError, FrameCutError):
            # The client has gone.
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: each request has an answer
            log.error("task_failed", task=request.method[:100], **described(error))
            await writer.send(_error(request.id, frames.INTERNAL_ERROR, internal_error(error)))

    async def _reply_to(
        self,
        request: frames.RpcRequest,
        request_id: str | float | None,
        writer: FrameWriter,
        peer: Peer,
    ) -> None:
        params = _params(request)
        if isinstance(params, frames.EventParams):
            await self._stream_events(request_id, params, writer)
            return
        if isinstance(params, frames.BridgeOpenParams):
            await check_still_let_in(peer)
            await self._bridges.hold(request_id, params, writer, peer)
            return
        result = await self._result(request.method, params, peer)
        if isinstance(params, frames.StopParams):
            # Stop before the answer is written: if the client leaves meanwhile, this task ends with
            # the connection.
            self._stop(params)
        if request.method in LARGE:
            answer = await trio.to_thread.run_sync(_response, request_id, result)
        else:
            answer = _response(request_id, result)
        await writer.send(answer)

    async def _result(self, method: str, params: Any, peer: Peer) -> Any:
        if method not in READING:
            await check_still_let_in(peer)
        if isinstance(params, frames.HookParams):
            return await self._acting.hook(params, peer.pid)
        if method in self._personal:
            return await self._personal[method](params, peer)
        return await self._methods[method](params)

    async def _stream_events(
        self, request_id: str | float | None, params: frames.EventParams, writer: FrameWriter
    ) -> None:
        async with self._bus.subscribe(ANY_EVENT, *params.topics) as events:
            result = {"schema": documents.SCHEMA, "topics": params.topics}
            await writer.send(_response(request_id, result))
            async for event in events:
                notification = {
                    "jsonrpc": "2.0",
                    "method": "event",
                    "params": {"topic": event.get("type", ""), "at": time.time(), "event": event},
                }
                await writer.send(one_line(msgspec.json.encode(notification)))


def _params(request: frames.RpcRequest) -> Any:
    if request.method not in _PARAMS:
        text = f"no method {request.method[:100]!r}: one of {', '.join(_PARAMS)}"
        raise MethodError(frames.METHOD_NOT_FOUND, text)
    return _PARAMS[request.method].decode(request.params)


async def _write(writer: FrameWriter, scope: trio.CancelScope) -> None:
    with suppress(WriterStalledError):
        await writer.run()
    scope.cancel()


def _unreadable(data: bytes, why: str) -> tuple[int, str]:
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return frames.PARSE_ERROR, f"not JSON: {why}"
    return frames.INVALID_REQUEST, f"not a request: {why}"


def _response(request_id: str | float | None, result: Any) -> bytes:
    # A result may contain JSON that a server wrote with line breaks. An answer is one line.
    return one_line(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result}))


def _error(request_id: str | float | None, code: int, text: str) -> bytes:
    data = {"code": _CODE_NAMES[code]} if code in _CODE_NAMES else None
    error = frames.RpcError(code, text, data)
    return one_line(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error}))
