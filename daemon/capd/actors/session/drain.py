"""Ends all sessions before the daemon ends: no new session opens, and calls in progress finish.

A client that was told which of its requests were dispatched sends the others to the next daemon
(docs/protocol.md).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import trio

from capd.adapters.clients.client_connection import OpenConnection
from capd_protos.curator import SessionsDrained

LOOK_AGAIN = 0.05
CLOSING_TIME = 0.2
"""Seconds in which connections may write what is left, before the curator is cancelled."""

log = structlog.get_logger(actor="curator")


class Drain:
    """Lets calls in progress end before the daemon ends, and then closes every connection.

    The wait has a time limit.
    """

    def __init__(self) -> None:
        self.is_on = False
        """Whether sessions are being ended: no new one opens, and connections refuse new calls."""
        self._calls = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call as in progress while the block runs.

        Use this for calls that do not come from a client's connection: a connection counts its own.
        """
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    async def finish(
        self,
        connected: Callable[[], list[OpenConnection]],
        within: float,
        *,
        is_for_good: bool = False,
    ) -> SessionsDrained:
        """Wait up to `within` seconds for calls in progress, then close every connection.

        Clients reconnect to the next daemon, unless `is_for_good` says that there will be none.
        """
        self.is_on = True
        for upstream in connected():
            upstream.is_draining = True
        with trio.move_on_after(within):
            while self._calls or any(upstream.is_busy for upstream in connected()):
                await trio.sleep(LOOK_AGAIN)
        open_ = connected()
        cut = sum(upstream.is_busy for upstream in open_)
        for upstream in open_:
            upstream.close("stopping", reconnect=not is_for_good)
        log.info("sessions_drained", sessions=len(open_), cut=cut)
        await trio.sleep(CLOSING_TIME)
        return SessionsDrained(cut)
