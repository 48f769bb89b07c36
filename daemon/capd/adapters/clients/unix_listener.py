"""The public socket: made safely, one daemon at a time, or taken over from systemd.

The folder is ours alone (0700) and the socket is made under a umask that leaves others nothing.
A lock next to it is held for the daemon's life, so a stale socket is told from a live one
without a race (80, A1 and A2). There is no fallback to a shared folder.
"""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import trio

from capd.core.errors import CapdError

BACKLOG = 4096
_LONGEST_PATH_BYTES = 100
_FIRST_FD = 3


class PlaceUnsafeError(CapdError):
    """The socket's folder cannot be used."""


class AlreadyServedError(CapdError):
    """Another daemon serves this place."""


def make_private(folder: Path) -> None:
    """Make `folder`, or see that it is ours and nobody else's.

    Raises:
        PlaceUnsafeError: it is a link, somebody else's, open to others, or cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise PlaceUnsafeError(f"{folder} cannot be made: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise PlaceUnsafeError(f"{folder} is not a folder (or a link to one): remove it")
    if found.st_uid != os.getuid():
        raise PlaceUnsafeError(f"{folder} belongs to user {found.st_uid}, not to you")
    if found.st_mode & 0o077:
        raise PlaceUnsafeError(f"{folder} is open to other users: run chmod 700 {folder}")


@contextlib.contextmanager
def sole_daemon(lock_file: Path) -> Iterator[None]:
    """Be the only daemon of this place for the length of a block.

    Raises:
        AlreadyServedError: another one is; its pid is in the text.
        PlaceUnsafeError: the lock is a link, or cannot be made.
    """
    try:
        fd = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PlaceUnsafeError(f"{lock_file} cannot be locked: {error.strerror}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            raise AlreadyServedError(
                f"a daemon (pid {pid}) already serves {lock_file.parent}; stop it with: "
                f"capd stop (or kill {pid})"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def listening(path: Path, environment: MutableMapping[str, str]) -> Iterator[trio.SocketListener]:
    """Listen on systemd's socket if it gave one, else on one at `path` that is ours to remove.

    Enter it only within `sole_daemon`: what lies at `path` is then stale.

    Raises:
        PlaceUnsafeError: the path is too long, or something that is no socket lies there.
    """
    given = _from_systemd(environment)
    if given is not None:
        yield trio.SocketListener(trio.socket.from_stdlib_socket(given))
        return
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise PlaceUnsafeError(
            f"{path} is too long for a socket: set CAPD_SOCKET to a path under 100 bytes"
        )
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise PlaceUnsafeError(f"{path} is not a socket: remove it")
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Under this umask the socket is never open to others, not even between bind and chmod.
    before = os.umask(0o177)
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        raise PlaceUnsafeError(f"{path} cannot be bound: {error.strerror}") from None
    finally:
        os.umask(before)
    sock.listen(BACKLOG)
    ours = path.lstat().st_ino
    try:
        yield trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    finally:
        # Somebody may have removed it, and another daemon made its own there.
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_ino == ours:
                path.unlink()


def _from_systemd(environment: MutableMapping[str, str]) -> socket.socket | None:
    """Return the first socket that systemd passed, and hide the passing from children."""
    pid = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit() or int(count) < 1:
        return None
    os.set_inheritable(_FIRST_FD, False)
    return socket.socket(fileno=_FIRST_FD)
