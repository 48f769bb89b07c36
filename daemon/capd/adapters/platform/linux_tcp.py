"""Linux: which process holds the other end of a TCP connection on this machine.

TCP has nothing like SO_PEERCRED. The kernel reports the user and the inode of the other end's
socket (sock_diag, one exact query). The process that has this inode open is looked for in
/proc, among the user's own processes.
"""

import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from capd.adapters.platform.tcp_ends import Address, NotToldError, TcpEnd

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_ESTABLISHED = 1
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_ADDRESSES = struct.Struct("!HH16s16s")
_INTERFACE_AND_COOKIE = struct.Struct("=III")
_NO_COOKIE = 0xFFFFFFFF
_ANSWER = struct.Struct("=BBBB48xIIIII")
_ANSWER_TIMEOUT = 1.0
_LONGEST_ANSWER = 8192

MOST_PROCESSES = 20_000
MOST_DESCRIPTORS = 200_000
"""The most descriptors that one search looks at, of all processes. Each takes 2 µs."""


def other_end(ours: Address, theirs: Address) -> TcpEnd | None:
    """Return the other end of one of our TCP connections; None if that end is closed.

    The connection is the one from our address `ours` to the address `theirs`.

    Raises:
        NotToldError: the system has no sock_diag, or does not allow it.
    """
    addresses = (socket.inet_aton(theirs[0]), socket.inet_aton(ours[0]))
    request = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 1 << _ESTABLISHED)
    request += _ADDRESSES.pack(theirs[1], ours[1], *addresses)
    request += _INTERFACE_AND_COOKIE.pack(0, _NO_COOKIE, _NO_COOKIE)
    size = _HEADER.size + len(request)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as link:
            link.settimeout(_ANSWER_TIMEOUT)
            header = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
            link.send(header + request)
            answer = link.recv(_LONGEST_ANSWER)
    except (OSError, AttributeError) as error:
        raise NotToldError(str(error)) from None
    _size, kind, *_rest = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if number == 2:  # noqa: PLR2004  # ENOENT: there is no such connection
            return None
        raise NotToldError(number, os.strerror(number))
    if kind != _SOCK_DIAG_BY_FAMILY or len(answer) < _HEADER.size + _ANSWER.size:
        raise NotToldError("an answer of another kind")
    _family, state, _, _, _, _, _, uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)
    return TcpEnd(uid, inode) if state == _ESTABLISHED and inode else None


def holders(inodes: Collection[int], below: int, first: Iterable[int] = ()) -> dict[int, int]:
    """Return, for each inode, the first process found that has the inode open.

    Processes in `first` are searched first. The process `below` and its descendants are not
    searched, so that they cannot make the search long. Blocks for up to some tens of ms, so run it
    in a thread.
    """
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, int] = {}
    budget = MOST_DESCRIPTORS
    for pid in _searched(below, first):
        if len(found) == len(wanted):
            break
        for link in _links(pid):
            budget -= 1
            if link in wanted:
                found.setdefault(wanted[link], pid)
        if budget <= 0:
            break
    return found


def holds(pid: int, inode: int) -> bool:
    """Tell whether the process `pid` has a descriptor of the socket with this inode."""
    return f"socket:[{inode}]" in _links(pid)


def _searched(below: int, first: Iterable[int]) -> Iterator[int]:
    """Yield this user's processes in the order of the search.

    The process `below` and its descendants are left out.
    """
    parents, own = _processes()
    spared = {below}
    for pid in parents:
        line: list[int] = []
        each = pid
        while each in parents and each not in spared and each not in line:
            line.append(each)
            each = parents[each]
        if each in spared:
            spared.update(line)
    early = [pid for pid in first if pid in own and pid not in spared]
    yield from early
    # The newest processes first, because clients are usually younger than the desktop session.
    yield from (pid for pid in sorted(own, reverse=True) if pid not in {*spared, *early})


def _processes() -> tuple[dict[int, int], set[int]]:
    """Return every process with its parent, and the set of this user's processes."""
    parents: dict[int, int] = {}
    own: set[int] = set()
    user = os.getuid()
    with suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and len(parents) < MOST_PROCESSES:
                with suppress(OSError):
                    parents[int(entry.name)] = _parent(entry.path)
                    if user in {0, entry.stat().st_uid}:
                        own.add(int(entry.name))
    return parents, own


def _parent(folder: str) -> int:
    fd = os.open(f"{folder}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(fd, 1024).rpartition(b")")[2].split()[1])
    finally:
        os.close(fd)


def _links(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208  # pathlib costs as much as the search
    except OSError:
        return
    for name in names:
        with suppress(OSError):
            yield os.readlink(f"{folder}/{name}")  # noqa: PTH115
