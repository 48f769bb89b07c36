"""Keeps the embedder's own process: starts it when it is needed, again after a crash.

    down ──EmbedderNeeded──> up ──exit 0 (idle)──> down
                             └───any other exit, or stuck and killed──> back-off ──> up

The process ends by itself when its standard input closes, so a killed daemon leaves none.
"""

import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from random import random

import structlog
import trio

from capd.core.servers.restarts import Backoff
from capd.runtime.bus import Bus
from capd_protos import embedder as messages
from capd_protos.codec import MsgpackCodec

Hint = messages.EmbedderNeeded | messages.EmbedderStuck
EVENTS: MsgpackCodec[Hint] = MsgpackCodec(Hint)
STEADY = 60.0
"""Seconds of service after which earlier crashes are forgotten."""

log = structlog.get_logger(actor="embedder_keeper")


class EmbedderKeeper:
    """A child of the supervision tree that stands for the process."""

    def __init__(self, bus: Bus, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._bus = bus
        self._argv = argv
        self._environment = environment
        self._backoff = Backoff()
        self._needed = trio.Event()
        self._process: trio.Process | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the process until cancelled, then end it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, task_status)
            while True:
                await self._needed.wait()
                await self._keep_up()
                self._needed = trio.Event()

    async def _listen(self, task_status: trio.TaskStatus[None]) -> None:
        async with self._bus.subscribe(EVENTS, "embedder.needed", "embedder.stuck") as hints:
            task_status.started()
            async for hint in hints:
                if isinstance(hint, messages.EmbedderNeeded):
                    self._needed.set()
                elif self._process is not None:
                    log.warning("embedder_stuck", pid=self._process.pid)
                    self._process.kill()

    async def _keep_up(self) -> None:
        failures = 0
        while True:
            started_at = trio.current_time()
            returncode = await self._run_once()
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
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    list(self._argv),
                    stdin=subprocess.PIPE,
                    env=dict(self._environment),
                    check=False,
                    # A terminal's Ctrl-C is the daemon's to act on.
                    start_new_session=True,
                )
            )
            self._process = process
            log.info("embedder_started", pid=process.pid)
            returncode = await process.wait()
            self._process = None
            if process.stdin is not None:
                await process.stdin.aclose()
        return returncode
