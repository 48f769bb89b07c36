"""Each request gets its own answer, or an error that says what happened."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import zmq
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.runtime.bus import (
    AskFailedError,
    AskTimeoutError,
    Bus,
    PeerUnreachableError,
)
from capd.runtime.mailbox import Mailbox
from capd.runtime.zmq_socket import Context, TrioSocket
from capd_protos.codec import MsgpackCodec
from capd_protos.envelope import Envelope
from capd_protos.types import ActorName, Address, MessageId

ECHO = ActorName("echo")
ADDRESSES = {ECHO: Address("inproc://echo")}


class Say(msgspec.Struct, frozen=True, tag="test.say"):
    text: str


class Said(msgspec.Struct, frozen=True, tag="test.said"):
    text: str


REQUESTS: MsgpackCodec[Say] = MsgpackCodec(Say)
REPLIES: MsgpackCodec[Said] = MsgpackCodec(Said)
ENVELOPES: MsgpackCodec[Envelope] = MsgpackCodec(Envelope)


@asynccontextmanager
async def open_echo(context: Context) -> AsyncIterator[tuple[Bus, Mailbox[Say]]]:
    async with (
        Bus(ADDRESSES, ActorName("tester"), context=context) as bus,
        bus.mailbox(ECHO, REQUESTS) as mailbox,
    ):
        yield bus, mailbox


async def ask_into(replies: list[Said], bus: Bus, text: str) -> None:
    replies.append(await bus.ask(ECHO, Say(text), REPLIES, 10))


async def test_answers_in_another_order_reach_those_who_asked(context: Context) -> None:
    replies: dict[str, Said] = {}

    async def ask(bus: Bus, text: str) -> None:
        replies[text] = await bus.ask(ECHO, Say(text), REPLIES, 10)

    async with open_echo(context) as (bus, mailbox), trio.open_nursery() as nursery:
        for text in "abc":
            nursery.start_soon(ask, bus, text)

        incoming_requests = [await anext(mailbox) for _ in range(3)]
        for incoming in sorted(
            incoming_requests, key=lambda incoming: incoming.request.text, reverse=True
        ):
            await incoming.reply(Said(incoming.request.text))

    assert replies == {text: Said(text) for text in "abc"}


async def test_no_answer_in_time_is_an_error_and_the_late_answer_reaches_nobody(
    context: Context, open_socket: Callable[..., TrioSocket], autojump_clock: MockClock
) -> None:
    router = open_socket(zmq.ROUTER)
    router.bind(ADDRESSES[ECHO])
    async with Bus(ADDRESSES, ActorName("asker"), context=context) as bus:
        with pytest.raises(AskTimeoutError, match="echo did not answer in 2 s"):
            await bus.ask(ECHO, Say("first"), REPLIES, 2)
        await answer_raw(router, [envelope(1), REPLIES.encode(Said("first"))])
        async with trio.open_nursery() as nursery:
            second = [envelope(2), REPLIES.encode(Said("second"))]
            nursery.start_soon(answer_raw, router, second)

            reply = await bus.ask(ECHO, Say("second"), REPLIES, 2)

    assert (reply, bus.counts) == (Said("second"), {"late_reply": 1})


async def test_a_caller_that_is_cancelled_costs_nobody_else_an_answer(context: Context) -> None:
    replies: list[Said] = []
    async with open_echo(context) as (bus, mailbox), trio.open_nursery() as nursery:
        leaver = trio.CancelScope()

        async def leave() -> None:
            with leaver:
                await ask_into(replies, bus, "leaver")

        nursery.start_soon(leave)
        await wait_all_tasks_blocked()
        nursery.start_soon(ask_into, replies, bus, "stayer")
        await wait_all_tasks_blocked()
        leaver.cancel()
        await wait_all_tasks_blocked()

        for _ in range(2):
            incoming = await anext(mailbox)
            await incoming.reply(Said(incoming.request.text))

    assert (replies, bus.counts) == ([Said("stayer")], {"late_reply": 1})


async def test_an_actor_that_binds_after_the_question_answers_it(context: Context) -> None:
    replies: list[Said] = []
    async with (
        Bus(ADDRESSES, ActorName("asker"), context=context) as asker,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_into, replies, asker, "early")
        await wait_all_tasks_blocked()

        async with open_echo(context) as (_, mailbox):
            incoming = await anext(mailbox)
            await incoming.reply(Said(incoming.request.text))

    assert replies == [Said("early")]


async def test_a_question_that_finds_no_room_is_unreachable(
    context: Context, autojump_clock: MockClock
) -> None:
    errors: list[str] = []

    async def ask(bus: Bus) -> None:
        try:
            await bus.ask(ECHO, Say("x"), REPLIES, 1)
        except (AskTimeoutError, PeerUnreachableError) as error:
            errors.append(type(error).__name__)

    async with (
        Bus(ADDRESSES, ActorName("asker"), context=context) as bus,
        trio.open_nursery() as nursery,
    ):
        for _ in range(1002):
            nursery.start_soon(ask, bus)

    assert {name: errors.count(name) for name in errors} == {
        "AskTimeoutError": 1000,
        "PeerUnreachableError": 2,
    }


async def answer_raw(router: TrioSocket, *answers: list[bytes]) -> None:
    identity, _, _ = await router.recv()
    for frames in answers:
        await router.send([identity, *frames])


def envelope(number: int) -> bytes:
    return ENVELOPES.encode(Envelope(MessageId(number), ECHO, 0.0, ADDRESSES[ECHO]))


async def test_an_answer_that_is_no_reply_is_an_error_of_the_one_who_asked(
    context: Context, open_socket: Callable[..., TrioSocket]
) -> None:
    router = open_socket(zmq.ROUTER)
    router.bind(ADDRESSES[ECHO])
    async with (
        Bus(ADDRESSES, ActorName("asker"), context=context) as bus,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(answer_raw, router, [envelope(1), REQUESTS.encode(Say("?"))])

        with pytest.raises(AskFailedError) as caught:
            await bus.ask(ECHO, Say("x"), REPLIES, 10)

    assert caught.value.code == "unreadable_reply"


async def test_garbage_and_late_answers_harm_nobody(
    context: Context, open_socket: Callable[..., TrioSocket]
) -> None:
    router = open_socket(zmq.ROUTER)
    router.bind(ADDRESSES[ECHO])
    good = REPLIES.encode(Said("good"))
    async with (
        Bus(ADDRESSES, ActorName("asker"), context=context) as bus,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(
            answer_raw,
            router,
            [b"\xc1", good],
            [envelope(1)],
            [envelope(1), good, good],
            [envelope(7), good],
            [envelope(1), good],
        )

        reply = await bus.ask(ECHO, Say("x"), REPLIES, 10)

    assert (reply, bus.counts) == (Said("good"), {"garbage_reply": 3, "late_reply": 1})
