"""The base of all actor clients."""

from typing import ClassVar, TypeVar

import msgspec

from capd.runtime.bus import Bus
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName

R = TypeVar("R")

ANSWER_TIMEOUT = 5.0
"""Seconds for a reply that needs no disk, no process and no model."""
RELOAD_TIMEOUT = 3600.0
"""Seconds. Reading many files may take long; the timeout is only for an actor that hangs."""


class ActorClient:
    """The base class: sends requests to one actor.

    Every request raises `ActorUnavailableError` if no usable reply comes in time.
    """

    actor: ClassVar[ActorName]

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def _ask(self, request: msgspec.Struct, replies: MsgpackCodec[R], timeout: float) -> R:
        return await self._bus.ask(self.actor, request, replies, timeout)
