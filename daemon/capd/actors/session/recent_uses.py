"""How often each tool was used in the last day, from the ledger, for all sessions.

The ledger is asked at most every five seconds, when a turn needs the counts. A turn waits briefly
for the answer, or not at all if the ledger was late the last time. A turn that gets no answer in
time uses the previous one.
"""

import time

import structlog
import trio

from capd.actor_clients.ledger import LedgerClient
from capd.core.tools.curation import WINDOW
from capd.runtime.bus import ActorUnavailableError, Bus
from capd_protos import ledger

REFRESH = 5.0
ASK_TIMEOUT = 5.0
PATIENCE = 0.1
"""Seconds for which a turn waits. The ledger usually answers within a few milliseconds."""
MOST_TOOLS = 256
"""How many tools are kept, the most used ones. The rest are used too rarely to matter."""

log = structlog.get_logger(actor="curator")


class RecentUses:
    """How often each tool was used in the last day, as the ledger last answered."""

    def __init__(self, bus: Bus) -> None:
        self._ledger = LedgerClient(bus)
        self._uses: list[ledger.Use] = []
        self._ask_again_at = float("-inf")
        self._is_wanted = trio.Event()
        self._answered = trio.Event()
        self._is_late = False

    async def known(self) -> list[ledger.Use]:
        """Return the tools used in the last day, the most used first.

        The counts are about `REFRESH` seconds old, and older while the ledger is late.
        """
        now = trio.current_time()
        if now >= self._ask_again_at:
            self._ask_again_at = now + REFRESH
            self._answered = trio.Event()
            self._is_wanted.set()
            if not self._is_late:
                self._is_late = True
                with trio.move_on_after(PATIENCE):
                    await self._answered.wait()
        return self._uses

    async def follow(self) -> None:
        """Ask the ledger whenever a turn needs the counts, until cancelled."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted = trio.Event()
            try:
                reply = await self._ledger.uses(time.time() - WINDOW, timeout=ASK_TIMEOUT)
            except ActorUnavailableError as error:
                log.info("uses_unknown", reason=str(error))
                continue
            if isinstance(reply, ledger.UsesCounted):
                self._uses = reply.uses[:MOST_TOOLS]
            self._is_late = False
            self._answered.set()
