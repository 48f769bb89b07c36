"""Reads of paths that do not answer end in time and block nobody else."""

import threading
from collections.abc import Iterator

import pytest
import trio

from capd.adapters.timed_reads import NoAnswerError, TimedReads


@pytest.fixture
def mount() -> Iterator[threading.Event]:
    """Return an event for which a read waits, like on a hung mount."""
    answers = threading.Event()
    yield answers
    answers.set()


async def test_a_place_that_does_not_answer_is_told(mount: threading.Event) -> None:
    reads = TimedReads(0.01)

    with pytest.raises(NoAnswerError) as told:
        await reads.of("/mnt/far", mount.wait)

    assert str(told.value) == "/mnt/far did not answer within 0.01 s"


async def test_a_place_that_hangs_takes_one_thread_however_often_it_is_asked(
    mount: threading.Event,
) -> None:
    reads = TimedReads(0.01)
    begun: list[str] = []

    def read() -> bool:
        begun.append("read")
        return mount.wait()

    for _ in range(5):
        with pytest.raises(NoAnswerError):
            await reads.of("/mnt/far", read)

    assert begun == ["read"]


async def test_another_place_is_read_while_one_hangs(mount: threading.Event) -> None:
    reads = TimedReads()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reads.of, "/mnt/far", mount.wait)

        near = await reads.of("/home/near", lambda: "read")

        nursery.cancel_scope.cancel()
    assert near == "read"


async def test_a_place_that_answers_again_is_read(mount: threading.Event) -> None:
    reads = TimedReads(0.01)
    with pytest.raises(NoAnswerError):
        await reads.of("/mnt/far", mount.wait)

    mount.set()
    reads.longest = float("inf")
    again = await reads.of("/mnt/far", lambda: "read")

    assert again == "read"
