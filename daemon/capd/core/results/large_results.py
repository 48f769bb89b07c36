"""A server's result that is too large for memory and stays in a spooled file."""

import re
from dataclasses import dataclass, replace
from typing import Protocol

_IS_ERROR = re.compile(rb'"isError"\s*:\s*true')


class Spooled(Protocol):
    """Bytes that are kept outside of memory until nobody refers to them."""

    async def read(self, start: int, size_bytes: int) -> bytes:
        """Return a part of the bytes."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LargeResult:
    """One JSON container, passed on without being parsed."""

    spooled: Spooled
    start: int
    """Its position in the spooled bytes."""
    end: int
    head: bytes
    """Its first bytes."""
    tail: bytes
    """Its last bytes."""
    spliced: bytes = b""
    """Bytes that are written before it."""

    @property
    def size_bytes(self) -> int:
        """Its length."""
        return len(self.spliced) + self.end - self.start

    def mentions(self, member: str) -> bool:
        """Tell whether a member of this name is in its first or last bytes, at any level."""
        # Inside a text, the quotes would be escaped.
        name = b'"%s"' % member.encode()
        return name in self.head or name in self.tail

    def with_members(self, members: bytes) -> "LargeResult":
        """Return it with other members first, each with a comma after it."""
        if not members or not self.head.startswith(b"{"):
            return self
        return replace(self, spliced=b"{" + members, start=self.start + 1)

    @property
    def is_success(self) -> bool:
        """Whether its first and last bytes do not say that it is an error.

        Servers write the flag beside the content, so it is at one of the ends. A search in the
        middle would also find it in quoted content. A wrong answer costs little: a tool that failed
        counts as used, and stays in the active set for longer.
        """
        return not (_IS_ERROR.search(self.head) or _IS_ERROR.search(self.tail))


Result = bytes | LargeResult
"""A server's answer."""
