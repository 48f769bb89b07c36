"""Accepts the next connection, for each of the three listeners of the gateway."""

import trio
from structlog.typing import FilteringBoundLogger
from trio.abc import Listener

PAUSE = 0.1
"""Seconds until the next try, while no file descriptor is free (docs/design/operation.md)."""


async def next_connection(
    listener: Listener[trio.SocketStream], log: FilteringBoundLogger
) -> trio.SocketStream:
    """Return the next connection. Log each attempt that fails, and try again after a pause."""
    while True:
        try:
            return await listener.accept()
        except OSError as error:
            log.error("accept_failed", reason=error.strerror)
            await trio.sleep(PAUSE)
