"""Sessions are saved soon after a change, and saved again after a failure."""

import trio
from trio.testing import MockClock

from capd.actors.session.store import LOOK_AT_CLOCK, SessionSaver
from capd.core.records.retention import DAY
from capd.core.sessions.session_record import RETENTION, SessionRecord, is_kept
from capd_protos.types import SessionKey

from .fakes import KeptSessions

ONE = SessionKey("one")


class FullDisk(KeptSessions):
    """A disk that has no room until a moment."""

    def __init__(self, room_at: float) -> None:
        super().__init__()
        self.tried_at: list[float] = []
        self._room_at = room_at

    async def save(self, record: SessionRecord) -> bool:
        self.tried_at.append(round(trio.current_time(), 3))
        if trio.current_time() < self._room_at:
            return False
        return await super().save(record)


async def test_what_could_not_be_written_is_written_when_there_is_room(
    autojump_clock: MockClock,
) -> None:
    began_at = trio.current_time()
    store = FullDisk(began_at + 4)
    saver = SessionSaver(store, lambda key: SessionRecord(key, "", 0.0, [], [], [], []))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        saver.changed(ONE)

        await trio.sleep(60)
        nursery.cancel_scope.cancel()

    assert [round(at - began_at, 3) for at in store.tried_at] == [0.1, 2.2, 6.3]


async def test_who_could_not_be_written_down_is_told_until_they_are(
    autojump_clock: MockClock,
) -> None:
    store = FullDisk(trio.current_time() + 1)
    saver = SessionSaver(store, lambda key: SessionRecord(key, "", 0.0, [], [], [], []))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        for number in range(7):
            saver.changed(SessionKey(f"s{number}"))

        await trio.sleep(0.5)
        full = saver.problem
        await trio.sleep(5)
        nursery.cancel_scope.cancel()

    said = (
        "what sessions have cannot be written down at present: s0, s1, s2, s3, s4, 2 more;"
        " look for room on the disk of the state folder, and in capd logs"
    )
    assert (full, saver.problem) == (said, "")


async def test_a_session_that_is_open_for_days_keeps_its_record(
    autojump_clock: MockClock,
) -> None:
    store, now = KeptSessions(), trio.current_time
    saver = SessionSaver(
        store,
        lambda key: SessionRecord(key, "", now(), [], [], [], [], is_routed=False),
        now,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        nursery.start_soon(saver.save_again, lambda: [ONE])

        await trio.sleep(3 * DAY)
        nursery.cancel_scope.cancel()

    assert is_kept(store.records[ONE], now() + RETENTION - DAY / 12)


async def test_a_session_is_saved_again_soon_after_the_machine_was_suspended(
    autojump_clock: MockClock,
) -> None:
    store, suspended = KeptSessions(), 0.0

    def now() -> float:
        return trio.current_time() + suspended

    saver = SessionSaver(
        store,
        lambda key: SessionRecord(key, "", now(), [], [], [], [], is_routed=False),
        now,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        nursery.start_soon(saver.save_again, lambda: [ONE])
        await trio.sleep(1)
        suspended = 3 * DAY

        await trio.sleep(2 * LOOK_AT_CLOCK)
        nursery.cancel_scope.cancel()

    assert is_kept(store.records[ONE], now())
