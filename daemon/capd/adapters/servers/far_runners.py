"""Runs servers on the far side of a bridge, over connections that its runner opens.

    a runner's hello ──> idle ──an order──> it runs (`s`) ──frames──> exit code (`x`),
                          │                                           nothing left (`g`),
                          └──bridge ends──> closed                    or the connection's end

A runner is the bridge's program on the far side, which starts servers there. The frames are those
of `capd_client/bridge/runner.py`. The far side is not trusted. Frames from it are limited like the
output of a server, and anything else ends the connection. A connection that ends takes the server
with it, on both sides.
"""

import struct
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Literal

import trio

from capd.adapters.fair_share import FairShare
from capd.adapters.servers.http.line_pipe import LineReceiver, line_pipe
from capd.adapters.servers.processes import ExitStatus, SpawnFailedError
from capd.adapters.servers.stderr_tail import printable
from capd.core.errors import CapdError
from capd.core.servers.far_starts import FarOrder, FarPlace

MOST_IDLE = 4
"""The most idle connections of one bridge, whose runner opens one at a time."""
MOST_SERVERS = 32
"""The most servers that one bridge may run on the far side."""
RUNNER_TIMEOUT = 5.0
"""Seconds to wait for a runner. After a cut it connects again as soon as the bridge is open."""
START_TIMEOUT = 20.0
_FEWEST_TRIES = 2
_HEAD = struct.Struct(">cI")
_MOST_PAYLOAD_BYTES = 65536
_MOST_STDERR_BYTES = 65536
_PAUSE = 0.01
_GONE_TIMEOUT = 5.0
_SEND_TIMEOUT = 5.0


class NoRunnerError(CapdError):
    """No runner of the bridge can start a server; the text says how to repair that."""


class FarRunners:
    """The connections of runners that wait for an order, by bridge."""

    def __init__(self) -> None:
        self._idle: dict[str, deque[trio.SocketStream]] = {}
        self._running: Counter[str] = Counter()
        self._came = trio.Event()

    def offer(self, bridge: str, stream: trio.SocketStream) -> None:
        """Add the connection `stream` of a bridge's runner, which waits for an order.

        If there are too many, the oldest is closed.
        """
        idle = self._idle.setdefault(bridge, deque())
        idle.append(stream)
        if len(idle) > MOST_IDLE:
            idle.popleft().socket.close()
        self._came.set()
        self._came = trio.Event()

    def forget(self, bridge: str) -> None:
        """Close the idle connections of a bridge that has ended."""
        for stream in self._idle.pop(bridge, ()):
            stream.socket.close()

    async def take(self, bridge: str) -> trio.SocketStream:
        """Return an idle connection of the bridge's runner, the newest first.

        Raises:
            NoRunnerError: there is none, and none comes within `RUNNER_TIMEOUT` seconds.
        """
        with trio.move_on_after(RUNNER_TIMEOUT):
            while True:
                idle = self._idle.get(bridge)
                while idle:
                    stream = idle.pop()
                    if stream.socket.fileno() >= 0:
                        return stream
                await self._came.wait()
        raise NoRunnerError(
            f"nothing can start it on the other side of the bridge {bridge}: end the command that"
            " holds the bridge open, and start it again (capd bridge list shows its target)"
        )

    @asynccontextmanager
    async def started(
        self, order: FarOrder, bridge: str
    ) -> AsyncIterator[tuple[trio.SocketStream, bytes]]:
        """Start a server on the far side of `bridge`, as `order` says.

        Yield its connection, and the bytes that came after the answer to the order.

        Raises:
            NoRunnerError: there is no runner.
            SpawnFailedError: the server cannot be started on the far side, or too many servers run
                there.
            FarRefusedError: the order is too long.
        """
        if self._running[bridge] >= MOST_SERVERS:
            raise SpawnFailedError(
                f"{order.name} cannot start: {MOST_SERVERS} servers run over the bridge {bridge}"
            )
        line = order.line()
        self._running[bridge] += 1
        try:
            for _ in range(MOST_IDLE + _FEWEST_TRIES):
                stream = await self.take(bridge)
                async with _closing(stream):
                    answered = await _answered(stream, line)
                    if answered is None:
                        # It was idle for long, and its runner is gone.
                        continue
                    if answered[:1] == b"f":
                        raise SpawnFailedError(_why(order, bridge, answered))
                    yield stream, answered[_HEAD.size :]
                    return
            raise NoRunnerError(f"the runner of the bridge {bridge} does not answer: try again")
        finally:
            self._running[bridge] -= 1


@asynccontextmanager
async def _closing(stream: trio.SocketStream) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await trio.aclose_forcefully(stream)


async def _answered(stream: trio.SocketStream, line: bytes) -> bytes | None:
    """Send the order `line`; return the first frame of the answer, and the bytes after it.

    Return None if there is no valid answer in time.
    """
    answer = b""
    with trio.move_on_after(START_TIMEOUT):
        try:
            await stream.send_all(line)
            while part := await stream.receive_some(_MOST_PAYLOAD_BYTES):
                answer += part
                if len(answer) < _HEAD.size:
                    continue
                kind, size = _HEAD.unpack_from(answer)
                if (
                    kind not in {b"s", b"f"}
                    or size > _MOST_PAYLOAD_BYTES
                    or (kind == b"s" and size)
                ):
                    return None
                if len(answer) >= _HEAD.size + size:
                    return answer
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
    return None


def _why(order: FarOrder, bridge: str, answer: bytes) -> str:
    said = printable(answer[_HEAD.size :][:300].decode("utf-8", "replace"))
    return f"{order.name} cannot start on the other side of the bridge {bridge}: {said}"


