"""Error boundaries around the task of one connection, request or server.

In a nursery an error in one task cancels all others. A boundary logs the error instead
(docs/design/actors.md).

    contained     a task: its error is logged, and the task ends
    kept_running  a task that an actor needs: it is started again after each error

Use `adapters/step_boundary` for a few lines that do not await.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import trio
from structlog.typing import FilteringBoundLogger

from capd.core.errors import described
from capd.core.servers.restarts import Backoff

Ts = TypeVarTuple("Ts")

AGAIN = Backoff(first=0.5, last=60.0)
"""The pause before a task is begun again, by how often it has failed in a row."""
SOUND_AFTER = 120.0
"""Seconds after which a task that runs counts as sound: its failures before that are forgotten."""


async def contained(
    name: str,
    fn: Callable[[*Ts], Awaitable[object]],
    *args: *Ts,
    log: FilteringBoundLogger,
) -> None:
    """Run `fn(*args)`. If it raises an error, log the error as `task_failed` and return."""
    # `except*`: a nursery may raise an error and a Cancelled in one group, and the Cancelled
    # must not be caught.
    try:
        await fn(*args)
    except* Exception as errors:  # noqa: BLE001 - the boundary
        log.error("task_failed", task=name, **described(errors))


async def kept_running(
    name: str,
    fn: Callable[[*Ts], Awaitable[object]],
    *args: *Ts,
    log: FilteringBoundLogger,
) -> None:
    """Run `fn(*args)`, and begin it again after each error, until it returns by itself.

    Use it for a part of an actor that all sessions share, if the actor can answer requests without
    that part. If its errors ended the whole actor, every session would lose its connection.
    """
    failures = 0
    while True:
        began_at = trio.current_time()
        try:
            await fn(*args)
        except* Exception as errors:  # noqa: BLE001 - the boundary
            log.error("task_failed", task=name, **described(errors))
        else:
            return
        failures = 1 if trio.current_time() - began_at > SOUND_AFTER else failures + 1
        await trio.sleep(AGAIN.delay(failures, 0.0))
        log.info("task_begun_again", task=name, failures=failures)
