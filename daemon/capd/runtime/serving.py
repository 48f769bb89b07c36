"""Serves an actor's mailbox, each request in its own task with its own error boundary.

A request that raises an error is answered as `crashed`, and the error is logged; other requests are
not affected. An error outside of a request ends the actor, and supervision starts it again.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.mailbox import IncomingRequest
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
    offers: tuple[type[msgspec.Struct], ...] = (),
) -> None:
    """Answer every request to `actor` with `await replied(request)`, until cancelled.

    Replies of the types in `offers` are large, and are passed as objects without being encoded.
    """

    async def answer(incoming: IncomingRequest[Q]) -> None:
        async with incoming:
            reply = await replied(incoming.request)
            await (incoming.offer if isinstance(reply, offers) else incoming.reply)(reply)

    async def answer_contained(incoming: IncomingRequest[Q]) -> None:
        await contained(type(incoming.request).__name__, answer, incoming, log=log)

    async with trio.open_nursery() as nursery, bus.mailbox(actor, requests) as mailbox:
        task_status.started()
        async for incoming in mailbox:
            nursery.start_soon(answer_contained, incoming)
