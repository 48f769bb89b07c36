"""Runs the embedder's process: starts it when it is needed, and again after a crash.

    down ──EmbedderNeeded──> up ──exit 0 (idle)──> down
                             └──any other exit, or stuck and killed──> back-off ──> up

This actor serves the embedder's mailbox in the daemon, and passes each request on over a socket
pair that the process has inherited. While the process is down, a request waits as long as its
sender waits. If the process ends during a request, the actor tells the sender that no reply will
come. The process ends when the daemon's end of the pair closes, so it ends even if the daemon is
killed.
"""

import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from random import random

import structlog
import trio

from capd.actor_clients.names import EMBEDDER
from capd.core.servers.restarts import Backoff
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.frame_channel import ChannelOverError, FrameClient, FrameTooLargeError
from capd.runtime.mailbox import IncomingRequest
from capd_protos import embedder as messages
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.envelope import Failure

Hint = messages.EmbedderNeeded | messages.EmbedderStuck
EVENTS: MsgpackCodec[Hint] = MsgpackCodec(Hint)
REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)
REPLIES: MsgpackCodec[messages.Reply | Failure] = MsgpackCodec(messages.Reply | Failure)
STEADY = 60.0
"""Seconds without a crash after which earlier crashes are forgotten."""
END_TIMEOUT = 5.0
"""Seconds for the process to end after its channel was closed."""
CANNOT_START = 127

log = structlog.get_logger(actor="embedder_process")


class EmbedderProcess:
    """Runs the embedder's process as a task of the daemon, and starts it again when it crashes."""

    def __init__(self, bus: Bus, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._bus = bus
        self._argv = argv
        self._environment = environment
        self._backoff = Backoff()
        self._needed = trio.Event()
        self._process: trio.Process | None = None
        self._client: FrameClient | None = None
        self._is_up = trio.Event()
        self._is_ending = False
        """Whether the present process has closed its channel, or ended."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the process until cancelled, then end it."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._listen)
            nursery.start_soon(self._serve, task_status)
            while True:
                await self._needed.wait()
                await self._keep_up()

    async def _listen(self, task_status: trio.TaskStatus[None]) -> None:
        async with self._bus.subscribe(EVENTS, "embedder.needed", "embedder.stuck") as hints:
            task_status.started()
            async for hint in hints:
                if isinstance(hint, messages.EmbedderNeeded):
                    self._needed.set()
                elif self._process is not None:
                    log.warning("embedder_stuck", pid=self._process.pid)
                    self._process.kill()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        async with (
            trio.open_nursery() as nursery,
            self._bus.mailbox(EMBEDDER, REQUESTS) as mailbox,
        ):
            task_status.started()
            async for incoming in mailbox:
                nursery.start_soon(self._pass_on, incoming)

    async def _pass_on(self, incoming: IncomingRequest[messages.Request]) -> None:
        await contained("pass on", self._forward, incoming, log=log)

    async def _forward(self, incoming: IncomingRequest[messages.Request]) -> None:
        async with incoming:
            with trio.move_on_after(incoming.remaining):
                while self._client is None:
                    await self._is_up.wait()
                try:
                    body = await self._client.ask(incoming.request, incoming.remaining)
                    reply = REPLIES.decode(body)
                except ChannelOverError as error:
                    incoming.lose(str(error))
                except MalformedError as error:
                    incoming.lose(f"what its process answered cannot be read ({error})")
                except FrameTooLargeError as error:
                    await incoming.reply(messages.EmbedderRefused("too_many", str(error)))
                else:
                    await incoming.reply(reply)

    async def _keep_up(self) -> None:
        failures = 0
        while True:
            started_at = trio.current_time()
            self._is_ending = False
            returncode = await self._run_once()
            self._end()
            is_expected = returncode == 0
            log.info("embedder_exited", returncode=returncode, expected=is_expected)
            self._bus.publish(messages.EmbedderExited(returncode, is_expected))
            if is_expected:
                return
            if trio.current_time() - started_at >= STEADY:
                failures = 0
            failures += 1
            await trio.sleep(self._backoff.delay(failures, random()))  # noqa: S311 - jitter

    async def _run_once(self) -> int:
        try:
            return await self._run_process()
        except OSError as error:
            # No descriptor, memory or process is left; treated like a crash.
            log.error("embedder_not_started", reason=str(error))
            return CANNOT_START

    async def _run_process(self) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
            try:
                async with trio.open_nursery() as nursery:
                    process: trio.Process = await nursery.start(
                        partial(
                            trio.run_process,
                            list(self._argv),
                            stdin=theirs.fileno(),
                            stdout=subprocess.DEVNULL,
                            env=dict(self._environment),
                            check=False,
                            # A terminal's Ctrl-C must reach only the daemon.
                            start_new_session=True,
                        )
                    )
                    # Our copy would keep the pair open after the process has ended.
                    theirs.close()
                    log.info("embedder_started", pid=process.pid)
                    returncode = await self._serve_until_end(process, FrameClient(stream))
            finally:
                await trio.aclose_forcefully(stream)
        return returncode

    async def _serve_until_end(self, process: trio.Process, client: FrameClient) -> int:
        """Pass requests on to a process until it ends; return its exit status."""
        self._process = process
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._connect, client, process)
                self._client = client
                self._is_up.set()
                returncode = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._process = None
            self._end()
        return returncode

    async def _connect(self, client: FrameClient, process: trio.Process) -> None:
        await client.run()
        # A process that closes its channel is ending. If it does not end, kill it.
        self._end()
        await trio.sleep(END_TIMEOUT)
        process.kill()

    def _end(self) -> None:
        """Note that the process is ending; later requests wait for the next process."""
        if not self._is_ending:
            self._is_ending = True
            self._client = None
            self._is_up = trio.Event()
            self._needed = trio.Event()
