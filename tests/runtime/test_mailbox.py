"""Every request that reaches an actor gets exactly one answer."""

from collections.abc import Callable

import msgspec
import pytest
import trio
import zmq
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.runtime.bus import AskFailedError, Bus
from capd.runtime.mailbox import AlreadyAnsweredError, IncomingRequest, Mailbox
from capd.runtime.zmq_socket import Context, TrioSocket
from capd_protos.codec import MsgpackCodec
from capd_protos.envelope import Envelope, Failure
from capd_protos.types import ActorName, Address, MessageId

ADDER = ActorName("adder")
ADDRESSES = {ADDER: Address("inproc://adder")}


class Add(msgspec.Struct, frozen=True, tag="test.add"):
    a: int
    b: int


class Sum(msgspec.Struct, frozen=True, tag="test.sum"):
    value: int


REQUESTS: MsgpackCodec[Add] = MsgpackCodec(Add)
REPLIES: MsgpackCodec[Sum] = MsgpackCodec(Sum)
ANSWERS: MsgpackCodec[Sum | Failure] = MsgpackCodec(Sum | Failure)
ENVELOPES: MsgpackCodec[Envelope] = MsgpackCodec(Envelope)

Answers = list[Sum | tuple[str, str]]


def open_bus(context: Context) -> Bus:
    return Bus(ADDRESSES, ActorName("tester"), context=context)


async def ask_into(
    answers: Answers, bus: Bus, request: msgspec.Struct, timeout: float = 10
) -> None:
    try:
        reply = await bus.ask(ADDER, request, REPLIES, timeout)
    except AskFailedError as error:
        answers.append((error.code, error.message))
    else:
        answers.append(reply)


async def answer_one(mailbox: Mailbox[Add]) -> IncomingRequest[Add]:
    incoming = await anext(mailbox)
    await incoming.reply(Sum(incoming.request.a + incoming.request.b))
    return incoming


async def test_a_request_gets_the_reply_of_the_actor(context: Context) -> None:
    answers: Answers = []
    async with (
        open_bus(context) as bus,
        bus.mailbox(ADDER, REQUESTS) as mailbox,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_into, answers, bus, Add(1, 2))

        incoming = await answer_one(mailbox)

    assert (answers, incoming.request, incoming.sender) == ([Sum(3)], Add(1, 2), "tester")


async def test_an_actor_that_forgets_to_answer_is_answered_for(context: Context) -> None:
    answers: Answers = []
    async with (
        open_bus(context) as bus,
        bus.mailbox(ADDER, REQUESTS) as mailbox,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_into, answers, bus, Add(1, 2))

        async with await anext(mailbox):
            pass

    assert answers == [("no_answer", "adder gave no answer")]


async def test_an_actor_that_crashes_over_a_letter_is_answered_for_and_still_crashes(
    context: Context,
) -> None:
    answers: Answers = []
    async with (
        open_bus(context) as bus,
        bus.mailbox(ADDER, REQUESTS) as mailbox,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_into, answers, bus, Add(1, 2))

        with pytest.raises(ZeroDivisionError):
            async with await anext(mailbox):
                raise ZeroDivisionError("a secret of the request")

    assert answers == [("crashed", "adder: ZeroDivisionError")]


async def test_an_actor_that_is_cancelled_over_a_letter_answers_that_it_stops(
    context: Context,
) -> None:
    answers: Answers = []
    async with (
        open_bus(context) as bus,
        bus.mailbox(ADDER, REQUESTS) as mailbox,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_into, answers, bus, Add(1, 2))
        incoming = await anext(mailbox)

        with trio.CancelScope() as scope:
            async with incoming:
                scope.cancel()
                await trio.sleep_forever()

    assert answers == [("stopping", "adder is stopping; ask again in a moment")]


