"""In-memory streams behave like pipes."""

import sys

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from capd.adapters.servers.http.line_pipe import line_pipe


async def test_bytes_arrive_in_order_and_in_parts() -> None:
    sender, receiver = line_pipe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send_all, b"abcde\n")
        parts = [await receiver.receive_some(size) for size in (2, 3, None)]
        sender.close()

        parts.append(await receiver.receive_some())

    assert parts == [b"ab", b"cde", b"\n", b""]


@pytest.mark.parametrize("sizes", [(3, 3, None), (2, 1, 1), (None,), (4,), (1, 1, 1, 1)])
async def test_a_line_arrives_with_its_line_break(sizes: tuple[int | None, ...]) -> None:
    sender, receiver = line_pipe()
    parts: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send_line, b"abc")
        while b"\n" not in b"".join(parts):
            parts.append(await receiver.receive_some(sizes[len(parts) % len(sizes)]))
        sender.close()

        parts.append(await receiver.receive_some())

    assert b"".join(parts) == b"abc\n"


@pytest.mark.parametrize("size", [None, 4, 3])
async def test_a_line_that_was_read_is_kept_by_nobody(size: int | None) -> None:
    sender, receiver = line_pipe()
    line = bytes(3)
    before = sys.getrefcount(line)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send_line, line)
        parts = await receiver.receive_some(size)
        while not parts.endswith(b"\n"):
            parts += await receiver.receive_some(size)

    assert sys.getrefcount(line) == before


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_sender_of_a_line_waits_until_it_was_read_or_never_will_be(
    is_closed: bool,
) -> None:
    sender, receiver = line_pipe()
    done = []

    async def send() -> None:
        await sender.send_line(b"abc")
        done.append("sent")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await receiver.receive_some(2)
        await wait_all_tasks_blocked()
        before = list(done)

        if is_closed:
            receiver.close()
        else:
            await receiver.receive_some()

    assert (before, done) == ([], ["sent"])


async def test_a_sender_waits_for_its_reader() -> None:
    sender, receiver = line_pipe()
    done = []

    async def send() -> None:
        await sender.send_all(b"x")
        done.append("sent")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        before = list(done)

        await receiver.receive_some()

    assert (before, done) == ([], ["sent"])


async def test_a_sender_without_a_reader_is_told() -> None:
    sender, receiver = line_pipe()
    receiver.close()

    with pytest.raises(trio.BrokenResourceError):
        await sender.send_all(b"x")
