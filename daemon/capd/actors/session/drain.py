"""How sessions end where the daemon does: nothing begins, what is under way ends, clients go on.

Who is told of dispatched requests sends the others again, to the next daemon (docs/protocol.md).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import trio

from capd.adapters.clients.client_connection import OpenConnection
from capd_protos.curator import SessionsDrained

LOOK_AGAIN = 0.05
CLOSING_TIME = 0.2
"""Seconds for the connections' writers, before the actor that they belong to is cancelled."""

log = structlog.get_logger(actor="curator")


class Drain:
    """What is under way in all sessions, and its end."""

    def __init__(self) -> None:
        self.is_on = False
        """Whether nothing may begin any more."""
        self._calls = 0

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call that came on no client's connection."""
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
        """Wait `within` seconds for what is under way, and close every connection there is.

        Clients come back to the next daemon, unless it was stopped `is_for_good`.
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
