"""Frames between the daemon and its own process: complete, bounded, lost with the process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MemoryReceiveStream, memory_stream_pair

from capd.runtime.frame_channel import (
    MOST_FRAME_BYTES,
    ChannelOverError,
    Frame,
    FrameChannel,
    FrameClient,
    FrameEndpoint,
    FrameTooLargeError,
)
from capd.runtime.mailbox import IncomingRequest
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName, MessageId
from support.examples import examples

ECHO = ActorName("echo")
LONG = 1000.0


class Say(msgspec.Struct, frozen=True, tag="test.say"):
    text: str


REQUESTS: MsgpackCodec[Say] = MsgpackCodec(Say)


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[FrameClient, FrameEndpoint, trio.Nursery]]:
    near, far = memory_stream_pair()
    client, endpoint = FrameClient(near), FrameEndpoint(ECHO, far)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        nursery.start_soon(endpoint.write)
        yield client, endpoint, nursery
        nursery.cancel_scope.cancel()


async def echo(endpoint: FrameEndpoint) -> None:
    async with endpoint.mailbox(ECHO, REQUESTS) as mailbox:
        async for incoming in mailbox:
            async with incoming:
                await incoming.reply(incoming.request)


async def test_each_asker_gets_the_answer_to_the_own_question_in_any_order() -> None:
    said: dict[str, Say] = {}

    async def ask(client: FrameClient, text: str) -> None:
        said[text] = REQUESTS.decode(await client.ask(Say(text), LONG))

    async with linked() as (client, endpoint, nursery):
        async with trio.open_nursery() as askers:
            for number in range(5):
                askers.start_soon(ask, client, str(number))
            async with endpoint.mailbox(ECHO, REQUESTS) as mailbox:
                incoming_requests: list[IncomingRequest[Say]] = [
                    await anext(mailbox) for _ in range(5)
                ]
                for incoming in reversed(incoming_requests):
                    await incoming.reply(incoming.request)
                while len(said) < 5:
                    await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    assert said == {text: Say(text) for text in "01234"}


async def test_what_was_asked_of_a_process_that_ended_is_lost() -> None:
    near, far = memory_stream_pair()
    client = FrameClient(near)
    errors: list[str] = []

    async def ask() -> None:
        try:
            await client.ask(Say("x"), LONG)
        except ChannelOverError as error:
            errors.append(str(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        nursery.start_soon(ask)
        await far.receive_some(1)
        await far.aclose()
    await ask()

    assert errors == ["its process ended before it answered", "its process has ended"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        (MOST_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x01\xc0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00",
        b"\x00\x00\x00\x09" + b"\x91" * 9,
    ],
)
async def test_a_process_that_writes_no_frames_is_given_up(garbage: bytes) -> None:
    near, far = memory_stream_pair()
    client = FrameClient(near)
    await far.send_all(garbage)
    await far.send_eof()

    await client.run()

    with pytest.raises(ChannelOverError, match="its process has ended"):
        await client.ask(Say("x"), LONG)


async def test_a_message_over_the_limit_is_refused_and_the_next_one_goes_through() -> None:
    async with linked() as (client, endpoint, nursery):
        nursery.start_soon(echo, endpoint)

        with pytest.raises(FrameTooLargeError):
            await client.ask(Say("x" * MOST_FRAME_BYTES), LONG)
        after = await client.ask(Say("after"), LONG)

    assert REQUESTS.decode(after) == Say("after")


async def test_a_request_that_cannot_be_read_is_answered_as_malformed() -> None:
    async with linked() as (client, endpoint, nursery):
        nursery.start_soon(echo, endpoint)

        body = await client.ask(msgspec.defstruct("No", [], tag="test.no")(), LONG)

    assert msgspec.msgpack.decode(body)["code"] == "malformed"


async def test_an_asker_that_gives_up_leaves_the_next_one_its_own_answer() -> None:
    async with linked() as (client, endpoint, nursery):
        with trio.move_on_after(0.01):
            await client.ask(Say("given up"), LONG)
        nursery.start_soon(echo, endpoint)

        after = await client.ask(Say("after"), LONG)

    assert REQUESTS.decode(after) == Say("after")


async def test_answers_that_are_queued_go_out_before_the_process_ends() -> None:
    near, far = memory_stream_pair()
    client, endpoint = FrameClient(near), FrameEndpoint(ECHO, far)
    said: list[bytes] = []

    async def ask(text: str) -> None:
        said.append(bytes(await client.ask(Say(text), LONG)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        async with trio.open_nursery() as askers:
            for text in "abc":
                askers.start_soon(ask, text)
            async with endpoint.mailbox(ECHO, REQUESTS) as mailbox:
                incoming_requests = [await anext(mailbox) for _ in range(3)]
                await incoming_requests[0].reply(incoming_requests[0].request)
            endpoint.finish()
            await endpoint.write()
        nursery.cancel_scope.cancel()

    kinds = [msgspec.msgpack.decode(each)["type"] for each in said]
    assert kinds == ["test.say", "failure", "failure"]


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.text(max_size=300), max_size=8), st.integers(1, 50))
def test_frames_come_whole_however_the_stream_cuts_them(texts: list[str], step: int) -> None:
    async def main() -> list[Say]:
        near, far = memory_stream_pair()
        assert isinstance(far.receive_stream, MemoryReceiveStream)
        client, endpoint = FrameClient(near), FrameEndpoint(ECHO, far)
        whole, said = far.receive_some, []

        async def cut(max_bytes: int | None = None) -> bytearray:
            return bytearray(await whole(min(step, max_bytes or step)))

        far.receive_some = cut  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            nursery.start_soon(endpoint.write)
            nursery.start_soon(echo, endpoint)
            for text in texts:
                body = await client.ask(Say(text), LONG)
                said.append(REQUESTS.decode(body))
            nursery.cancel_scope.cancel()
        return said

    assert trio.run(main) == [Say(text) for text in texts]


async def test_what_is_sent_after_the_end_is_an_error_of_the_channel() -> None:
    near, _ = memory_stream_pair()
    channel = FrameChannel(near)
    frame = Frame(MessageId(1), LONG, msgspec.Raw(b"{}"))
    channel.finish()

    with pytest.raises(ChannelOverError):
        await channel.send(frame)
    with pytest.raises(ChannelOverError):
        channel.send_nowait(frame)
