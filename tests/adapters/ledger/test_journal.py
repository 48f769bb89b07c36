"""Notes never wait for the disk; a full journal drops the oldest ones."""

import trio
from trio.testing import wait_all_tasks_blocked

from capd.adapters.ledger.journal import Journal
from capd_protos.ledger import Note, SessionNote
from capd_protos.types import SessionKey


def note(number: int) -> Note:
    return SessionNote(float(number), SessionKey("s"), "zed", "/", "started")


def test_notes_come_out_in_their_order_once() -> None:
    journal = Journal()
    for number in range(3):
        journal.note(note(number))

    assert journal.take() == [note(0), note(1), note(2)]
    assert journal.take() == []


def test_notes_that_could_not_be_written_come_before_those_that_came_meanwhile() -> None:
    journal = Journal()
    journal.note(note(0))
    taken = journal.take()
    journal.note(note(1))

    journal.put_back(taken)

    assert journal.take() == [note(0), note(1)]


def test_a_full_journal_loses_the_oldest_and_counts_them() -> None:
    journal = Journal(most=3)
    for number in range(5):
        journal.note(note(number))
    taken = journal.take()
    journal.note(note(5))

    journal.put_back(taken)

    assert journal.take() == [note(3), note(4), note(5)]
    assert journal.dropped == 3


async def test_whoever_waits_hears_of_the_next_note() -> None:
    journal = Journal()
    heard: list[int] = []

    async def wait() -> None:
        await journal.wait()
        heard.append(len(journal))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert heard == []
        journal.note(note(0))

    assert heard == [1]
