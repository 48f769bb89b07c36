"""Asks the ledger for past calls, decisions and scripts."""

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import LEDGER
from capd_protos import ledger as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import SessionKey

_USES_COUNTED: MsgpackCodec[messages.UsesCounted | messages.LedgerRefused] = MsgpackCodec(
    messages.UsesCounted | messages.LedgerRefused
)
_CALLS_SUMMED: MsgpackCodec[messages.CallsSummed | messages.LedgerRefused] = MsgpackCodec(
    messages.CallsSummed | messages.LedgerRefused
)
_DECISIONS_LISTED: MsgpackCodec[messages.DecisionsListed | messages.LedgerRefused] = MsgpackCodec(
    messages.DecisionsListed | messages.LedgerRefused
)
_ACTIVATIONS_LISTED: MsgpackCodec[messages.ActivationsListed | messages.LedgerRefused] = (
    MsgpackCodec(messages.ActivationsListed | messages.LedgerRefused)
)
_SCRIPTS_LISTED: MsgpackCodec[messages.ScriptsListed | messages.LedgerRefused] = MsgpackCodec(
    messages.ScriptsListed | messages.LedgerRefused
)
_LEDGER_DESCRIBED: MsgpackCodec[messages.LedgerDescribed] = MsgpackCodec(messages.LedgerDescribed)

EVERY_SESSION = SessionKey("")


class LedgerClient(ActorClient):
    """Asks the ledger for past calls, decisions and scripts."""

    actor = LEDGER

    async def uses(
        self, since: float, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.UsesCounted | messages.LedgerRefused:
        """Count the successful calls of each tool since `since`, in seconds since the epoch."""
        return await self._ask(messages.CountUses(since), _USES_COUNTED, timeout)

    async def sums(
        self, since: float, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.CallsSummed | messages.LedgerRefused:
        """Return how many calls each capability had, and how they ended.

        Only calls after `since`, in seconds since the epoch, count.
        """
        return await self._ask(messages.SumCalls(since), _CALLS_SUMMED, timeout)

    async def decisions(
        self, limit: int, session: SessionKey = EVERY_SESSION, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.DecisionsListed | messages.LedgerRefused:
        """Return the newest `limit` routing decisions, of one session or of all."""
        return await self._ask(messages.ListDecisions(limit, session), _DECISIONS_LISTED, timeout)

    async def activations(
        self, limit: int, session: SessionKey = EVERY_SESSION, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ActivationsListed | messages.LedgerRefused:
        """Return the newest `limit` notes on what was switched on or off, in one session or all."""
        return await self._ask(
            messages.ListActivations(limit, session), _ACTIVATIONS_LISTED, timeout
        )

    async def scripts(
        self, limit: int, session: SessionKey = EVERY_SESSION, *, timeout: float = ANSWER_TIMEOUT
    ) -> messages.ScriptsListed | messages.LedgerRefused:
        """Return the newest `limit` scripts, of one session or of all."""
        return await self._ask(messages.ListScripts(limit, session), _SCRIPTS_LISTED, timeout)

    async def describe(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.LedgerDescribed:
        """Return the size and the health of the ledger."""
        return await self._ask(messages.DescribeLedger(), _LEDGER_DESCRIBED, timeout)
