"""The bodies that one connection reads at the same time have a bound together."""

import trio
from trio.testing import wait_all_tasks_blocked

from capd.adapters.servers.http.large_bodies import (
    FREE_BYTES,
    SMALL_BYTES,
    LargeBodies,
    LargeBody,
)

MIB = 1 << 20


async def test_many_bodies_that_are_each_small_are_bounded_together() -> None:
    bodies = LargeBodies()
    memory = dict.fromkeys(range(64), 0)
    may_leave = trio.Event()

    async def read(number: int) -> None:
        body = LargeBody(bodies)
        for mebibytes in range(1, 17):
            memory[number] = mebibytes * MIB
            await body.note(memory[number])
        await may_leave.wait()
        body.leave()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for number in memory:
                nursery.start_soon(read, number)
            await wait_all_tasks_blocked()

            # One has the place. Each of the others has read a step more than it may have.
            in_memory = sum(memory.values())
            may_leave.set()

    assert in_memory <= 16 * MIB + SMALL_BYTES + len(memory) * 2 * MIB
    assert set(memory.values()) == {16 * MIB}
    assert (bodies.size_bytes, bodies.place.value) == (0, 1)


async def test_a_usual_body_never_waits() -> None:
    bodies = LargeBodies()
    large, small = LargeBody(bodies), LargeBody(bodies)
    await large.note(SMALL_BYTES + 1)
    beside = LargeBody(bodies)

    with trio.fail_after(5):
        await small.note(FREE_BYTES)
        await beside.note(SMALL_BYTES)

    with trio.move_on_after(0.01) as scope:
        await small.note(2 * FREE_BYTES)
    assert scope.cancelled_caught
    for each in (large, small, beside):
        each.leave()
    assert (bodies.size_bytes, bodies.place.value) == (0, 1)


async def test_a_body_that_is_given_up_while_it_waits_leaves_nothing() -> None:
    bodies = LargeBodies()
    large, waiting = LargeBody(bodies), LargeBody(bodies)
    await large.note(SMALL_BYTES + 1)
    with trio.move_on_after(0.01):
        try:
            await waiting.note(SMALL_BYTES + 1)
        finally:
            waiting.leave()

    assert bodies.size_bytes == 0
    large.leave()
    assert bodies.place.value == 1
