"""The public socket: created safely, served by one daemon only, or passed on by systemd.

Only this user can enter the folder (0700), and the socket is created under a umask that gives
others no rights. The daemon holds a lock beside the socket while it runs, so a stale socket can be
recognised without a race (docs/design/trust.md). There is no fallback to a shared folder.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path

import trio
from trio.abc import Listener

from capd.core.errors import CapdError
from capd_protos.places import make_folders

BACKLOG = 4096
_LONGEST_PATH_BYTES = 100
_ELSEWHERE = "correct the XDG_ variables, or set CAPD_HOME to a folder of yours"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FIRST_FD = 3
_TRIES = 5
_BETWEEN_TRIES = 0.02


class PlaceUnsafeError(CapdError):
    """The socket, its folder or a lock cannot be created, or is not safe to use."""


class AlreadyServedError(CapdError):
    """Another daemon uses this socket or state folder."""


class LockUnsupportedError(CapdError):
    """The file system, for example that of a network, does not support locks."""


def make_folder(folder: Path) -> None:
    """Create `folder` and those above it, unless it exists.

    Raises:
        PlaceUnsafeError: it cannot be created.
    """
    try:
        make_folders(folder)
    except FileExistsError:
        raise PlaceUnsafeError(f"{folder} is not a folder: remove it") from None
    except OSError as error:
        advice = "make room on its disk" if error.errno in _FULL else _ELSEWHERE
        raise PlaceUnsafeError(f"{folder} cannot be made: {error.strerror}: {advice}") from None


def make_private(folder: Path) -> None:
    """Create `folder`, or check that only this user can use it.

    Raises:
        PlaceUnsafeError: the folder is a link, belongs to another user, is open to others, or
            cannot be created.
    """
    make_folder(folder)
    try:
        found = folder.lstat()
    except OSError as error:
        raise PlaceUnsafeError(f"{folder} cannot be seen: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise PlaceUnsafeError(f"{folder} is not a folder (or a link to one): remove it")
    if found.st_uid != os.getuid():
        raise PlaceUnsafeError(
            f"{folder} belongs to user {found.st_uid}, not to you: {_ELSEWHERE}, or run sudo chown"
            f" -R {os.getuid()} {folder}"
        )
    if found.st_mode & 0o077:
        raise PlaceUnsafeError(f"{folder} is open to other users: run chmod 700 {folder}")


class PlaceLock:
    """A file that one daemon has locked, with its pid inside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def take(self) -> None:
        """Create the file if it is missing, and lock it.

        If the file is removed while it is locked, another call of `take` creates and locks a new
        one, and releases the old lock.

        Raises:
            AlreadyServedError: another daemon holds the lock; its pid is in the text.
            PlaceUnsafeError: the lock is a link, or cannot be created.
            LockUnsupportedError: the file system has no locks.
        """
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            advice = f"see who owns {self.path.parent}, and whether its disk has room"
            if os.path.lexists(self.path):
                advice = "remove it"
            text = f"{self.path} cannot be locked: {error.strerror}: {advice}"
            raise PlaceUnsafeError(text) from None
        try:
            _lock(fd, self.path)
        except BaseException:
            os.close(fd)
            raise
        # The pid is only informative: on a full disk the lock still works.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        self.release()
        self._fd = fd

    def is_in_place(self) -> bool:
        """Tell whether the locked file is still the one at its path."""
        return self._fd >= 0 and _is_same(self._fd, self.path)

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _lock(fd: int, path: Path) -> None:
    # Tried several times: `capd stop` and `capd doctor` test a lock by taking it for a moment.
    for tries_left in reversed(range(_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if tries_left:
                time.sleep(_BETWEEN_TRIES)
                continue
            pid = os.read(fd, 32).decode(errors="replace").partition("\n")[0] or "unknown"
            raise AlreadyServedError(
                f"a daemon (pid {pid}) already serves {path.parent}; stop it with: "
                f"capd stop (or kill {pid})"
            ) from None
        except OSError as error:
            raise LockUnsupportedError(f"{path} cannot be locked: {error.strerror}") from None
        return


def _is_same(fd: int, path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    held = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)


@contextlib.contextmanager
def sole_daemon(lock_file: Path) -> Iterator[PlaceLock]:
    """Hold the lock of the only daemon while the block runs; raises as `PlaceLock.take`."""
    lock = PlaceLock(lock_file)
    lock.take()
    try:
        yield lock
    finally:
        lock.release()


class PublicListener(Listener[trio.SocketStream]):
    """The public socket. If somebody removes it, it is bound again at the same path."""

    def __init__(self, path: Path, inner: trio.SocketListener, ours: int, *, is_kept: bool) -> None:
        """Wrap `inner`, which listens at `path`.

        `ours` is the inode at `path`. With `is_kept`, a removed socket is bound again.
        """
        self.path = path
        self._inner = inner
        self._ours = ours
        self._is_kept = is_kept
        self._waiting: trio.CancelScope | None = None

    @property
    def socket(self) -> trio.socket.SocketType:
        """The listening socket."""
        return self._inner.socket

    async def accept(self) -> trio.SocketStream:
        """Return the next connection, on this socket or on the one that replaced it."""
        while True:
            with trio.CancelScope() as self._waiting:
                return await self._inner.accept()

    async def aclose(self) -> None:
        """Close the socket."""
        await self._inner.aclose()

    def is_in_place(self) -> bool:
        """Tell whether clients find this socket at its path."""
        return not self._is_kept or _inode(self.path) == self._ours

    def bind_again(self) -> None:
        """Bind the socket again, removing what is at its path unless that is a folder.

        Raises:
            OSError: the socket cannot be created.
        """
        before = self._inner
        self.path.unlink(missing_ok=True)
        sock, self._ours = _bound(self.path)
        self._inner = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        if self._waiting is not None:
            self._waiting.cancel()
        before.socket.close()

    def remove(self) -> None:
        """Remove the socket, unless another daemon's socket has replaced it."""
        with contextlib.suppress(OSError):
            if self._is_kept and _inode(self.path) == self._ours:
                self.path.unlink()


def _inode(path: Path) -> int:
    """Return the inode of the socket at `path`; 0 if there is none."""
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


@contextlib.contextmanager
def private_socket(path: Path, backlog: int) -> Iterator[trio.SocketListener]:
    """Listen at `path` in a private folder while the block runs, replacing what is at `path`.

    `backlog` is that of listen(2).

    Raises:
        PlaceUnsafeError: the path is too long for a socket.
        OSError: it cannot be bound.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise PlaceUnsafeError(
            f"{path} is too long for a socket: take a shorter name, or set CAPD_HOME to a shorter "
            "path"
        )
    path.unlink(missing_ok=True)
    sock, ours = _bound(path, backlog)
    try:
        yield trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    finally:
        sock.close()
        with contextlib.suppress(OSError):
            if _inode(path) == ours:
                path.unlink()


def _bound(path: Path, backlog: int = BACKLOG) -> tuple[socket.socket, int]:
    """Return a listening socket at `path`, and its inode."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Under this umask the socket is never open to others, not even between bind and chmod.
    before = os.umask(0o177)
    try:
        sock.bind(str(path))
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock, _inode(path)


class ServedPlace:
    """The folders, locks and socket by which others find a daemon.

    This object restores them when somebody removes them.

    Removing the socket's folder also removes its lock, so the next editor would start a second
    daemon there. The lock of the state folder prevents that, and this object makes the first daemon
    reachable again.
    """

    def __init__(
        self, folders: Sequence[Path], locks: Sequence[PlaceLock], listener: PublicListener
    ) -> None:
        self._folders = folders
        self._locks = locks
        self._listener = listener

    def is_whole(self) -> bool:
        """Tell, by looking at the disk, whether the socket and all locks are still there."""
        return self._listener.is_in_place() and all(lock.is_in_place() for lock in self._locks)

    def restore(self) -> None:
        """Restore the folders, locks and socket that are gone.

        Raises:
            AlreadyServedError: another daemon has taken the place. CapdError, OSError: they cannot
                be restored.
        """
        for folder in self._folders:
            make_private(folder)
        for lock in self._locks:
            if not lock.is_in_place():
                make_folders(lock.path.parent)
                lock.take()
        if not self._listener.is_in_place():
            self._listener.bind_again()


@contextlib.contextmanager
def listening(path: Path, environment: MutableMapping[str, str]) -> Iterator[PublicListener]:
    """Listen on systemd's socket if `environment` names one, otherwise on a new one at `path`.

    Use this only within `sole_daemon`: a socket at `path` is then stale, and is removed.

    Raises:
        PlaceUnsafeError: the path is too long, something else than a socket is at `path`, or
            systemd passed an unusable socket.
    """
    given = _from_systemd(environment)
    if given is not None:
        inner = trio.SocketListener(trio.socket.from_stdlib_socket(given))
        # systemd does not bind a removed path again, and leaves the path when this daemon ends.
        is_here = given.family == socket.AF_UNIX and given.getsockname() == str(path)
        listener = PublicListener(path, inner, _inode(path), is_kept=is_here)
        of_systemd = _inode(path)
        try:
            yield listener
        finally:
            if _inode(path) != of_systemd:
                listener.remove()
        return
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise PlaceUnsafeError(
            f"{path} is too long for a socket: set CAPD_SOCKET to a path under 100 bytes"
        )
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise PlaceUnsafeError(f"{path} is not a socket: remove it")
        path.unlink()
    try:
        sock, ours = _bound(path)
    except OSError as error:
        raise PlaceUnsafeError(f"{path} cannot be bound: {error.strerror}") from None
    inner = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    listener = PublicListener(path, inner, ours, is_kept=True)
    try:
        yield listener
    finally:
        listener.remove()


def _from_systemd(environment: MutableMapping[str, str]) -> socket.socket | None:
    """Return the first socket that systemd passed, or None, and remove systemd's variables.

    Raises:
        PlaceUnsafeError: the first socket is not a listening stream socket of the file system.
    """
    pid = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit() or int(count) < 1:
        return None
    os.set_inheritable(_FIRST_FD, False)
    with contextlib.suppress(OSError):
        given = socket.socket(fileno=_FIRST_FD)
        is_listening = given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if given.family == socket.AF_UNIX and given.type == socket.SOCK_STREAM and is_listening:
            return given
        given.detach()
    raise PlaceUnsafeError(
        "systemd passed something else than a listening socket of the file system: write"
        " ListenStream=, with a path, in capd.socket, or run capd daemon install"
    )
