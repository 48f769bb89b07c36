"""Counts how often the event loop gives other tasks a turn."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio


@dataclass
class Turns:
    """How many turns a task had."""

    count: int = 0


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Turns]:
    """Run a task that only counts its turns while the block runs."""
    turns = Turns()

    async def count(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            await trio.lowlevel.checkpoint()
            turns.count += 1

    async with trio.open_nursery() as nursery:
        await nursery.start(count)
        yield turns
        nursery.cancel_scope.cancel()
