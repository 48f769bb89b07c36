"""A connection to a running MCP server, over stdio or HTTP: calls, and the server's own messages.

The supervisor owns server connections, and lets sessions use them. A session's calls pass through
this connection as bytes, within the process (docs/design/actors.md). The connection gives every
request a random id of its own, so that sessions cannot interfere. Each call is completed exactly
once. A reply that nobody waits for is dropped and counted.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.fair_share import FairShare
from capd.adapters.frame_writer import (
    WRITE_BATCH,
    FrameCutError,
    FrameWriter,
    WriterFullError,
    WriterStalledError,
)
from capd.adapters.large_frames import PIECE_BYTES, READABLE_BYTES, read_all
from capd.adapters.line_texts import checked_text, one_line, recover_id
from capd.adapters.servers.callers import Caller, CallHooks, Peer
from capd.adapters.servers.pending import Awaited, CallClock, Pending
from capd.adapters.servers.results_in_memory import FREE_BYTES, ResultsInMemory
from capd.adapters.servers.server_lines import INCOMING, Incoming, error_of, own_id, with_halves
from capd.adapters.servers.server_messages import ServerMessages
from capd.adapters.spool import ServerSpool
from capd.adapters.stdio_frames import Frame, FrameReader, FrameStalledError, Oversized
from capd.core.back_references import weakly
from capd.core.errors import CapdError, described
from capd.core.protocol.generations import Members, joined, members_of, meta_for_server
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, ServerError
from capd.core.protocol.server_replies import passed_result
from capd.core.results.json_container import ContainerCheck
from capd.core.results.large_results import LargeResult, Result
from capd.core.results.line_ends import LineEnds, line_ends
from capd_protos.codec import MalformedError
from capd_protos.types import ClientFacts, ServerName, SessionKey

HELD_BYTES = 16 * 1024 * 1024
"""A longer line is written to a file, the spool."""
_CHECKED_BYTES = 64 * 1024
_END_BYTES = 4 * 1024
WRITE_TIMEOUT = 120.0
"""Seconds for writing one frame. A single-threaded server reads nothing while it works on a call,
so this must not be short."""
IDLE_TIMEOUT = 1800.0
"""Seconds without a reply or progress after which a call is given up, unless the definition sets
another limit. The client's own deadline usually comes first."""
_QUEUED_FRAMES = 1024
_QUEUED_BYTES = 16 << 20
"""Bytes that may wait for a server that does not read. Further calls are refused, unsent."""
_ID_BITS = 31
"""Ids fit into 32 bits, because some servers' JSON libraries cannot represent larger ones."""
_FEW_SERVER_MESSAGES = 16
"""The most lines in one batch that no call waits for; more count as a flood."""
_JUNK_LINES = 1000
_JUNK_BYTES = 1 << 20
_JUNK_LOGGED = 5
_NEVER_CANCELLED = frozenset({"initialize", "server/discover"})


async def large_result(line: Oversized, ends: LineEnds | None) -> LargeResult:
    """Return the result in a response that was written to the spool, without loading it.

    `ends` are the members at both ends of the line; None if they could not be read.

    Raises:
        MalformedError: the line is not a response, its result cannot be located, or the result has
            a key in `_meta` that only capd may write.
        OSError: the file cannot be read.
    """
    if line.kept is None:
        raise MalformedError("it was discarded")
    if ends is None or not ends.is_result:
        raise MalformedError("its ends do not say whose result it is")
    start, end = ends.start, line.size_bytes - ends.after
    check = ContainerCheck()
    for at in range(start, end, PIECE_BYTES):
        piece = await line.kept.read(at, min(PIECE_BYTES, end - at))
        for begin in range(0, len(piece), _CHECKED_BYTES):
            check.feed(piece[begin : begin + _CHECKED_BYTES])
            # A checkpoint after each 64 KiB, so that other tasks wait no longer than that.
            await trio.lowlevel.checkpoint()
    check.end()
    if check.has_own_keys:
        # In a smaller result, `passed_result` renames such keys. A large one is not rewritten.
        raise MalformedError("it has a key in _meta that only capd may write")
    head = await line.kept.read(start, min(_END_BYTES, end - start))
    tail = await line.kept.read(max(start, end - _END_BYTES), min(_END_BYTES, end - start))
    return LargeResult(line.kept, start, end, head, tail, has_questions=check.has_questions)


