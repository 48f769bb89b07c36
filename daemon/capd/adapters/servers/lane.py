"""A running MCP server over stdio: its handshake, its calls, its notifications.

The supervisor owns a lane and grants it; a curator's calls go straight through it, in process,
as bytes (85-facts, decision 1). Ids are the lane's own counters, so no two sessions can meet;
each call is completed exactly once; a reply nobody waits for is dropped and counted.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.servers.server_lines import (
    INCOMING,
    INITIALIZED,
    PROGRESS,
    TOOL_PAGE,
    Incoming,
    own_progress_token,
)
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
from capd.core.errors import CapdError
from capd.core.handshake import NEWEST, VERSIONS
from capd.core.outcomes import NotSentError, OutcomeUnknownError, ServerError
from capd.core.tool_intake import MOST_PAGES, accepted
from capd_protos.codec import MalformedError
from capd_protos.types import ServerName, ToolDefinition, ToolName

LIST_TIMEOUT = 30.0
WRITE_TIMEOUT = 120.0
"""Seconds for one frame. A server of one thread reads nothing while it works on a call, and
ordinary servers come before every defence."""
IDLE_TIMEOUT = 1800.0
"""Seconds without a reply or progress after which a call is given up, unless its server's
definition says otherwise: the client's own deadline comes first (80, head)."""

_JUNK_LINES = 1000
_JUNK_BYTES = 1 << 20
_JUNK_LOGGED = 5


class LaneBrokenError(CapdError):
    """The server broke the protocol beyond use; its process has to be ended."""


class HandshakeError(CapdError):
    """The server did not complete `initialize` or `tools/list`."""


@dataclass(slots=True, eq=False)
class _Pending:
    """A request that waits for its one completion."""

    what: str
    done: trio.Event = field(default_factory=trio.Event)
    is_sent: bool = False
    result: bytes | None = None
    error: Exception | None = None
    on_progress: Callable[[bytes], None] | None = None
    patience: trio.CancelScope | None = None
    timeout: float = IDLE_TIMEOUT

    def complete(self, *, result: bytes | None = None, error: Exception | None = None) -> None:
        if not self.done.is_set():
            self.result, self.error = result, error
            self.done.set()


