"""A server's result that is too large to hold: it stays where its line was spooled."""

import re
from dataclasses import dataclass, replace
from typing import Protocol

_IS_ERROR = re.compile(rb'"isError"\s*:\s*true')


class Spooled(Protocol):
    """Bytes that are kept outside of the memory until nobody refers to them."""

    async def read(self, start: int, size_bytes: int) -> bytes:
        """Return a part of them."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LargeResult:
    """One JSON container, which is passed on unread."""

    spooled: Spooled
    start: int
    """Where in what is spooled it begins."""
    end: int
    head: bytes
    """Its first bytes."""
    tail: bytes
    """Its last ones."""
    spliced: bytes = b""
    """Written before what begins at `start`."""

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return len(self.spliced) + self.end - self.start

    def mentions(self, member: str) -> bool:
        """Tell whether one of its ends has a member of this name, or something inside of it."""
        # In a text of the server's the quotes would be escaped.
        name = b'"%s"' % member.encode()
        return name in self.head or name in self.tail

    def with_members(self, members: bytes) -> "LargeResult":
        """Return it with other members first, each with a comma behind it."""
        if not members or not self.head.startswith(b"{"):
            return self
        return replace(self, spliced=b"{" + members, start=self.start + 1)

    @property
    def is_success(self) -> bool:
        """Whether its ends do not say that it tells of an error.

        Servers write the flag beside the content, so at one of the ends. Looked for in between it
        would be found in what the content quotes; what a wrong answer costs is that a tool which
        failed counts as used, and so stays in the active set for longer.
        """
        return not (_IS_ERROR.search(self.head) or _IS_ERROR.search(self.tail))


Result = bytes | LargeResult
"""What a server answers with."""