def params_for_server(
    message_id: int, members: Members, caller: Caller, *, stateless: bool
) -> bytes:
    """Return the params `members` of a request, with `_meta` for the server's generation of MCP.

    `message_id` is the request's id at the server, and `caller` the client behind it. `stateless`
    says which generation the server uses.
    """
    meta = members.get("_meta")
    if meta is None and not stateless:
        return joined(members)
    sent_meta = meta_for_server(
        members_of(meta if meta is not None else b""),
        caller.client,
        stateless=stateless,
        token=message_id,
        log_level=caller.log_level,
    )
    others = {key: value for key, value in members.items() if key != "_meta"}
    return joined({**others, "_meta": msgspec.Raw(joined(sent_meta))} if sent_meta else others)


def request_line(message_id: int, method: str, params: bytes) -> bytes:
    """Return a JSON-RPC request with this id, method and params as a line without the newline."""
    return b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}' % (
        message_id,
        method.encode(),
        one_line(params),
    )


def notification_line(method: str, params: bytes) -> bytes:
    """Return a JSON-RPC notification of this method and params as a line without the newline."""
    member = b',"params":' + params if params else b""
    return b'{"jsonrpc":"2.0","method":"%s"%s}' % (method.encode(), member)


class ConnectionBrokenError(CapdError):
    """The server broke the protocol; its process has to be ended."""