@dataclass(frozen=True, slots=True)
class CallHooks:
    """What a caller wants to know while its call is under way."""

    dispatched: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Awaited before the first byte is written: after it the call may have run (80 section 5.2)."""
    progress: Callable[[bytes], None] = lambda _: None
    """Called with the params of each progress notification."""


class Lane:
    """The connection to one instance; `run` it in a task of its own."""

    def __init__(
        self,
        name: ServerName,
        stdin: trio.abc.SendStream,
        stdout: trio.abc.ReceiveStream,
        *,
        on_tools_changed: Callable[[], None],
        log: FilteringBoundLogger,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.protocol_version = ""
        self._name = name
        self._reader = FrameReader(stdout)
        self._writer = FrameWriter(stdin, timeout=WRITE_TIMEOUT)
        self._on_tools_changed = on_tools_changed
        self._log = log
        self._redact = redact
        self._ids = count(1)
        self._pending: dict[int, _Pending] = {}
        self._junk_run_lines = 0
        self._junk_run_bytes = 0
        self._why_dead = ""

    @property
    def is_alive(self) -> bool:
        """Whether a call has a chance."""
        return not self._why_dead and not self._writer.is_dead

    async def run(self) -> None:
        """Read and write until the server closes its output.

        Raises:
            LaneBrokenError: the server has to be ended.
        """
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(self._write)
                async for line in self._reader:
                    await self._received(line)
            except FrameStalledError as error:
                raise LaneBrokenError(f"{self._name}: {error}") from None
            finally:
                nursery.cancel_scope.cancel()

    def close(self, why: str) -> None:
        """Complete every call that is under way: what was sent has an unknown outcome."""
        self._why_dead = self._why_dead or why
        pending, self._pending = self._pending, {}
        for each in pending.values():
            each.complete(error=self._lost(each))

    async def initialize(self, daemon_version: str, timeout: float) -> None:
        """Complete the handshake.

        Raises:
            HandshakeError: no answer in `timeout` seconds, an error, or an unknown version.
        """
        params = {
            "protocolVersion": NEWEST,
            "capabilities": {},
            "clientInfo": {"name": "capd", "version": daemon_version},
        }
        result = await self._asked("initialize", params, timeout)
        try:
            self.protocol_version = INITIALIZED.decode(result).protocolVersion
        except MalformedError as error:
            raise HandshakeError(f"{self._name} answered initialize with {error}") from None
        if self.protocol_version not in VERSIONS:
            raise HandshakeError(
                f"{self._name} speaks protocol {self.protocol_version[:40]!r}, none of "
                f"{', '.join(VERSIONS)}"
            )
        await self._notify("notifications/initialized")

    async def list_tools(self) -> list[ToolDefinition]:
        """Return every tool that the server lists, as it writes it.

        Raises:
            HandshakeError: no complete list within 30 s.
        """
        entries: list[bytes] = []
        cursor: str | None = None
        seen: set[str] = set()
        deadline = trio.current_time() + LIST_TIMEOUT
        for _ in range(MOST_PAGES):
            params = {"cursor": cursor} if cursor is not None else {}
            timeout = max(0.01, deadline - trio.current_time())
            try:
                page = TOOL_PAGE.decode(await self._asked("tools/list", params, timeout))
            except MalformedError as error:
                raise HandshakeError(f"{self._name} answered tools/list with {error}") from None
            entries.extend(bytes(tool) for tool in page.tools)
            cursor = page.nextCursor
            if cursor is None or cursor in seen:
                break
            seen.add(cursor)
        tools, left_out = accepted(entries)
        for reason in left_out[:_JUNK_LOGGED]:
            self._log.warning("tool_left_out", reason=reason)
        return tools

    async def call_tool(
        self,
        tool: ToolName,
        arguments: bytes,
        meta: bytes,
        *,
        timeout: float | None,
        hooks: CallHooks,
    ) -> bytes:
        """Return the result of `tools/call` as the server wrote it.

        `arguments` and `meta` are JSON objects, or empty for none. Cancelling the caller tells
        the server so, once the call was sent.

        Raises:
            NotSentError, OutcomeUnknownError: see there.
            ServerError: the server answered with an error.
        """
        message_id = next(self._ids)
        members = [b'"name":' + msgspec.json.encode(tool)]
        if arguments:
            members.append(b'"arguments":' + arguments)
        if meta:
            members.append(b'"_meta":' + own_progress_token(meta, message_id))
        return await self._request(
            message_id,
            "tools/call",
            b"{" + b",".join(members) + b"}",
            timeout or IDLE_TIMEOUT,
            hooks,
        )

    async def _asked(self, method: str, params: object, timeout: float) -> bytes:
        try:
            return await self._request(
                next(self._ids), method, msgspec.json.encode(params), timeout, CallHooks()
            )
        except ServerError as error:
            text = error.error[:300].decode(errors="replace")
            raise HandshakeError(f"{self._name} answered {method} with error {text}") from None
        except (NotSentError, OutcomeUnknownError) as error:
            raise HandshakeError(str(error)) from None

    async def _request(
        self, message_id: int, method: str, params: bytes, timeout: float, hooks: CallHooks
    ) -> bytes:
        if not self.is_alive:
            raise NotSentError(f"{self._name} is not running: {self._why_dead or 'it closed'}")
        pending = _Pending(method, on_progress=hooks.progress, timeout=timeout)
        line = b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}' % (
            message_id,
            method.encode(),
            params,
        )

        def before_first_byte() -> None:
            pending.is_sent = True

        self._pending[message_id] = pending
        try:
            with trio.move_on_after(timeout) as pending.patience:
                await hooks.dispatched()
                await self._writer.send(line, before_first_byte)
                await pending.done.wait()
        except WriterFullError as error:
            raise NotSentError(f"{self._name}: {error}") from None
        except FrameCutError as error:
            raise OutcomeUnknownError(f"{self._name}: {error}") from None
        except trio.Cancelled:
            self._cancel_soon(message_id, pending, "the client cancelled it")
            raise
        finally:
            self._pending.pop(message_id, None)
        if not pending.done.is_set():
            self._cancel_soon(message_id, pending, "it took too long")
            raise self._lost(pending, f"did not answer within {timeout:g} s")
        if pending.error is not None:
            raise pending.error
        assert pending.result is not None
        return pending.result

    def _lost(self, pending: _Pending, how: str = "") -> Exception:
        how = how or self._why_dead
        if pending.is_sent:
            return OutcomeUnknownError(
                f"{self._name} {how}; the call may have run, so check before repeating it"
            )
        return NotSentError(f"{self._name} {how}; the call was not sent")

    def _cancel_soon(self, message_id: int, pending: _Pending, reason: str) -> None:
        if not pending.is_sent or pending.what == "initialize":
            return
        params = {"requestId": message_id, "reason": reason}
        self._send_soon(
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%s}'
            % msgspec.json.encode(params)
        )

    def _send_soon(self, line: bytes) -> None:
        """Queue a line that nobody waits for; a full queue drops it."""
        try:
            self._writer.post(line)
        except WriterFullError:
            self.counts["dropped_notice"] += 1

    async def _notify(self, method: str) -> None:
        try:
            await self._writer.send(b'{"jsonrpc":"2.0","method":"%s"}' % method.encode())
        except (WriterFullError, FrameCutError) as error:
            raise HandshakeError(f"{self._name}: {error}") from None

    async def _write(self) -> None:
        try:
            await self._writer.run()
        except WriterStalledError as error:
            raise LaneBrokenError(f"{self._name}: {error}") from None

    async def _received(self, line: Frame | Oversized) -> None:
        if isinstance(line, Oversized):
            self._unreadable(line.head, f"a line of {line.size_bytes} bytes is over the limit")
            return
        try:
            message = INCOMING.decode(checked_text(line.data))
        except MalformedError as error:
            self._junk(line.data, str(error))
            return
        if message.method and message.id is not msgspec.UNSET:
            self._answer(message)
        elif message.method:
            self._notified(message)
        elif len(message.result) or len(message.error):
            self._replied(message)
        else:
            self._junk(line.data, "neither a request nor a reply")
            return
        self._junk_run_lines = self._junk_run_bytes = 0

    def _replied(self, message: Incoming) -> None:
        pending = self._pending.pop(message.id, None) if isinstance(message.id, int) else None
        if pending is None:
            self.counts["unknown_reply"] += 1
        elif len(message.error):
            pending.complete(error=ServerError(bytes(message.error)))
        else:
            pending.complete(result=bytes(message.result))

    def _notified(self, message: Incoming) -> None:
        if message.method == "notifications/tools/list_changed":
            self._on_tools_changed()
        elif message.method == "notifications/progress":
            try:
                token = PROGRESS.decode(message.params).progressToken
            except MalformedError:
                self.counts["malformed_progress"] += 1
                return
            pending = self._pending.get(token) if isinstance(token, int) else None
            if pending is None or pending.on_progress is None:
                self.counts["unknown_progress"] += 1
                return
            if pending.patience is not None:
                pending.patience.deadline = trio.current_time() + pending.timeout
            try:
                pending.on_progress(bytes(message.params))
            except MalformedError:
                self.counts["malformed_progress"] += 1

    def _answer(self, message: Incoming) -> None:
        """Answer a server's request: `ping` is served, the rest was not offered to it."""
        head = b'{"jsonrpc":"2.0","id":' + msgspec.json.encode(message.id)
        if message.method == "ping":
            self._send_soon(head + b',"result":{}}')
            return
        self._send_soon(
            head + b',"error":{"code":-32601,"message":"the client does not offer this"}}'
        )

    def _junk(self, data: bytes, why: str) -> None:
        """Count a line that is no message; a call whose reply it was fails at once."""
        self.counts["junk_lines"] += 1
        # Counted since the last message: a server that logs a line a call is noisy, not broken.
        self._junk_run_lines += 1
        self._junk_run_bytes += len(data)
        if self.counts["junk_lines"] <= _JUNK_LOGGED:
            self._log.warning("junk_from_server", why=why, begins=self._redact(ascii(data[:200])))
        self._unreadable(data, f"its reply is unreadable: {why}")
        if self._junk_run_lines > _JUNK_LINES or self._junk_run_bytes > _JUNK_BYTES:
            raise LaneBrokenError(f"{self._name} writes what is not MCP to its standard output")

    def _unreadable(self, head: bytes, why: str) -> None:
        message_id = recover_id(head)
        pending = self._pending.pop(message_id, None) if isinstance(message_id, int) else None
        if pending is not None:
            text = f"{self._name}: {why}; the call has run, its result is lost"
            pending.complete(error=OutcomeUnknownError(text))
