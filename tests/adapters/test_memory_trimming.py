"""The daemon returns freed memory to the system once it is idle."""

import trio
from trio.testing import MockClock

from capd.adapters.memory_trimming import LOOK, STILL, WORKED, return_after_work


async def returns(busy: list[float], autojump_clock: MockClock) -> list[int]:
    """Return at which looks memory was returned, with the CPU seconds before each look."""
    returned: list[int] = []
    looks = 0
    used = 0.0

    def cpu_seconds() -> float:
        nonlocal looks, used
        # Asked at the start, at each look, and again after each return.
        if trio.current_time() >= (looks + 1) * LOOK and looks < len(busy):
            used += busy[looks]
            looks += 1
        return used

    async with trio.open_nursery() as nursery:
        nursery.start_soon(return_after_work, lambda: returned.append(looks), cpu_seconds)
        while looks < len(busy):
            await trio.sleep(LOOK)
        await trio.sleep(LOOK / 2)
        nursery.cancel_scope.cancel()
    return returned


async def test_work_that_is_over_is_followed_by_one_return(autojump_clock: MockClock) -> None:
    got = await returns([WORKED, 0.0, 0.0, 0.0], autojump_clock)

    assert got == [2]


async def test_nothing_is_returned_while_there_is_work(autojump_clock: MockClock) -> None:
    got = await returns([WORKED, STILL * 2, STILL * 2, STILL / 2], autojump_clock)

    assert got == [4]


async def test_a_quiet_daemon_returns_nothing(autojump_clock: MockClock) -> None:
    got = await returns([STILL / 2] * 5, autojump_clock)

    assert got == []
