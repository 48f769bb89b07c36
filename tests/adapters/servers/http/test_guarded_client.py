"""Reading the body of an answer leaves turns to other tasks."""

from collections.abc import AsyncIterator

import httpx2
import trio

from capd.adapters.servers.http.guarded_client import Answer

CHUNKS = 6400


class Crumbs(httpx2.AsyncByteStream):
    """A body in chunks of one byte that have all arrived, so that reading them never waits."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(CHUNKS):
            yield b"x"


async def test_a_body_in_chunks_of_one_byte_leaves_turns_to_others() -> None:
    request = httpx2.Request("POST", "http://far/mcp")
    answer = Answer(httpx2.Response(200, stream=Crumbs(), request=request))
    turns = 0

    async def count(task_status: trio.TaskStatus[None]) -> None:
        nonlocal turns
        task_status.started()
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        await nursery.start(count)

        body = await answer.read()

        nursery.cancel_scope.cancel()
    assert body == b"x" * CHUNKS
    assert turns >= CHUNKS // 100