class ServerConnection:
    """The connection to one instance; `run` it in a task of its own."""

    def __init__(
        self,
        name: ServerName,
        stdin: trio.abc.SendStream,
        stdout: trio.abc.ReceiveStream,
        *,
        on_list_changed: Callable[[str], None],
        log: FilteringBoundLogger,
        project: str = "",
        redact: Callable[[str], str] = str,
        spool: ServerSpool | None = None,
    ) -> None:
        """Create the connection to the server `name` over its standard streams.

        `on_list_changed` is called with `tools`, `prompts` or `resources`. `redact` removes secrets
        from a text. Without a spool, a line over the reader's limit is dropped.
        """
        self.name = name
        self.counts: Counter[str] = Counter()
        self.findings: dict[str, str] = {}
        """Why some entries of the server's lists are not shown to clients, by list."""
        self.protocol_version = ""
        self.server_version = ""
        """The server's version, from its handshake."""
        self.is_stateless = False
        """Whether the connection uses the stateless generation."""
        self.capabilities: dict[str, msgspec.Raw] = {}
        """The capabilities that the server declares."""
        self.instructions = ""
        self.withholds_tools = False
        """Whether some listed tools are withheld because of their definitions."""
        self.client = ClientFacts()
        """The client info that was sent in the handshake."""
        self.longest_call = 0.0
        """Seconds after which a call ends even if its server reports progress; 0 for no limit."""
        self.holders: dict[SessionKey, Peer] = {}
        self.log = log
        cap_bytes = READABLE_BYTES if spool is None else HELD_BYTES
        self._reader = FrameReader(stdout, cap_bytes, spool=spool)
        self._results = ResultsInMemory(on_freed=partial(self._reader.allow, cap_bytes))
        self._writer = FrameWriter(
            stdin, max_frames=_QUEUED_FRAMES, max_bytes=_QUEUED_BYTES, timeout=WRITE_TIMEOUT
        )
        self._redact = redact
        self._pending: dict[int, Pending] = {}
        self._clock = CallClock()
        self.server_messages = ServerMessages(
            name,
            project,
            pending=self._pending,
            holders=self.holders,
            counts=self.counts,
            post=weakly(self._post),
            on_list_changed=on_list_changed,
        )
        self._junk_run_lines = 0
        self._junk_run_bytes = 0
        self._why_dead = ""

    @property
    def is_alive(self) -> bool:
        """Whether calls can be sent over this connection."""
        return not self._why_dead and not self._writer.is_dead

    @property
    def is_prompt(self) -> bool:
        """Whether `begin` can probably write a call without waiting."""
        return not self._why_dead and self._writer.is_prompt

    @property
    def is_direct(self) -> bool:
        """Whether `begin` can write a call now, and the server sends nothing before its answer.

        A server of the stateless generation may send a question before its answer.
        """
        return not self.is_stateless and self.is_prompt

    async def run(self) -> None:
        """Read and write until the server closes its output.

        Raises:
            ConnectionBrokenError: the server has to be ended.
        """
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(self._write)
                nursery.start_soon(self._clock.run, self._pending, self._give_up)
                share, is_flooded = FairShare(), False
                while lines := await self._some_lines():
                    if is_flooded:
                        # Only during a flood, because reading the clock costs as much as a line.
                        share.resume()
                    unasked = self.server_messages.count
                    # Popped, so that a large line is freed before the next one arrives.
                    lines.reverse()
                    while lines:
                        with WRITE_BATCH:
                            self._received_frames(lines, nursery)
                        if lines:
                            await self._received(lines.pop(), nursery)
                    was_flooded = is_flooded
                    is_flooded = self.server_messages.count - unasked > _FEW_SERVER_MESSAGES
                    if was_flooded and is_flooded:
                        # During a flood, give way to other tasks; the flood waits in its pipe.
                        await share.give_way()
            except FrameStalledError as error:
                raise ConnectionBrokenError(f"{self.name}: {error}") from None
            finally:
                nursery.cancel_scope.cancel()

    def close(self, why: str) -> None:
        """Fail every call in progress; the outcome of a call that was sent is unknown.

        `why` continues a sentence that begins with the server's name.
        """
        self._why_dead = self._why_dead or why
        pending = list(self._pending.values())
        self._pending.clear()
        for each in pending:
            each.complete(error=self._lost(each))

    async def relay(
        self, method: str, members: Members, caller: Caller, *, timeout: float | None = None
    ) -> Result:
        """Send a client's request for `method`; return the result that the client gets.

        `members` are the request's params. If the caller is cancelled after the request was sent,
        the server gets `notifications/cancelled`. `timeout` is in seconds without progress.

        Raises:
            NotSentError, OutcomeUnknownError: the connection was lost, or the call took too long.
            ServerError: the server answered with an error.
        """
        message_id = self._fresh_id()
        params = params_for_server(message_id, members, caller, stateless=self.is_stateless)
        return await self._request(message_id, method, params, timeout or IDLE_TIMEOUT, caller)

    def begin(self, calls: Sequence[Pending], members: Sequence[Members]) -> int:
        """Write several calls to the server without waiting; return how many were written.

        Calls that were not written may be sent in another way. Before this, the caller must have
        told the clients that the calls may run. `members` are the params, one for each call.
        """
        # A broken connection writes nothing.
        if self._why_dead:
            return 0
        lines: list[bytes] = []
        try:
            for call, params in zip(calls, members, strict=True):
                call.message_id = self._fresh_id()
                self._pending[call.message_id] = call
                sent = params_for_server(
                    call.message_id, params, call.caller, stateless=self.is_stateless
                )
                lines.append(request_line(call.message_id, call.method, sent))
        except Exception as error:  # noqa: BLE001 - the boundary
            # Each call is then sent by itself, so that only one that cannot be written fails.
            self.log.error("task_failed", task="begin", **described(error))
            for call in calls:
                self._pending.pop(call.message_id, None)
            return 0
        begun = self._writer.begin(lines, lambda: self._cut(calls[begun - 1]))
        for call in calls[begun:]:
            del self._pending[call.message_id]
        for call in calls[:begun]:
            call.is_sent = True
            self._clock.start(call, self.longest_call)
        return begun

    def abandon(self, call: Pending) -> None:
        """Give up a call that was begun, and tell the server that it is cancelled."""
        if self._pending.get(call.message_id) is call:
            del self._pending[call.message_id]
            self._cancel_soon(call.message_id, call, "the client cancelled it")

    async def ask(
        self, method: str, members: Members, timeout: float, *, stateless: bool | None = None
    ) -> bytes:
        """Send a request of capd's own to the server; return the result.

        `members` are its params, and `timeout` is in seconds. `stateless` says whether the request
        is of the stateless generation; None if it is of the connection's generation.

        Raises:
            NotSentError, OutcomeUnknownError, ServerError: as `relay`.
        """
        message_id = self._fresh_id()
        caller = CallHooks(client=self.client)
        generation = self.is_stateless if stateless is None else stateless
        params = params_for_server(message_id, members, caller, stateless=generation)
        return await read_all(await self._request(message_id, method, params, timeout, caller))

    def _fresh_id(self) -> int:
        """Return a random id, so that no server can answer a request that it did not get."""
        while True:
            message_id = secrets.randbits(_ID_BITS)
            if message_id and message_id not in self._pending:
                return message_id

    async def notify(self, method: str, params: bytes = b"") -> None:
        """Send the server a notification with this method and these params.

        Raises:
            NotSentError: the connection is lost, or too much waits to be sent.
        """
        try:
            await self._writer.send(notification_line(method, params))
        except (WriterFullError, FrameCutError) as error:
            raise NotSentError(f"{self.name}: {error}") from None

    def tell(self, method: str, params: bytes = b"") -> None:
        """Queue a notification to the server; it may be lost."""
        self._post(notification_line(method, params))

    async def _request(
        self, message_id: int, method: str, params: bytes, timeout: float, caller: Caller
    ) -> Result:
        if not self.is_alive:
            raise NotSentError(f"{self.name} is not running: {self._why_dead or 'it closed'}")
        pending = Awaited(method, caller, timeout)
        if self.longest_call:
            pending.over_at = trio.current_time() + self.longest_call
        line = request_line(message_id, method, params)

        def before_first_byte() -> None:
            pending.is_sent = True

        self._pending[message_id] = pending
        try:
            until = min(trio.current_time() + timeout, pending.over_at)
            with trio.move_on_at(until) as pending.patience:
                await caller.dispatched()
                await self._writer.send(line, before_first_byte)
                await pending.done.wait()
        except WriterFullError as error:
            raise NotSentError(f"{self.name}: {error}") from None
        except FrameCutError as error:
            raise OutcomeUnknownError(f"{self.name}: {error}") from None
        except trio.Cancelled:
            self._cancel_soon(message_id, pending, "the client cancelled it")
            raise
        finally:
            self._pending.pop(message_id, None)
        if not pending.is_done:
            self._cancel_soon(message_id, pending, "it took too long")
            raise self._lost(pending, pending.timeout_reason)
        if pending.error is not None:
            raise pending.error
        assert pending.result is not None
        return pending.result

    def _give_up(self, call: Pending) -> None:
        """End a call whose deadline has passed."""
        del self._pending[call.message_id]
        self._cancel_soon(call.message_id, call, "it took too long")
        call.complete(error=self._lost(call, call.timeout_reason))

    def _cut(self, call: Pending) -> None:
        """End a call of which only a part could be written: its outcome is unknown."""
        self._pending.pop(call.message_id, None)
        call.complete(error=OutcomeUnknownError(f"{self.name} stopped reading what was sent"))

    def _lost(self, pending: Pending, how: str = "") -> Exception:
        how = how or self._why_dead
        if pending.is_sent:
            return OutcomeUnknownError(
                f"{self.name} {how}; the call may have run, so check before repeating it"
            )
        return NotSentError(f"{self.name} {how}; the call was not sent")

    def _cancel_soon(self, message_id: int, pending: Pending, reason: str) -> None:
        if pending.is_sent and pending.method not in _NEVER_CANCELLED:
            params = {"requestId": message_id, "reason": reason}
            self.tell("notifications/cancelled", msgspec.json.encode(params))

    def _post(self, line: bytes) -> None:
        """Queue a line whose loss does no harm; drop it if the queue is full."""
        try:
            self._writer.post(line)
        except WriterFullError:
            self.counts["dropped_notice"] += 1

    async def _write(self) -> None:
        try:
            await self._writer.run()
        except WriterStalledError as error:
            raise ConnectionBrokenError(f"{self.name}: {error}") from None

    async def _some_lines(self) -> list[Frame | Oversized]:
        """Return the next lines, after waiting for room for large results.

        If no room comes in time, large lines are written to the spool from now on.
        """
        if self._results.is_full and not await self._results.wait_for_room():
            self._reader.allow(FREE_BYTES)
        return await self._reader.some()

    def _received_frames(self, lines: list[Frame | Oversized], nursery: trio.Nursery) -> None:
        """Handle and remove lines from the end of `lines`, up to one that is too long for memory.

        Requests to clients get tasks in `nursery`.
        """
        while lines and isinstance(line := lines[-1], Frame):
            lines.pop()
            self._received_text(line.data, nursery)

    async def _received(self, line: Frame | Oversized, nursery: trio.Nursery) -> None:
        if isinstance(line, Oversized):
            await self._received_large(line, nursery)
        else:
            self._received_text(line.data, nursery)

    def _received_text(self, data: bytes, nursery: trio.Nursery) -> None:
        try:
            message = INCOMING.decode(checked_text(data))
        except MalformedError as error:
            halved = with_halves(data)
            if halved is None:
                self._junk(data, str(error))
                return
            message = halved
        if message.method and message.id is not msgspec.UNSET:
            self.server_messages.on_request(message, nursery)
        elif message.method:
            self.server_messages.on_notification(message)
        elif len(message.result) or len(message.error):
            self._replied(message)
        else:
            self._junk(data, "neither a request nor a reply")
            if not isinstance(message.id, msgspec.UnsetType):
                self.server_messages.refuse_invalid(message.id)
            return
        self._junk_run_lines = self._junk_run_bytes = 0

    async def _received_large(self, line: Oversized, nursery: trio.Nursery) -> None:
        ends = line_ends(line.head, line.tail)
        try:
            result = await large_result(line, ends)
        except (MalformedError, OSError) as error:
            if line.kept is not None and line.size_bytes <= READABLE_BYTES:
                await self._received(Frame(await line.kept.read(0, line.size_bytes)), nursery)
                return
            if ends is not None and "method" in ends.scalars:
                # A request's id was chosen by the server, so it must not end one of our calls.
                self.counts["large_unasked"] += 1
                if ends.id is not None:
                    self.server_messages.refuse_large(ends.id)
                return
            why = f"a line of {line.size_bytes} bytes is over the limit: {error}"
            self._unreadable(line.head, why, ends.id if ends is not None else None)
            return
        assert ends is not None
        pending = self._popped(ends.id)
        if pending is None:
            self.counts["unknown_reply"] += 1
        else:
            pending.complete(result=result)
        self._junk_run_lines = self._junk_run_bytes = 0

    def _popped(self, found: object) -> Pending | None:
        """Remove and return the call whose id is `found`, from a server's line; None if none is."""
        message_id = own_id(found)
        return None if message_id is None else self._pending.pop(message_id, None)

    def _replied(self, message: Incoming) -> None:
        pending = self._popped(message.id)
        if pending is None:
            self.counts["unknown_reply"] += 1
        elif len(message.error) and bytes(message.error) != b"null":
            pending.complete(error=error_of(self.name, bytes(message.error)))
        elif len(message.result):
            result = passed_result(bytes(message.result))
            if len(result) > FREE_BYTES:
                result = self._results.held(result)
            pending.complete(result=result)
        else:
            pending.complete(error=ServerError(b'{"code":-32603,"message":"an empty reply"}'))

    def _junk(self, data: bytes, why: str) -> None:
        """Count the line `data`, which is not a valid message; `why` says why not.

        If it was the reply to a call, fail that call.
        """
        self.counts["junk_lines"] += 1
        # Counted since the last valid message: a server that logs one line for each call is not
        # broken.
        self._junk_run_lines += 1
        self._junk_run_bytes += len(data)
        if self.counts["junk_lines"] <= _JUNK_LOGGED:
            self.log.warning("junk_from_server", why=why, begins=self._redact(ascii(data[:200])))
        self._unreadable(data, f"its reply is unreadable: {why}")
        if self._junk_run_lines > _JUNK_LINES or self._junk_run_bytes > _JUNK_BYTES:
            raise ConnectionBrokenError(
                f"{self.name} writes what is not MCP to its standard output"
            )

    def _unreadable(self, head: bytes, why: str, message_id: str | float | None = None) -> None:
        if message_id is None:
            message_id = recover_id(head)
        pending = self._popped(message_id)
        if pending is not None:
            text = f"{self.name}: {why}; the call has run, its result is lost"
            pending.complete(error=OutcomeUnknownError(text))
