"""The ends of a TCP connection, on every system."""

from dataclasses import dataclass

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TcpEnd:
    """One end of a TCP connection, as the kernel knows it: its user, and its socket's inode."""

    uid: int
    inode: int


class NotToldError(OSError):
    """This system does not report which process has a connection."""
