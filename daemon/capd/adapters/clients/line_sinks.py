"""Where a client's lines go: a socket's stream, or the answers of an HTTP endpoint."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

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

    async def run(self) -> None:
        """Write what is queued until the client is gone; raise WriterStalledError."""
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
