"""Who is at the other end of a Unix socket, as the kernel says it."""

import errno
from typing import NamedTuple, Protocol, overload

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""The errors of a process, or a system, that has no file descriptor free."""


class PeerCredentials(NamedTuple):
    """A peer's identity at the moment it connected; `pid` is 0 where the kernel does not say."""

    pid: int
    uid: int
    gid: int


class SocketOptions(Protocol):
    """What is asked of a socket here; the standard library's and trio's both have it."""

    @overload
    def getsockopt(self, level: int, optname: int, /) -> int: ...
    @overload
    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...