async def test_an_actor_that_is_cancelled_as_it_replies_has_replied(context: Context) -> None:
    answers: Answers = []
    async with (
        open_bus(context) as bus,
        bus.mailbox(ADDER, REQUESTS) as mailbox,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_into, answers, bus, Add(1, 2))
        incoming = await anext(mailbox)

        with trio.CancelScope() as scope:
            async with incoming:
                scope.cancel()
                await incoming.reply(Sum(3))

    assert answers == [Sum(3)]


async def test_a_second_reply_is_an_error_and_is_not_sent(context: Context) -> None:
    answers: Answers = []
    async with open_bus(context) as bus, bus.mailbox(ADDER, REQUESTS) as mailbox:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_into, answers, bus, Add(1, 2))
            incoming = await answer_one(mailbox)

            with pytest.raises(AlreadyAnsweredError):
                await incoming.reply(Sum(4))

        await wait_all_tasks_blocked()
        assert (answers, bus.counts) == ([Sum(3)], {})


async def test_a_body_that_the_actor_does_not_know_is_refused_and_not_shown(
    context: Context,
) -> None:
    answers: Answers = []
    async with (
        open_bus(context) as bus,
        bus.mailbox(ADDER, REQUESTS) as mailbox,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_into, answers, bus, Sum(1))
        await wait_all_tasks_blocked()
        nursery.start_soon(ask_into, answers, bus, Add(1, 2))

        incoming = await answer_one(mailbox)

    assert (incoming.request, answers) == (
        Add(1, 2),
        [("malformed", "Invalid value 'test.sum' - at `$.type`"), Sum(3)],
    )


async def test_garbage_in_place_of_an_envelope_is_counted_and_harms_nobody(
    context: Context, open_socket: Callable[..., TrioSocket]
) -> None:
    answers: Answers = []
    stranger = open_socket(zmq.DEALER)
    stranger.connect(ADDRESSES[ADDER])
    async with open_bus(context) as bus, bus.mailbox(ADDER, REQUESTS) as mailbox:
        for frames in (
            [b"\xc1"],
            [b"\xc1", b"x"],
            [b"", b""],
            [b"a", b"b", b"c"],
            [b"\x91" * 9999, b""],
        ):
            stranger.send_nowait(frames)
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_into, answers, bus, Add(1, 2))

            await answer_one(mailbox)

        assert (answers, bus.counts) == ([Sum(3)], {"garbage_request": 5})


async def send_request(dealer: TrioSocket, number: int, deadline: float) -> None:
    envelope = Envelope(MessageId(number), ActorName("raw"), deadline, Address(""))
    await dealer.send([ENVELOPES.encode(envelope), REQUESTS.encode(Add(number, 0))])


@pytest.mark.parametrize("deadline", [1.0, 0.0, -1.0, float("nan"), float("-inf")])
async def test_a_letter_whose_sender_has_given_up_is_skipped(
    context: Context,
    open_socket: Callable[..., TrioSocket],
    autojump_clock: MockClock,
    deadline: float,
) -> None:
    dealer = open_socket(zmq.DEALER)
    dealer.connect(ADDRESSES[ADDER])
    async with open_bus(context) as bus, bus.mailbox(ADDER, REQUESTS) as mailbox:
        await send_request(dealer, 1, deadline)
        await send_request(dealer, 2, float("inf"))
        await trio.sleep(1)

        incoming = await answer_one(mailbox)

        assert (incoming.request, bus.counts) == (Add(2, 0), {"expired_request": 1})


async def test_the_time_a_letter_lies_unread_is_taken_from_its_deadline(
    context: Context, autojump_clock: MockClock
) -> None:
    answers: Answers = []
    async with (
        open_bus(context) as bus,
        bus.mailbox(ADDER, REQUESTS) as mailbox,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_into, answers, bus, Add(1, 2), 5)
        await trio.sleep(2)

        incoming = await anext(mailbox)

        assert incoming.remaining == pytest.approx(3)
        await incoming.reply(Sum(3))


