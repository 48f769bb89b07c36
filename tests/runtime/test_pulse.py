"""The watchdog is notified only while every actor answers."""

import msgspec
import pytest
import trio
from trio.testing import MockClock

from capd.runtime.bus import Bus
from capd.runtime.pulse import beat
from capd.runtime.zmq_socket import Context
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, Address

READS, SLEEPS = ActorName("reads"), ActorName("sleeps")
ADDRESSES = {each: Address(f"inproc://{each}") for each in (READS, SLEEPS)}


class Nothing(msgspec.Struct, frozen=True, tag="test.nothing"):
    pass


REQUESTS: MsgpackCodec[Nothing] = MsgpackCodec(Nothing)


@pytest.mark.parametrize(
    ("watched", "beats"), [((READS,), 10), ((READS, SLEEPS), 0)], ids=["all read", "one does not"]
)
async def test_the_watchdog_hears_of_actors_that_all_read(
    context: Context, autojump_clock: MockClock, watched: tuple[ActorName, ...], beats: int
) -> None:
    heard: list[float] = []

    async def read(mailbox: object) -> None:
        async for _ in mailbox:  # type: ignore[attr-defined]  # any mailbox
            raise AssertionError("a ping is not shown")

    async with (
        Bus(ADDRESSES, ActorName("tester"), context=context) as bus,
        bus.mailbox(READS, REQUESTS) as reads,
        bus.mailbox(SLEEPS, REQUESTS),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(read, reads)
        with trio.move_on_after(29.0):
            await beat(bus, watched, 9.0, lambda: heard.append(trio.current_time()))
        nursery.cancel_scope.cancel()

    assert len(heard) == beats
