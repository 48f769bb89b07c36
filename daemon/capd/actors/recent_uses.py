"""How often each tool was used of late, as the ledger has it: one answer for all sessions.

asked at most every five seconds; a turn waits for the answer a moment, and not at all for a
ledger that failed the last time: then it decides by what is known, or by nothing
"""

import time

import structlog
import trio

from capd.core.tools.curation import WINDOW
from capd.runtime.bus import Bus
from capd.runtime.peer import AskFailedError, AskTimeoutError, PeerUnreachableError
from capd_protos import ledger
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName

LEDGER = ActorName("ledger")
REPLIES: MsgpackCodec[ledger.Reply] = MsgpackCodec(ledger.Reply)

REFRESH = 5.0
TRY_AGAIN = 60.0
PATIENCE = 0.1
"""Seconds of a turn; the ledger's own answer takes a few milliseconds."""
MOST_TOOLS = 256
"""The most used ones: what is used less than so many others says little."""

_UNANSWERED = (AskTimeoutError, PeerUnreachableError, AskFailedError)

log = structlog.get_logger(actor="curator")


class RecentUses:
    """The uses of the last day."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._uses: list[ledger.Use] = []
        self._ask_again_at = float("-inf")

    async def known(self) -> list[ledger.Use]:
        """Return them, most used first, as they were a few seconds ago at most."""
        now = trio.current_time()
        if now < self._ask_again_at:
            return self._uses
        # Set before the wait: turns of other sessions meanwhile do not ask as well.
        self._ask_again_at = now + REFRESH
        request = ledger.CountUses(time.time() - WINDOW)
        try:
            reply = await self._bus.ask(LEDGER, request, REPLIES, PATIENCE)
        except _UNANSWERED as error:
            self._ask_again_at = now + TRY_AGAIN
            log.info("uses_unknown", reason=str(error))
            return self._uses
        if isinstance(reply, ledger.UsesCounted):
            self._uses = reply.uses[:MOST_TOOLS]
        return self._uses
