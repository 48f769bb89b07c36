"""How an actor answers its mailbox: each letter in a task of its own, within its own boundary.

What goes wrong over one request is answered as `crashed` and logged; other requests, and what
the actor holds for others, are not concerned. What goes wrong outside of a request ends the
actor, and supervision starts it again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.mailbox import Letter
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName

Q = TypeVar("Q")


async def serve(
    bus: Bus,
    actor: ActorName,
    requests: MsgpackCodec[Q],
    replied: Callable[[Q], Awaitable[msgspec.Struct]],
    *,
    log: FilteringBoundLogger,
    task_status: trio.TaskStatus[None],
) -> None:
    """Answer every request to `actor` with what `replied` returns, until cancelled."""

    async def answer(letter: Letter[Q]) -> None:
        async with letter:
            await letter.reply(await replied(letter.request))

    async def answer_contained(letter: Letter[Q]) -> None:
        await contained(type(letter.request).__name__, answer, letter, log=log)

    async with trio.open_nursery() as nursery, bus.mailbox(actor, requests) as mailbox:
        task_status.started()
        async for letter in mailbox:
            nursery.start_soon(answer_contained, letter)
