"""Systems other than Linux: parents by `ps`; nothing tells whose a TCP connection is.

There is no child subreaper. So an orphan of a server has process 1 for a parent, as a client has
whose parents are gone, and the two cannot be told apart.
"""

from collections.abc import Collection, Iterable

from capd.adapters.platform.credentials import SocketOptions
from capd.adapters.platform.portable import tell
from capd.adapters.platform.tcp_ends import Address, NotToldError, TcpEnd
from capd.core.servers.ancestry import Missing, Process


def peer_pidfd(_connection: SocketOptions) -> int | None:
    """Return None: there is no such thing here."""
    return None


def has_ended(_pidfd: int) -> bool:
    """Never be asked."""
    return True


def look_at(pid: int) -> Process | Missing:
    """Return a process with its parent."""
    told = tell(pid, "ppid=,lstart=")
    if told is None:
        return "gone"
    parent, _, started = told.partition(" ")
    return Process(pid, started.strip(), int(parent))


def is_in_own_unit(_pid: int) -> bool:
    """Return False: there are no cgroups here."""
    return False


def other_end(_ours: Address, _theirs: Address) -> TcpEnd | None:
    """Raise `NotToldError`."""
    raise NotToldError("this system does not tell")


def holders(_inodes: Collection[int], _below: int, _first: Iterable[int] = ()) -> dict[int, int]:
    """Return nothing."""
    return {}


def holds(_pid: int, _inode: int) -> bool:
    """Return False."""
    return False
