"""The numbered lines of one event stream, so that a client that was disconnected can continue.

Lines that were sent are kept while there is room, for a client that returns with the number of its
last line. Lines that were not sent are never dropped: if there is no room, a newer line is refused.
"""

from collections import deque

import trio

from capd.adapters.frame_writer import WriterFullError
from capd.adapters.large_frames import LargeFrame

MOST_LINES = 1024
MOST_BYTES = 8 * 1024 * 1024

Line = bytes | LargeFrame
"""A line; one that is too large for memory stays in the spool."""


def _size(line: Line) -> int:
    return len(line) if isinstance(line, bytes) else line.size_bytes


class Outbox:
    """The lines of one event stream. Only its newest reader gets them."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether the stream has ended, so that no line is added any more."""
        self._is_complete = False
        self._lines: deque[tuple[int, Line]] = deque()
        self._size_bytes = 0
        self._last = 0
        self._read = 0
        self._readers = 0
        self._news = trio.Event()

    @property
    def size_bytes(self) -> int:
        """The size of the kept lines, in bytes."""
        return self._size_bytes

    @property
    def holds_large(self) -> bool:
        """Whether a kept line is in a file because it is too large for memory."""
        return any(isinstance(line, LargeFrame) for _, line in self._lines)

    def put(self, line: Line, *, is_last: bool = False) -> None:
        """Add a line. With `is_last` it ends the stream, and always fits. A later line is dropped.

        Raises:
            WriterFullError: there is no room, because nobody reads.
        """
        if self.is_over:
            return
        self._size_bytes += _size(line)
        while self._is_full() and self._lines and self._lines[0][0] <= self._read:
            self._size_bytes -= _size(self._lines.popleft()[1])
        if self._is_full() and self._lines and not is_last:
            self._size_bytes -= _size(line)
            raise WriterFullError("the client does not take its events")
        self._last += 1
        self._lines.append((self._last, line))
        if is_last:
            self.is_over = self._is_complete = True
        self._tell()

    def finish(self) -> None:
        """End the stream without a last line, so that no line can be added."""
        self.is_over = True
        self._tell()

    def is_last(self, number: int) -> bool:
        """Tell whether the stream ended with line `number`."""
        return self._is_complete and number == self._last

    def claim(self) -> int:
        """Become the reader of the stream, in place of any other; return this reader's number."""
        self._readers += 1
        self._tell()
        return self._readers

    def has(self, number: int) -> bool:
        """Tell whether a reader that has line `number` can continue without a gap."""
        oldest = self._lines[0][0] if self._lines else self._last + 1
        return oldest - 1 <= number <= self._last

    async def after(self, number: int, claim: int) -> tuple[int, Line] | None:
        """Wait for the line after line `number`; return its number and the line.

        `claim` is the reader's own number. Return None if there will be no such line, or if another
        reader has replaced this one.
        """
        while claim == self._readers:
            self._read = max(self._read, number)
            for each in self._lines:
                if each[0] > number:
                    return each
            if self.is_over:
                return None
            await self._news.wait()
        return None

    def _is_full(self) -> bool:
        return len(self._lines) >= MOST_LINES or self._size_bytes > MOST_BYTES

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()
