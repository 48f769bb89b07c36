"""Where a client's lines go: a socket's stream, or the answers of an HTTP endpoint."""

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
class LargeSink(Protocol):
    """A sink that writes lines as well that are too large to be held."""

    async def send_large(self, frame: LargeFrame) -> None:
        """Write one; raise WriterFullError or FrameCutError."""
        ...
