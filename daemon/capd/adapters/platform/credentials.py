"""The identity of the process at the other end of a Unix socket, as the kernel reports it."""

import errno
from typing import NamedTuple, Protocol, overload

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""The error numbers if a process, or the system, has no free file descriptor."""


class PeerCredentials(NamedTuple):
    """A peer's identity at the moment it connected; `pid` is 0 if the kernel does not report it."""

    pid: int
    uid: int
    gid: int


class SocketOptions(Protocol):
    """A socket with `getsockopt`, such as those of the standard library and of trio."""

    @overload
    def getsockopt(self, level: int, optname: int, /) -> int: ...
    @overload
    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...
