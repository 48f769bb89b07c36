"""A server that is reached by URL, with the interface of a server's process.

Lines written to `stdin` are sent as HTTP requests, the server's answers are read as lines from
`stdout`, and `wait` returns when the connection is lost. So callers treat both kinds of servers
alike.

    connected ──session expired, credentials refused, or stream lost──> gone
         └─────stop: no more lines, end the session, close everything──> gone
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import (
    TYPE_CHECKING,
    Literal,
    Protocol,
)

import trio

from capd.adapters.line_texts import recover_id
from capd.adapters.servers.http.line_pipe import LineReceiver, line_pipe
from capd.adapters.servers.http.login_record import LoginNeededError
from capd.adapters.servers.http.logins import Logins
from capd.adapters.servers.http.remote_link import ConnectionLoss, LinkCallbacks, RemoteLink
from capd.adapters.servers.http.remote_spec import RemoteSpec
from capd.adapters.servers.http.wire_messages import failure_reply
from capd.adapters.servers.processes import SpawnFailedError
from capd.adapters.servers.server_lines import INCOMING, Incoming
from capd.adapters.stdio_frames import Frame, FrameReader
from capd.core.lazy_patterns import lazy_pattern
from capd.core.protocol.outcomes import CallFailedError, NotSentError
from capd_protos.codec import MalformedError

if TYPE_CHECKING:
    import httpx2

LINE_CAP_BYTES = 256 * 1024 * 1024
LAST_WORDS_TIMEOUT = 1.0
_HEADER_NAME = lazy_pattern(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = lazy_pattern(r"[^\x00-\x1f\x7f]*")


class Wire(Protocol):
    """The transport to a remote server: streamable HTTP, or the older HTTP with SSE."""

    async def send(self, message: Incoming, line: bytes) -> None:
        """Send one line to the server; `message` is its parsed form. Answers arrive separately."""

    async def goodbye(self) -> None:
        """Tell the server that the session is over, if the transport has such a message."""


class BadAddressError(SpawnFailedError):
    """The URL or a header of the definition cannot be used."""


class RemoteServer:
    """A connection by URL with the interface of a process; create it with `connected`."""

    pid = 0
    sandbox = ""
    cwd = ""
    cwd_reason = ""
    membership: Literal[""] = ""

    def __init__(self) -> None:
        self.stdin, self._lines = line_pipe()
        self._output, self.stdout = line_pipe()
        self._loss: ConnectionLoss | None = None
        self._gone = trio.Event()
        self._ended = trio.Event()
        self._scope = trio.CancelScope()

    @property
    def is_parked(self) -> bool:
        """Whether the connection ended because a person has to act first, for example log in."""
        return self._loss is not None and self._loss.is_parked

    def stderr_tail(self) -> list[str]:
        """Return no lines, because a remote server's stderr cannot be read."""
        return []

    async def wait(self) -> ConnectionLoss:
        """Wait until the connection is lost, and return why."""
        await self._gone.wait()
        assert self._loss is not None
        return self._loss

    async def stop(self, grace: float = 2.0) -> None:
        """End the session politely within `grace` seconds, then close everything.

        This completes even if the caller is cancelled. Calling it again is harmless.
        """
        with trio.CancelScope(shield=True):
            self.stdin.close()
            with trio.move_on_after(grace):
                await self._ended.wait()
            self._scope.cancel()
            await self._ended.wait()

    async def _run(self, carry: Callable[[LineReceiver, LinkCallbacks], Awaitable[None]]) -> None:
        """Have `carry` send lines to the server, until they end or the connection is cancelled."""
        try:
            with self._scope:
                # Shielded: `stop` still needs the connection when the caller is cancelled.
                self._scope.shield = True
                await carry(self._lines, LinkCallbacks(self._deliver, self._lose))
        finally:
            self._lose(ConnectionLoss("was stopped"))
            self._output.close()
            self._lines.close()
            self._ended.set()

    async def _deliver(self, line: bytes) -> None:
        try:
            await self._output.send_line(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # nobody listens any more

    def _lose(self, loss: ConnectionLoss) -> None:
        if self._loss is None:
            self._loss = loss
            self._gone.set()


class _Carrier:
    """Carries the lines of one connection over the transport that its server speaks."""

    def __init__(self, spec: RemoteSpec, logins: Logins, client: "httpx2.AsyncClient") -> None:
        self._spec = spec
        self._client = client
        self._login = logins.of(spec)
        self._wire: Wire | None = None

    async def carry(self, lines: LineReceiver, outlet: LinkCallbacks) -> None:
        """Send the lines from `lines` to the server until they end.

        What the server sends is passed to `outlet`.
        """
        from capd.adapters.servers.http import legacy_events, streamable  # noqa: PLC0415 - slow

        async with trio.open_nursery() as nursery:
            link = RemoteLink(self._spec, self._client, self._login, outlet, nursery)

            async def fall_back(message: Incoming, line: bytes) -> bool:
                legacy = legacy_events.LegacyWire(link)
                try:
                    await legacy.open()
                except CallFailedError:
                    return False
                self._wire = legacy
                await legacy.send(message, line)
                return True

            if self._spec.transport == "sse":
                legacy = self._wire = legacy_events.LegacyWire(link)
                try:
                    await legacy.open()
                except (CallFailedError, LoginNeededError) as error:
                    outlet.lose(
                        ConnectionLoss(str(error), is_parked=isinstance(error, LoginNeededError))
                    )
                    await trio.sleep_forever()  # until it is stopped
            else:
                is_given = self._spec.transport == "http"
                self._wire = streamable.StreamableWire(link, None if is_given else fall_back)
            async for line in FrameReader(lines, LINE_CAP_BYTES):
                if isinstance(line, Frame):
                    await self._send(line.data, outlet)
                else:
                    failure = NotSentError(f"was not asked: {line.size_bytes} bytes are too many")
                    await outlet.deliver(failure_reply(recover_id(line.head), failure))
            await self._wire.goodbye()
            nursery.cancel_scope.cancel()

    async def _send(self, line: bytes, outlet: LinkCallbacks) -> None:
        try:
            message = INCOMING.decode(line)
        except MalformedError as error:
            failure = NotSentError(f"was not asked, for the request cannot be read: {error}")
            await outlet.deliver(failure_reply(recover_id(line), failure))
            return
        assert self._wire is not None
        await self._wire.send(message, line)


@asynccontextmanager
async def connected(spec: RemoteSpec, logins: Logins) -> AsyncIterator[RemoteServer]:
    """Keep a connection to the server of `spec` while the block runs; yield it.

    Nothing is sent before the first line. An unreachable server is reported in its answers, so this
    raises only if the definition is wrong. `logins` has the login at the server.

    Raises:
        BadAddressError: the URL or a header cannot be used.
    """
    client = await trio.to_thread.run_sync(_prepared, spec)
    server = RemoteServer()
    tasks = AsyncExitStack()
    nursery = await tasks.enter_async_context(trio.open_nursery())
    nursery.start_soon(server._run, _Carrier(spec, logins, client).carry)  # noqa: SLF001 - its own
    try:
        yield server
    finally:
        server._scope.cancel()  # noqa: SLF001 - its own
        # Shielded, or a cancellation from outside would replace the block's own exception.
        nursery.cancel_scope.shield = True
        try:
            # Not `async with`: a nursery would wrap the block's own exception in a group.
            await tasks.aclose()
        finally:
            with trio.move_on_after(LAST_WORDS_TIMEOUT, shield=True):
                await client.aclose()


def _prepared(spec: RemoteSpec) -> "httpx2.AsyncClient":
    """Return an HTTP client for `spec`, after checking its URL and headers.

    It imports slow modules, so run it in a thread.

    Raises:
        BadAddressError: the URL or a header cannot be used.
    """
    import httpx2  # noqa: PLC0415 - slow

    from capd.adapters.servers.http import legacy_events, streamable  # noqa: F401, PLC0415 - slow
    from capd.adapters.servers.http.guarded_client import new_client  # noqa: PLC0415 - slow

    try:
        url = httpx2.URL(spec.url)
    except httpx2.InvalidURL:
        raise BadAddressError(f"{spec.name} has an invalid URL") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise BadAddressError(f"{spec.name} has a URL that is neither http:// nor https://")
    for name, value in spec.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise BadAddressError(f"{spec.name} has a header with the impossible name {name!a}")
        if not _HEADER_VALUE.fullmatch(value) or not value.isascii():
            raise BadAddressError(
                f"the header {name} of {spec.name} has a value with characters that HTTP refuses"
            )
    return new_client(spec.headers)
