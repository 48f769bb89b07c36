"""Where lines to a client are written: a socket's stream, or the answers of an HTTP endpoint."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import trio

from capd.adapters.large_frames import LargeFrame

RequestId = int | str | float | None


class LineSink(Protocol):
    """Accepts lines for a client; `related` names the request that a line belongs to."""

    async def send(self, line: bytes, related: RequestId = None) -> None:
        """Write a line to the client.

        Raises:
            WriterFullError, FrameCutError: the line cannot be written.
        """
        ...

    def post(self, line: bytes, related: RequestId = None) -> None:
        """Queue a line for the client.

        Raises:
            WriterFullError: the queue is full.
        """
        ...

    def open(self, nursery: trio.Nursery, on_gone: Callable[[], None]) -> None:
        """Start writing, with tasks in `nursery`; call `on_gone` when the client disconnects."""
        ...

    async def aclose(self) -> None:
        """Close the connection to the client."""
        ...


@runtime_checkable
class LargeSink(LineSink, Protocol):
    """A sink that also accepts lines too large for memory."""

    async def send_large(self, frame: LargeFrame) -> None:
        """Write a line that is too large for memory.

        Raises:
            WriterFullError, FrameCutError: the line cannot be written.
        """
        ...


@runtime_checkable
class PromptSink(LargeSink, Protocol):
    """A sink that can tell whether a line can be written without waiting."""

    def put(self, line: bytes) -> bool:
        """Queue a line if that is possible without waiting; return whether it was queued."""
        ...

    def is_out(self, lines: Sequence[bytes]) -> bool:
        """Write lines to the client without waiting; return whether all of them were written whole.

        The rest of a line that was written in part is queued.
        """
        ...


@runtime_checkable
class ParkingSink(LineSink, Protocol):
    """A sink that can do without a task while its client is idle."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written."""
        ...

    def park(self, on_backlog: Callable[[], None]) -> int:
        """Go on without a nursery; return the socket's descriptor.

        `on_backlog` is called when a line cannot be written at once. The line stays in the queue
        until the sink is opened again.
        """
        ...

    def abandon(self) -> None:
        """Close the connection without waiting."""
        ...
