"""The ledger: the actor that writes and reads the database of what happened.

A note is the record of one event, such as a call. The journal holds the notes that are not in the
database yet.

    notes ──> journal ──(a batch each half second)──> SQLite
    a batch that cannot be written goes back to the journal, and is tried again every two seconds

No call of a tool waits for the ledger or fails because of it. On a full disk, calls continue, and
the status says why nothing is recorded. If the ledger is switched off, there is no database, and
questions about the past are refused.
"""

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog
import trio

from capd.actor_clients.names import LEDGER
from capd.adapters.ledger.database import Database
from capd.adapters.ledger.journal import Journal
from capd.runtime.boundary import kept_running
from capd.runtime.bus import Bus
from capd.runtime.mailbox import serve
from capd_protos import ledger as messages
from capd_protos.codec import MsgpackCodec

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)

PAUSE = 0.5
TRY_AGAIN = 2.0
PRUNE_EVERY = 3600.0
PRUNE_AFTER = 50_000
"""Notes between two prunings, about 15 MB, so that the file does not grow far over its limit."""
OFF = "nothing is recorded: [ledger] enabled is false in config.toml"
LAST_WORDS = 2.0
"""Seconds for the last write when the actor ends."""

log = structlog.get_logger(actor="ledger")

T = TypeVar("T")


class Ledger:
    """The ledger's mailbox: records events, and answers questions about past ones."""

    def __init__(self, bus: Bus, journal: Journal, database: Database | None) -> None:
        """Create it. Without a `database` nothing is recorded."""
        self._bus = bus
        self._journal = journal
        self._database = database
        self._problem = ""
        self._counts: tuple[int, dict[str, int]] = (0, {})
        self._unpruned = 0
        self._is_due = trio.Event()
        # One thread at a time, because there is one SQLite connection.
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then write the events that wait."""
        database = self._database
        if database is None:
            await serve(self._bus, LEDGER, REQUESTS, _refused, log=log, task_status=task_status)
            return
        try:
            async with trio.open_nursery() as nursery:
                keep = partial(kept_running, log=log)
                nursery.start_soon(keep, "notes", self._write, database)
                nursery.start_soon(keep, "old notes", self._prune, database)
                await serve(
                    *(self._bus, LEDGER, REQUESTS, partial(self._replied, database)),
                    log=log,
                    task_status=task_status,
                )
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(LAST_WORDS):
                await self._write_batch(database)
                await self._in_thread(database.close)

    async def _replied(self, database: Database, request: messages.Request) -> messages.Reply:
        if isinstance(request, messages.DescribeLedger):
            return self._described(database)
        # Write waiting notes first, so that the answer contains them.
        await self._write_batch(database)
        try:
            match request:
                case messages.CountUses(since=since):
                    return messages.UsesCounted(await self._in_thread(lambda: database.uses(since)))
                case messages.SumCalls(since=since):
                    return messages.CallsSummed(await self._in_thread(lambda: database.sums(since)))
                case messages.ListDecisions(limit=limit, session=session):
                    return messages.DecisionsListed(
                        await self._in_thread(lambda: database.decisions(limit, session))
                    )
                case messages.ListActivations(limit=limit, session=session):
                    return messages.ActivationsListed(
                        await self._in_thread(lambda: database.activations(limit, session))
                    )
                case messages.ListScripts(limit=limit, session=session):
                    return messages.ScriptsListed(
                        await self._in_thread(lambda: database.scripts(limit, session))
                    )
        except (sqlite3.Error, OSError) as error:
            return messages.LedgerRefused(f"{database.path} cannot be read: {error}")

    def _described(self, database: Database) -> messages.LedgerDescribed:
        """Return the ledger's state without waiting for the disk.

        The size and the numbers of rows are those after the last write or pruning.
        """
        size, rows = self._counts
        return messages.LedgerDescribed(
            str(database.path),
            size,
            rows,
            len(self._journal),
            self._journal.dropped,
            self._problem,
        )

    async def _write(self, database: Database) -> None:
        while True:
            await self._journal.wait()
            await trio.sleep(TRY_AGAIN if self._problem else PAUSE)
            await self._write_batch(database)

    async def _write_batch(self, database: Database) -> None:
        notes = self._journal.take()
        if not notes:
            return

        def written() -> tuple[int, dict[str, int]]:
            database.add(notes)
            return database.counts()

        try:
            self._counts = await self._in_thread(written)
        except trio.Cancelled:
            # Cancelled before the batch was written; the last write of `run` takes the notes.
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
        self._unpruned += len(notes)
        if self._unpruned >= PRUNE_AFTER:
            self._is_due.set()

    async def _prune(self, database: Database) -> None:
        def pruned() -> tuple[int, dict[str, int]]:
            database.prune(time.time())
            return database.counts()

        while True:
            self._is_due, self._unpruned = trio.Event(), 0
            try:
                self._counts = await self._in_thread(pruned)
            except (sqlite3.Error, OSError) as error:
                log.warning("ledger_not_pruned", reason=str(error))
            with trio.move_on_after(PRUNE_EVERY):
                await self._is_due.wait()

    async def _in_thread(self, act: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(act, limiter=self._limiter)


async def _refused(request: messages.Request) -> messages.Reply:
    """Return the answer of a ledger that is switched off."""
    await trio.lowlevel.checkpoint()
    if isinstance(request, messages.DescribeLedger):
        return messages.LedgerDescribed("", 0, {}, 0, 0, "", is_enabled=False)
    return messages.LedgerRefused(OFF)
