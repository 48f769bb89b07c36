"""Systems other than Linux: `ps` tells parents. Nothing tells which process has a TCP connection.

There is no subreaper. So an orphan of a server has process 1 as its parent, like a client whose
parents are gone, and the two look the same.
"""

from collections.abc import Collection, Iterable

from capd.adapters.platform.credentials import SocketOptions
from capd.adapters.platform.portable import tell
from capd.adapters.platform.tcp_ends import Address, NotToldError, TcpEnd
from capd.core.servers.ancestry import Missing, Process


def peer_pidfd(_connection: SocketOptions) -> int | None:
    """Return None: these systems have no pidfds."""
    return None


def has_ended(_pidfd: int) -> bool:
    """Return True. It is never called, because there are no pidfds."""
    return True


def look_at(pid: int) -> Process | Missing:
    """Return the process `pid` with its parent, or why it cannot be read."""
    line = tell(pid, "ppid=,lstart=")
    if line is None:
        return "gone"
    parent, _, started = line.partition(" ")
    return Process(pid, started.strip(), int(parent))


def is_in_own_unit(_pid: int) -> bool:
    """Return False: these systems have no control groups."""
    return False


def other_end(_ours: Address, _theirs: Address) -> TcpEnd | None:
    """Raise `NotToldError`: these systems do not report the other end of a TCP connection."""
    raise NotToldError("this system does not tell")


def holders(_inodes: Collection[int], _below: int, _first: Iterable[int] = ()) -> dict[int, int]:
    """Return no holders: these systems do not report which process has a socket."""
    return {}


def holds(_pid: int, _inode: int) -> bool:
    """Return False: these systems do not report which process has a socket."""
    return False