async def test_closing_a_mailbox_answers_what_was_taken_and_what_was_not(context: Context) -> None:
    answers: Answers = []
    async with open_bus(context) as bus, trio.open_nursery() as nursery:
        async with bus.mailbox(ADDER, REQUESTS) as mailbox:
            for number in range(3):
                nursery.start_soon(ask_into, answers, bus, Add(number, 0))
            incoming = await anext(mailbox)
            await wait_all_tasks_blocked()

        with pytest.raises(AlreadyAnsweredError):
            await incoming.reply(Sum(0))

    assert answers == [("stopping", "adder is stopping; ask again in a moment")] * 3


async def test_a_request_between_two_lives_of_an_actor_waits_for_the_second(
    context: Context,
) -> None:
    answers: Answers = []
    async with open_bus(context) as bus, trio.open_nursery() as nursery:
        async with bus.mailbox(ADDER, REQUESTS):
            pass
        nursery.start_soon(ask_into, answers, bus, Add(1, 2))
        await wait_all_tasks_blocked()

        async with bus.mailbox(ADDER, REQUESTS) as mailbox:
            await answer_one(mailbox)

    assert answers == [Sum(3)]


async def test_an_actor_has_one_mailbox_at_a_time(context: Context) -> None:
    async with open_bus(context) as bus, bus.mailbox(ADDER, REQUESTS):
        with pytest.raises(RuntimeError, match="adder has a mailbox"):
            async with bus.mailbox(ADDER, REQUESTS):
                pass


async def test_a_sender_that_reads_slowly_gets_all_its_answers(
    context: Context, open_socket: Callable[..., TrioSocket], autojump_clock: MockClock
) -> None:
    many = 1100
    slow = open_socket(zmq.DEALER, high_water=1)
    slow.connect(ADDRESSES[ADDER])
    got: list[Sum | Failure] = []

    async def read_after_a_while() -> None:
        await trio.sleep(5)
        while len(got) < many:
            got.append(ANSWERS.decode((await slow.recv())[1]))

    async with open_bus(context) as bus, bus.mailbox(ADDER, REQUESTS) as mailbox:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_after_a_while)

            for number in range(many):
                await send_request(slow, number, 10)
                await answer_one(mailbox)

        assert (got, bus.counts) == ([Sum(number) for number in range(many)], {})


async def test_a_sender_that_never_reads_holds_the_actor_no_longer_than_it_waits_itself(
    context: Context, open_socket: Callable[..., TrioSocket], autojump_clock: MockClock
) -> None:
    deaf = open_socket(zmq.DEALER, high_water=1)
    deaf.connect(ADDRESSES[ADDER])
    async with open_bus(context) as bus, bus.mailbox(ADDER, REQUESTS) as mailbox:
        started_at = trio.current_time()

        for number in range(1003):
            await send_request(deaf, number, 7)
            await answer_one(mailbox)

        assert bus.counts == {"late_answer": 2}
        assert trio.current_time() - started_at == pytest.approx(14)


async def test_an_answer_to_a_sender_that_is_gone_is_counted(
    context: Context, open_socket: Callable[..., TrioSocket]
) -> None:
    dealer = open_socket(zmq.DEALER)
    dealer.connect(ADDRESSES[ADDER])
    async with open_bus(context) as bus, bus.mailbox(ADDER, REQUESTS) as mailbox:
        await send_request(dealer, 1, 10)
        incoming = await anext(mailbox)
        async with incoming:
            dealer.close()
            # The reaper thread of libzmq tells the mailbox about it in its own time.
            await wait_until_unknown(bus, incoming)

        assert bus.counts == {"undeliverable_answer": 1}


async def wait_until_unknown(bus: Bus, incoming: IncomingRequest[Add]) -> None:
    endpoint = bus._endpoints[ADDER]
    while not bus.counts:
        endpoint.fail(incoming._arrival, "crashed", "")
        await trio.sleep(0.001)
    bus.counts.clear()
