"""The ledger: the one writer of what happened, and who asks about it asks here.

    notes ──> journal ──(a batch each half second)──> SQLite
    a batch that cannot be written goes back, and is tried again every two seconds

Nobody waits for it, and nobody is refused because of it: with a full disk calls go on, and the
status says since when nothing is recorded.
"""

import sqlite3
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
import trio

from capd.adapters.ledger.database import Database
from capd.adapters.ledger.journal import Journal
from capd.runtime.bus import Bus
from capd.runtime.serving import serve
from capd_protos import ledger as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName

NAME = ActorName("ledger")
REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)

PAUSE = 0.5
TRY_AGAIN = 2.0
PRUNE_EVERY = 3600.0
LAST_WORDS = 2.0

log = structlog.get_logger(actor="ledger")

T = TypeVar("T")


class Ledger:
    """Notes in, rows out."""

    def __init__(self, bus: Bus, journal: Journal, database: Database) -> None:
        self._bus = bus
        self._journal = journal
        self._database = database
        self._problem = ""
        # SQLite's connection is one; whoever comes second waits outside.
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; what waits then is written."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                nursery.start_soon(self._prune)
                await serve(
                    self._bus, NAME, REQUESTS, self._replied, log=log, task_status=task_status
                )
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(LAST_WORDS):
                await self._write_batch()
                await self._in_thread(self._database.close)

    async def _replied(self, request: messages.Request) -> messages.Reply:
        # What has been noted before the question counts in its answer.
        await self._write_batch()
        try:
            match request:
                case messages.CountUses(since=since):
                    return messages.UsesCounted(
                        await self._in_thread(lambda: self._database.uses(since))
                    )
                case messages.SumCalls(since=since):
                    return messages.CallsSummed(
                        await self._in_thread(lambda: self._database.sums(since))
                    )
                case messages.ListDecisions(limit=limit, session=session):
                    return messages.DecisionsListed(
                        await self._in_thread(lambda: self._database.decisions(limit, session))
                    )
                case messages.ListActivations(limit=limit, session=session):
                    return messages.ActivationsListed(
                        await self._in_thread(lambda: self._database.activations(limit, session))
                    )
                case messages.DescribeLedger():
                    return await self._described()
        except (sqlite3.Error, OSError) as error:
            return messages.LedgerRefused(f"{self._database.path} cannot be read: {error}")

    async def _described(self) -> messages.LedgerDescribed:
        size, rows = 0, dict[str, int]()
        problem = self._problem
        try:
            size, rows = await self._in_thread(self._database.counts)
        except (sqlite3.Error, OSError) as error:
            problem = problem or str(error)
        return messages.LedgerDescribed(
            str(self._database.path),
            size,
            rows,
            len(self._journal),
            self._journal.dropped,
            problem,
        )

    async def _write(self) -> None:
        while True:
            await self._journal.wait()
            await trio.sleep(TRY_AGAIN if self._problem else PAUSE)
            await self._write_batch()

    async def _write_batch(self) -> None:
        notes = self._journal.take()
        if not notes:
            return
        try:
            await self._in_thread(lambda: self._database.add(notes))
        except trio.Cancelled:
            # It came while another was being written; the last words take them up.
            self._journal.put_back(notes)
            raise
        except (sqlite3.Error, OSError) as error:
            self._journal.put_back(notes)
            if not self._problem:
                log.error("ledger_not_written", reason=str(error), waiting=len(self._journal))
            self._problem = f"nothing is recorded at present: {error}"
            return
        if self._problem:
            log.info("ledger_written_again", notes=len(notes))
        self._problem = ""

    async def _prune(self) -> None:
        while True:
            try:
                await self._in_thread(lambda: self._database.prune(time.time()))
            except (sqlite3.Error, OSError) as error:
                log.warning("ledger_not_pruned", reason=str(error))
            await trio.sleep(PRUNE_EVERY)

    async def _in_thread(self, act: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(act, limiter=self._limiter)
