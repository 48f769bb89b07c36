"""Observations about clients are saved soon, and saved again after a failure."""

from collections.abc import Sequence

import trio
from trio.testing import MockClock

from capd.actors.session.client_habits import SAVE_PAUSE, HabitSaver
from capd.core.sessions.habits import Habit
from capd.runtime.saver import BACKOFF

FIRST_WAIT = BACKOFF.delay(1, 0.0)


class FullDisk:
    """A disk that has no room until a moment."""

    problem = ""

    def __init__(self, room_at: float) -> None:
        self.kept: list[Habit] = []
        self._room_at = room_at

    async def load(self) -> list[Habit]:
        await trio.lowlevel.checkpoint()
        return []

    async def save(self, habits: Sequence[Habit]) -> bool:
        await trio.lowlevel.checkpoint()
        if trio.current_time() < self._room_at:
            return False
        self.kept = list(habits)
        return True


async def test_what_could_not_be_written_is_written_when_there_is_room(
    autojump_clock: MockClock,
) -> None:
    disk = FullDisk(trio.current_time() + FIRST_WAIT)
    saver = HabitSaver(disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        saver.habits.note("zed", "1", was_seen=True)

        await trio.sleep(SAVE_PAUSE + FIRST_WAIT + SAVE_PAUSE + 0.1)
        kept = disk.kept
        nursery.cancel_scope.cancel()

    assert kept == [Habit("zed", "1", relists=True)]
