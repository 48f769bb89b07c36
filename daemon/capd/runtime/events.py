"""Events between actors. A subscriber that is slow or absent misses events.

The topic of an event is its tag. A subscription is for all tags with a prefix, such as `server.`.
"""

from collections import Counter
from typing import Generic, Self, TypeVar

import msgspec
import structlog
import zmq

from capd.runtime.arrivals import BODIES
from capd.runtime.zmq_socket import CannotBindError, Context, TrioSocket
from capd_protos.codec import MalformedError, MsgpackCodec
from capd_protos.types import Address

E = TypeVar("E")

log = structlog.get_logger()


class Publisher:
    """Sends the events of all actors of the process."""

    def __init__(self, context: Context, address: Address) -> None:
        self._socket = TrioSocket(context, zmq.SocketType.PUB)
        try:
            self._socket.bind(address)
        except CannotBindError:
            self._socket.close()
            raise

    def publish(self, event: msgspec.Struct) -> None:
        """Send `event` to the present subscribers. One whose queue is full misses it."""
        tag = event.__struct_config__.tag
        if not isinstance(tag, str):
            raise TypeError(f"{type(event).__name__} has no tag of text, so no topic")
        # A socket that only sends looks for new subscriptions once a millisecond at most. `refresh`
        # makes it look now, so that a new subscriber gets every later event.
        self._socket.refresh()
        self._socket.send_nowait([tag.encode(), BODIES.encode(event)])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Subscription(Generic[E]):
    """An endless iterator of events. Events that the codec does not know are skipped."""

    def __init__(
        self,
        context: Context,
        address: Address,
        codec: MsgpackCodec[E],
        prefixes: tuple[str, ...],
        counts: Counter[str],
    ) -> None:
        self._codec = codec
        self._counts = counts
        self._socket = TrioSocket(context, zmq.SocketType.SUB)
        self._socket.connect(address)
        for prefix in prefixes or ("",):
            self._socket.subscribe(prefix.encode())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        while True:
            frames = await self._socket.recv()
            try:
                return self._codec.decode(frames[-1])
            except MalformedError:
                self._counts["undecodable_event"] += 1
                log.info("undecodable_event", topic=frames[0][:100])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
