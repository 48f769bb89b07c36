"""A server's result that is too large for memory, and stays in a temporary file."""

from dataclasses import dataclass, replace
from typing import Protocol

from capd.core.lazy_patterns import lazy_pattern

_IS_ERROR = lazy_pattern(rb'"isError"\s*:\s*true')


class Spooled(Protocol):
    """Bytes in a temporary file, which is deleted when nothing refers to this object."""

    async def read(self, start: int, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes from the offset `start` on."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LargeResult:
    """One JSON object or list in a temporary file, passed on without being parsed."""

    spooled: Spooled
    start: int
    """The offset of the result in the spooled bytes; `end` is the offset after it."""
    end: int
    head: bytes
    """The first bytes of the result."""
    tail: bytes
    """The last bytes of the result."""
    spliced: bytes = b""
    """Bytes to send before those of the file."""
    has_questions: bool = False
    """Whether it has a member `inputRequests`, with questions of a server to the client."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes to send."""
        return len(self.spliced) + self.end - self.start

    def mentions(self, member: str) -> bool:
        """Tell whether a member of this name is in the first or last bytes, at any level."""
        # In a string value the quotes would be escaped.
        name = b'"%s"' % member.encode()
        return name in self.head or name in self.tail

    def with_members(self, members: bytes) -> "LargeResult":
        """Return the result with `members` before its own, each followed by a comma."""
        if not members or not self.head.startswith(b"{"):
            return self
        return replace(self, spliced=b"{" + members, start=self.start + 1)

    @property
    def is_success(self) -> bool:
        """Whether the first and last bytes have no `"isError": true`.

        Servers write `isError` before or after the content, so it is in these bytes. A search of
        all bytes would also find it in the content. A wrong answer costs little: a call that failed
        counts as a use of its tool.
        """
        return not (_IS_ERROR.search(self.head) or _IS_ERROR.search(self.tail))


Result = bytes | LargeResult
"""A server's result: its JSON, or a result that is too large for memory."""
