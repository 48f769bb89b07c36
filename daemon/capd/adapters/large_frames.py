"""Results that are kept in files because of their size: sent in pieces, or read into memory."""

from collections.abc import AsyncGenerator
from copy import copy

from capd.core.protocol.outcomes import OutcomeUnknownError
from capd.core.results.large_results import LargeResult, Result

PIECE_BYTES = 256 * 1024
READABLE_BYTES = 32 * 1024 * 1024
"""The longest result that `read_all` loads into memory."""


class LargeFrame:
    """A line to a client with a result that is never in memory as a whole.

    It is written piece by piece.
    """

    def __init__(self, before: bytes, result: LargeResult, after: bytes) -> None:
        self.size_bytes = len(before) + result.size_bytes + len(after)
        self._before = before + result.spliced
        self._result = result
        self._after = after

    def begins_with(self, head: bytes) -> bool:
        """Tell whether the frame begins with `head`."""
        return self._before.startswith(head)

    def with_head(self, old: bytes, new: bytes) -> "LargeFrame":
        """Return the frame with `new` in place of `old` at its beginning."""
        changed = copy(self)
        changed._before = new + self._before.removeprefix(old)  # noqa: SLF001 - its own
        changed.size_bytes += len(new) - len(old)
        return changed

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the frame in order, with the newline at the end.

        Raises:
            OSError: the file with the result cannot be read.
        """
        yield self._before
        at = self._result.start
        while at < self._result.end:
            size_bytes = min(PIECE_BYTES, self._result.end - at)
            piece = await self._result.spooled.read(at, size_bytes)
            if len(piece) < size_bytes:
                raise OSError(f"{size_bytes - len(piece)} bytes are missing")
            # Some readers end a line at a bare CR; between the tokens of JSON it is a space.
            yield piece.replace(b"\r", b" ")
            at += len(piece)
        yield self._after + b"\n"


async def read_all(result: Result) -> bytes:
    """Return a result as bytes in memory, for capd's own use.

    Raises:
        OutcomeUnknownError: the result is over `READABLE_BYTES`, or its file cannot be read.
    """
    if isinstance(result, bytes):
        return result
    text = f"its result of {result.size_bytes} bytes is over the limit of {READABLE_BYTES}"
    if result.size_bytes > READABLE_BYTES:
        raise OutcomeUnknownError(f"{text}; the call has run")
    try:
        return result.spliced + await result.spooled.read(result.start, result.end - result.start)
    except OSError:
        raise OutcomeUnknownError("its result cannot be read again; the call has run") from None
