"""Where a client's lines go: a socket's stream, or the answers of an HTTP endpoint."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import trio

from capd.adapters.large_frames import LargeFrame

RequestId = int | str | None


class LineSink(Protocol):
    """Where a client's lines go; `related` names the request that a line belongs to."""

    async def send(self, line: bytes, related: RequestId = None) -> None:
        """Write a line; raise WriterFullError or FrameCutError."""
        ...

    def post(self, line: bytes, related: RequestId = None) -> None:
        """Queue a line; raise WriterFullError."""
        ...

    def open(self, nursery: trio.Nursery, on_gone: Callable[[], None]) -> None:
        """Write from here on, with tasks of `nursery`; say when the client is gone."""
        ...

    async def aclose(self) -> None:
        """Give the connection up."""
        ...


@runtime_checkable
class LargeSink(LineSink, Protocol):
    """A sink that writes lines as well that are too large to be held."""

    async def send_large(self, frame: LargeFrame) -> None:
        """Write one; raise WriterFullError or FrameCutError."""
        ...


@runtime_checkable
class PromptSink(LargeSink, Protocol):
    """A sink that can say whether a line goes out without a wait."""

    def put(self, line: bytes) -> bool:
        """Take a line that nobody has to wait for; False where it cannot be taken like that."""
        ...

    def is_out(self, lines: Sequence[bytes]) -> bool:
        """Write lines at once; say whether all of them are out."""
        ...
