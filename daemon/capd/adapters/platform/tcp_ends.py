"""The ends of a TCP connection, on every system."""

from dataclasses import dataclass

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TcpEnd:
    """One end of a connection, as the kernel knows it."""

    uid: int
    inode: int


class NotToldError(OSError):
    """This system does not report which process has a connection."""
