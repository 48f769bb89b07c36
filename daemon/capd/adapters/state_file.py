"""State files: bounded reads, atomic writes, and access for the user alone.

    read ──good──────────> its value
      ├──none────────────> None
      └──unusable────────> None; logged and, if `aside` is given, renamed, so that a person may
                           look at it and the next save starts a new file

All functions here block, except `StateFile.load` and `StateFile.save`, which are for the event
loop.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

import structlog
import trio

from capd.adapters.regular_files import opened_regular, read_up_to
from capd_protos.codec import MalformedError

T = TypeVar("T")

log = structlog.get_logger()


class Codec(Protocol[T]):
    """Encodes and decodes the value of a file."""

    def decode(self, data: bytes, /) -> T:
        """Return the decoded value; raise MalformedError."""
        ...

    def encode(self, message: T, /) -> bytes:
        """Return the encoded value."""
        ...


def read_private(path: Path, most_bytes: int) -> bytes:
    """Return the content of a regular file that only its owner can write.

    Raises:
        OSError: it cannot be read.
        MalformedError: it is no file, or too large, or somebody else can write it.
    """
    with opened_private(path, most_bytes) as file:
        return file.read(most_bytes)


@contextmanager
def opened_private(path: Path, most_bytes: int) -> Iterator[BinaryIO]:
    """Open a regular file that only its owner can write.

    Raises:
        OSError: it cannot be read.
        MalformedError: it is no file, or too large, or somebody else can write it.
    """
    # Non-blocking: opening a FIFO must not wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise MalformedError("it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise MalformedError("somebody else can write it")
        if status.st_size > most_bytes:
            raise MalformedError("it is too large")
        yield file


def write_whole(
    path: Path,
    data: bytes | Iterable[bytes],
    *,
    is_durable: bool = False,
    has_other_writers: bool = False,
    check: Callable[[Path], object] | None = None,
) -> None:
    """Replace a file atomically, with mode 0600: readers see the old content or the new one.

    `is_durable` says that the file must survive a loss of power. `has_other_writers` says that
    others may write it at the same time; each writer then has a temporary file of its own. `check`
    raises if the temporary file must not replace the current one.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = _temporary(path, has_other_writers=has_other_writers)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            if is_durable:
                os.fsync(descriptor)
        if check is not None:
            check(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _temporary(path: Path, *, has_other_writers: bool) -> tuple[int, Path]:
    if has_other_writers:
        # mkstemp makes it 0600.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        return descriptor, Path(name)
    # One fixed name: what a crash leaves behind, the next save removes.
    temporary = path.with_name(f".{path.name}.partial")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(temporary, flags, 0o600), temporary


class Versioned(Protocol):
    """A document that contains the version of its format."""

    @property
    def version(self) -> int:
        """The version."""
        ...


def of_version(known: int) -> Callable[[Versioned], str]:
    """Return a `refuse` function that accepts only documents of version `known`."""

    def refuse(document: Versioned) -> str:
        is_known = document.version == known
        return "" if is_known else f"version {document.version}, this daemon knows {known}"

    return refuse


class StateFile(Generic[T]):
    """One file that contains one value of a known type."""

    def __init__(
        self,
        path: Path,
        codec: Codec[T],
        *,
        most_bytes: int,
        refuse: Callable[[T], str] = lambda _: "",
        aside: Path | None = None,
        is_private: bool = False,
        is_durable: bool = False,
    ) -> None:
        """`refuse` returns why a decoded value cannot be used; empty if it can.

        An unusable file is renamed to `aside`; without that, it stays until the next save, which is
        right for a cache. With `is_private`, a file that somebody else can write is unusable.
        """
        self.path = path
        self._codec = codec
        self._most_bytes = most_bytes
        self._refuse = refuse
        self._aside = aside
        self._is_private = is_private
        self._is_durable = is_durable
        self.problem = ""
        """Why the file was not used, in words for a person; empty if it was."""
        # One at a time: of two writes the later one must win.
        self._limiter = trio.CapacityLimiter(1)

    async def load(self) -> T | None:
        """Return the saved value; None if there is none, or it is unusable."""
        return await trio.to_thread.run_sync(self.read, limiter=self._limiter)

    async def save(self, value: T) -> bool:
        """Save `value`; return whether that worked. A failure is logged."""
        return await trio.to_thread.run_sync(self._save, value, limiter=self._limiter)

    def read(self) -> T | None:
        """Return the saved value; None if there is none, or it is unusable."""
        try:
            return self.decoded()
        except FileNotFoundError:
            return None
        except (OSError, MalformedError) as error:
            self._set_aside(getattr(error, "strerror", None) or str(error))
            return None

    def decoded(self) -> T:
        """Return the saved value without renaming an unusable file.

        Raises:
            OSError: there is none, or it cannot be read.
            MalformedError: it is not what was written.
        """
        if self._is_private:
            data = read_private(self.path, self._most_bytes)
        else:
            with opened_regular(self.path, os.O_NOFOLLOW) as (descriptor, _):
                data = read_up_to(descriptor, self._most_bytes)
        value = self._codec.decode(data)
        if reason := self._refuse(value):
            raise MalformedError(reason)
        return value

    def write(self, value: T) -> None:
        """Save `value`.

        Raises:
            OSError: it cannot be written, or is too long to be read again; what was there stays.
        """
        data = self._codec.encode(value)
        if len(data) > self._most_bytes:
            raise OSError(errno.EFBIG, f"its {len(data)} bytes are more than {self._most_bytes}")
        write_whole(self.path, data, is_durable=self._is_durable)

    def _save(self, value: T) -> bool:
        try:
            self.write(value)
        except OSError as error:
            log.warning("state_not_saved", file=self.path.name, reason=str(error))
            return False
        return True

    def _set_aside(self, reason: str) -> None:
        if self._aside is None:
            log.warning("state_unreadable", file=self.path.name, reason=reason)
            return
        with suppress(OSError):
            self.path.replace(self._aside)
        self.problem = (
            f"{self.path} cannot be used: {reason}; it is set aside as {self._aside.name}, and what"
            " it had is collected anew"
        )
        log.warning("state_set_aside", file=self._aside.name, reason=reason)
