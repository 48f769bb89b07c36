"""Saves are debounced, retried after a failure, and never forgotten."""

import pytest
import trio
from trio.testing import MockClock

from capd.runtime.saver import Saver


class Disk:
    """Records what is saved and when; the test decides when it is full."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.is_full = is_full
        self.tried: list[tuple[str, float]] = []
        self.kept: list[str] = []

    async def save(self, key: str) -> bool:
        self.tried.append((key, round(trio.current_time() - self._began_at, 3)))
        await trio.lowlevel.checkpoint()
        if self.is_full:
            return False
        self.kept.append(key)
        return True

    def begin(self) -> None:
        self._began_at = trio.current_time()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def saver(disk: Disk) -> Saver[str]:
    return Saver(disk.save, pause=0.5)


async def test_changes_within_the_pause_are_one_save(
    autojump_clock: MockClock, disk: Disk, saver: Saver[str]
) -> None:
    disk.begin()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        for _ in range(3):
            saver.changed("a")
            await trio.sleep(0.1)
        saver.changed("b")

        await trio.sleep(10)
        nursery.cancel_scope.cancel()

    assert disk.tried == [("a", 0.5), ("b", 0.5)]


async def test_a_save_that_fails_is_tried_again_ever_more_seldom(
    autojump_clock: MockClock, disk: Disk, saver: Saver[str]
) -> None:
    disk.begin()
    disk.is_full = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        saver.changed("a")

        await trio.sleep(28)
        refused = saver.refused
        disk.is_full = False
        await trio.sleep(12)
        nursery.cancel_scope.cancel()

    assert [at for _, at in disk.tried] == [0.5, 3.0, 7.5, 16.0, 26.5, 37.0]
    assert (refused, saver.refused, disk.kept) == (["a"], [], ["a"])


async def test_what_is_left_is_saved_when_it_ends(disk: Disk, saver: Saver[str]) -> None:
    disk.begin()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        saver.changed("a")

        nursery.cancel_scope.cancel()

    assert disk.kept == ["a"]


async def test_a_save_that_is_cancelled_is_done_again(disk: Disk, saver: Saver[str]) -> None:
    disk.begin()
    saver.changed("a")
    with trio.CancelScope() as scope:
        scope.cancel()
        await saver.save_all()

    await saver.flush()

    assert disk.kept == ["a"]


async def test_one_that_fails_at_once_is_tried_again_by_itself(
    autojump_clock: MockClock, disk: Disk, saver: Saver[str]
) -> None:
    disk.begin()
    disk.is_full = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        await trio.testing.wait_all_tasks_blocked()
        await saver.save("a")
        disk.is_full = False

        await trio.sleep(1)
        kept = list(disk.kept)
        nursery.cancel_scope.cancel()

    assert kept == ["a"]


async def test_a_save_at_the_end_takes_no_longer_than_its_bound(autojump_clock: MockClock) -> None:
    async def hang(_: str) -> bool:
        await trio.sleep_forever()
        return True

    saver = Saver(hang, pause=0.0)
    saver.changed("a")

    with trio.fail_after(3):
        await saver.flush()

    assert saver.refused == ["a"]