class FarServer:
    """A server on the far side, with the interface of a local server process."""

    pid = 0
    """No process of this machine."""
    membership: Literal[""] = ""
    is_parked = False

    def __init__(self, order: FarOrder, stream: trio.SocketStream, rest: bytes) -> None:
        self.sandbox = "none, over the bridge"
        self.cwd = order.cwd
        self.cwd_reason = order.reason
        self.stdin, self._lines = line_pipe()
        self._output, self.stdout = line_pipe()
        self._stream = stream
        self._rest = rest
        self._stderr = bytearray()
        self._stderr_bytes = 0
        self._status: ExitStatus | str | None = None
        self._exited = trio.Event()
        self._gone = trio.Event()
        self._scope = trio.CancelScope(shield=True)
        self._sending = trio.Lock()

    def stderr_tail(self) -> list[str]:
        """Return the last lines that the server wrote to stderr, safe to print."""
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        return [printable(each.removesuffix("\r")) for each in lines if each]

    async def wait(self) -> ExitStatus | str:
        """Wait until the server has ended; return how it ended."""
        await self._exited.wait()
        assert self._status is not None
        return self._status

    async def stop(self, grace: float = 2.0) -> None:
        """End the tree: close its input, later SIGTERM, later SIGKILL; then close the connection.

        `grace` is the number of seconds before each signal; 0 sends SIGKILL at once.
        This runs to the end even if the caller is cancelled. Calling it again is harmless.
        """
        with trio.CancelScope(shield=True):
            self.stdin.close()
            # Nobody reads the output any more. Without this, output that waits for a reader would
            # hold up the frames behind it.
            self.stdout.close()
            with trio.move_on_after(grace):
                await self._exited.wait()
            if not self._exited.is_set() and grace:
                await self._send(b"t")
                with trio.move_on_after(grace):
                    await self._exited.wait()
            await self._send(b"k")
            with trio.move_on_after(_GONE_TIMEOUT):
                await self._gone.wait()
            self._scope.cancel()

    async def run(self) -> None:
        """Carry the server's input and output until the connection ends."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._carry_input, self._lines)
                    await self._receive()
                    nursery.cancel_scope.cancel()
        finally:
            self._set_exited("was cut off: the connection to its runner ended")
            self._output.close()
            self._lines.close()
            self._gone.set()

    async def _carry_input(self, lines: LineReceiver) -> None:
        while data := await lines.receive_some(_MOST_PAYLOAD_BYTES):
            await self._send(b"i", data, timeout=float("inf"))
        await self._send(b"c")

    async def _send(self, kind: bytes, data: bytes = b"", timeout: float = _SEND_TIMEOUT) -> None:
        with (
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
            trio.move_on_after(timeout),
        ):
            async with self._sending:
                await self._stream.send_all(_HEAD.pack(kind, len(data)) + data)

    async def _receive(self) -> None:
        read = bytearray(self._rest)
        self._rest = b""
        # Frames without content wait for nobody, and thousands of them arrive at once.
        share = FairShare()
        while True:
            while len(read) >= _HEAD.size:
                kind, size = _HEAD.unpack_from(read)
                if size > _MOST_PAYLOAD_BYTES:
                    self._set_exited("was cut off: its runner broke the rules")
                    return
                if len(read) < _HEAD.size + size:
                    break
                payload = bytes(read[_HEAD.size : _HEAD.size + size])
                del read[: _HEAD.size + size]
                if not await self._on_frame(kind, payload):
                    return
                if payload and kind == b"o":
                    # This frame waited until its content was read. That time is not counted as
                    # work.
                    share.resume()
                else:
                    await share.give_way()
            try:
                part = await self._stream.receive_some(_MOST_PAYLOAD_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            share.resume()
            if not part:
                return
            read += part

    async def _on_frame(self, kind: bytes, payload: bytes) -> bool:
        """Handle a frame of this kind from the far side; return whether another may follow."""
        match kind:
            case b"o":
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    # Empty content would be taken for the end of the stream.
                    if payload:
                        await self._output.send_all(payload)
            case b"e":
                self._stderr += payload
                del self._stderr[:-_MOST_STDERR_BYTES]
                self._stderr_bytes += len(payload)
                if self._stderr_bytes >= _MOST_STDERR_BYTES:
                    self._stderr_bytes = 0
                    await trio.sleep(_PAUSE)  # a flood costs its writer the time, not capd
            case b"x":
                try:
                    code = int(payload[:8])
                except ValueError:
                    code = 1
                signalled = ExitStatus(signal=-code) if code < 0 else ExitStatus(code=code)
                self._set_exited(signalled)
            case b"g":
                self._set_exited("was ended")
                return False
            case _:
                self._set_exited("was cut off: its runner broke the rules")
                return False
        return True

    def _set_exited(self, status: ExitStatus | str) -> None:
        if self._status is None:
            self._status = status
            self._exited.set()


@asynccontextmanager
async def far_running(
    order: FarOrder, place: FarPlace, runners: FarRunners
) -> AsyncIterator[FarServer]:
    """Run the server that `order` describes on the far side of a bridge while the block runs.

    Raises:
        NoRunnerError, SpawnFailedError, FarRefusedError: as `FarRunners.started`.
    """
    async with runners.started(order, place.bridge) as (stream, rest):
        server = FarServer(order, stream, rest)
        tasks = AsyncExitStack()
        nursery = await tasks.enter_async_context(trio.open_nursery())
        nursery.start_soon(server.run)
        try:
            yield server
        finally:
            # Otherwise a cancellation from outside would take the place of what the block raised.
            nursery.cancel_scope.shield = True
            try:
                await server.stop(0)
            finally:
                await tasks.aclose()
