"""The ledger actor on real files, in real time, and on a disk that fails."""

import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from structlog.testing import capture_logs

from capd.actor_clients.names import LEDGER
from capd.actors import ledger
from capd.adapters.ledger.database import Database
from capd.adapters.ledger.journal import Journal
from capd.core.records.retention import DAY, Retention
from capd_protos import ledger as messages
from capd_protos.codec import MsgpackCodec
from capd_protos.types import SessionKey

from .fakes import RecordingBus

REPLIES: MsgpackCodec[messages.Reply] = MsgpackCodec(messages.Reply)
ONE = SessionKey("one")


class FailingDatabase(Database):
    """A real file on a disk that fails while the test says so."""

    is_full = False

    def add(self, notes: Sequence[messages.Note]) -> None:
        if self.is_full:
            raise sqlite3.OperationalError("database or disk is full")
        super().add(notes)


class Kept:
    """A running ledger, with its bus, its journal and its database."""

    def __init__(self, bus: RecordingBus, journal: Journal, database: FailingDatabase) -> None:
        self.bus = bus
        self.journal = journal
        self.database = database

    async def ask(self, request: messages.Request) -> messages.Reply:
        return await self.bus.ask(LEDGER, request, REPLIES, 30.0)

    async def described(self) -> messages.LedgerDescribed:
        reply = await self.ask(messages.DescribeLedger())
        assert isinstance(reply, messages.LedgerDescribed)
        return reply


@asynccontextmanager
async def kept(folder: Path, retention: Retention | None = None) -> AsyncIterator[Kept]:
    database = FailingDatabase(folder / "ledger.sqlite", retention or Retention())
    journal = Journal()
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        await nursery.start(ledger.Ledger(bus, journal, database).run)
        yield Kept(bus, journal, database)
        nursery.cancel_scope.cancel()


def activation(name: str, at: float | None = None) -> messages.ActivationNote:
    when = round(time.time(), 3) if at is None else at
    return messages.ActivationNote(when, ONE, name, "on", "turn")


async def test_what_was_noted_before_a_question_is_in_its_answer(tmp_path: Path) -> None:
    note = activation("a/b")
    async with kept(tmp_path) as made:
        made.journal.note(note)

        reply = await made.ask(messages.ListActivations(10))

        assert reply == messages.ActivationsListed([note])


async def test_what_was_noted_last_is_there_after_a_restart(tmp_path: Path) -> None:
    note = activation("a/b")
    async with kept(tmp_path) as made:
        made.journal.note(note)

    async with kept(tmp_path) as again:
        reply = await again.ask(messages.ListActivations(10, ONE))

    assert reply == messages.ActivationsListed([note])


async def test_a_full_disk_is_said_and_what_waited_is_written_when_there_is_room(
    tmp_path: Path,
) -> None:
    first, second = activation("a/b"), activation("c/d")
    async with kept(tmp_path) as made:
        made.database.is_full = True
        made.journal.note(first)
        with capture_logs() as logs:
            await made.ask(messages.ListActivations(10))
            made.journal.note(second)
            await made.ask(messages.ListActivations(10))
        full = await made.described()

        made.database.is_full = False
        reply = await made.ask(messages.ListActivations(10))
        healed = await made.described()

    assert full.problem == "nothing is recorded at present: database or disk is full"
    assert (full.waiting, full.dropped) == (2, 0)
    assert [log["event"] for log in logs] == ["ledger_not_written"]
    assert isinstance(reply, messages.ActivationsListed)
    assert {note.name for note in reply.activations} == {"a/b", "c/d"}
    assert (healed.problem, healed.waiting, healed.rows["activations"]) == ("", 0, 2)


async def test_old_notes_go_as_soon_as_the_ledger_begins(tmp_path: Path) -> None:
    old, young = activation("a/b", time.time() - 3 * DAY), activation("c/d")
    async with kept(tmp_path) as made:
        made.journal.note(old)
        made.journal.note(young)
        await made.ask(messages.ListActivations(10))

    async with kept(tmp_path, Retention(days=2)) as again:
        while (await again.described()).rows.get("activations") != 1:
            await trio.sleep(0.01)
        reply = await again.ask(messages.ListActivations(10))

    assert reply == messages.ActivationsListed([young])


async def test_a_ledger_that_is_switched_off_has_no_file_and_says_so(tmp_path: Path) -> None:
    journal = Journal(is_kept=False)
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        await nursery.start(ledger.Ledger(bus, journal, None).run)
        journal.note(activation("a/b"))

        listed = await bus.ask(LEDGER, messages.ListDecisions(1), REPLIES, 30.0)
        described = await bus.ask(LEDGER, messages.DescribeLedger(), REPLIES, 30.0)
        nursery.cancel_scope.cancel()

    assert listed == messages.LedgerRefused(ledger.OFF)
    assert described == messages.LedgerDescribed("", 0, {}, 0, 0, "", is_enabled=False)
    assert (len(journal), journal.tally.activations) == (0, {"on": 1})
    assert list(tmp_path.iterdir()) == []
