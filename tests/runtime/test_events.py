"""Events reach those who subscribed in time, and block nobody."""

from collections.abc import Callable

import msgspec
import pytest
import trio
import zmq
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.runtime.bus import Bus, Subscription
from capd.runtime.zmq_socket import Context, TrioSocket
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, Address

EVENTS = Address("inproc://events")


class Exited(msgspec.Struct, frozen=True, tag="server.exited"):
    number: int


class Loaded(msgspec.Struct, frozen=True, tag="tap.loaded"):
    number: int


class Plain(msgspec.Struct, frozen=True):
    number: int


EXITED: MsgpackCodec[Exited] = MsgpackCodec(Exited)
ANY: MsgpackCodec[Exited | Loaded] = MsgpackCodec(Exited | Loaded)


def open_bus(context: Context, *, bind_events: bool = True) -> Bus:
    return Bus({}, ActorName("tester"), events=EVENTS, bind_events=bind_events, context=context)


async def receive(subscription: Subscription[Exited | Loaded]) -> list[Exited | Loaded]:
    """Return the events that have arrived and that are on their way."""
    got: list[Exited | Loaded] = []

    async def collect() -> None:
        async for event in subscription:
            got.append(event)  # noqa: PERF401 - the loop is cancelled, never finished

    async with trio.open_nursery() as nursery:
        nursery.start_soon(collect)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return got


async def test_an_event_reaches_every_subscriber(context: Context) -> None:
    async with (
        open_bus(context) as bus,
        bus.subscribe(ANY, "server.", "tap.") as one,
        bus.subscribe(ANY) as other,
    ):
        bus.publish(Exited(1))
        bus.publish(Loaded(2))

        got = (await receive(one), await receive(other))

    assert got == ([Exited(1), Loaded(2)], [Exited(1), Loaded(2)])


async def test_a_subscriber_misses_nothing_that_is_published_after_it_came(
    context: Context,
) -> None:
    got: list[list[Exited | Loaded]] = []
    async with open_bus(context) as bus:
        # libzmq would look for subscribers only every millisecond: many come within one.
        for number in range(50):
            bus.publish(Exited(-1))
            async with bus.subscribe(ANY) as subscription:
                bus.publish(Exited(number))
                got.append(await receive(subscription))

    assert got == [[Exited(number)] for number in range(50)]


async def test_an_event_of_another_topic_is_not_received(context: Context) -> None:
    async with open_bus(context) as bus, bus.subscribe(ANY, "server.") as subscription:
        bus.publish(Loaded(1))
        bus.publish(Exited(2))

        got = await receive(subscription)

    assert got == [Exited(2)]


async def test_a_subscriber_may_come_before_the_publisher(context: Context) -> None:
    async with (
        open_bus(context, bind_events=False) as listener,
        listener.subscribe(ANY) as subscription,
        open_bus(context) as bus,
    ):
        bus.publish(Exited(1))

        got = await receive(subscription)

    assert got == [Exited(1)]


async def test_a_slow_subscriber_loses_events_and_the_publisher_goes_on(context: Context) -> None:
    async with open_bus(context) as bus, bus.subscribe(ANY) as subscription:
        for number in range(5000):
            bus.publish(Exited(number))

        got = await receive(subscription)

    assert got == [Exited(number) for number in range(2000)]


async def test_an_event_that_cannot_be_read_is_skipped_and_counted(
    context: Context, open_socket: Callable[..., TrioSocket]
) -> None:
    publisher = open_socket(zmq.PUB)
    publisher.bind(EVENTS)
    async with (
        open_bus(context, bind_events=False) as bus,
        bus.subscribe(ANY) as subscription,
    ):
        publisher.refresh()
        publisher.send_nowait([b"server.exited", b"\xc1"])
        publisher.send_nowait([b"\xff"])
        publisher.send_nowait([b"server.exited", EXITED.encode(Exited(1))])

        got = await receive(subscription)

        assert (got, bus.counts) == ([Exited(1)], {"undecodable_event": 2})


async def test_a_bus_that_does_not_bind_the_events_cannot_publish(context: Context) -> None:
    async with open_bus(context, bind_events=False) as bus:
        with pytest.raises(RuntimeError, match="tester does not publish"):
            bus.publish(Exited(1))


async def test_a_message_without_a_tag_is_no_event(context: Context) -> None:
    async with open_bus(context) as bus:
        with pytest.raises(TypeError, match="Plain has no tag"):
            bus.publish(Plain(1))


async def test_waiting_for_an_event_ends_with_its_deadline(
    context: Context, autojump_clock: MockClock
) -> None:
    async with open_bus(context) as bus, bus.subscribe(ANY) as subscription:
        with pytest.raises(trio.TooSlowError), trio.fail_after(60):
            await anext(subscription)
