"""Files for the user alone: atomic writes, and reads that refuse what others can write.

All functions block. Nothing of trio or of the log is imported here: the parser process, which
starts while a daemon starts, needs neither.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from capd_protos.codec import MalformedError
from capd_protos.places import make_folders


def read_private(path: Path, most_bytes: int) -> bytes:
    """Return the content of the file at `path`, if it is regular and only this user can write it.

    Raises:
        OSError: it cannot be read.
        MalformedError: it is not a regular file, has more than `most_bytes`, or another user can
            write it.
    """
    with opened_private(path, most_bytes) as file:
        return file.read(most_bytes)


@contextmanager
def opened_private(path: Path, most_bytes: int) -> Iterator[BinaryIO]:
    """Open the file at `path` for reading while the block runs.

    It has to be a regular file that only this user can write.

    Raises:
        OSError: it cannot be read.
        MalformedError: it is not a regular file, has more than `most_bytes`, or another user can
            write it.
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
    """Replace the content of the file at `path` by `data`, with mode 0600.

    The change is atomic: readers see the old content or the new one. `is_durable` says that the
    file must survive a loss of power. `has_other_writers` says that others may write it at the same
    time; each writer then has a temporary file of its own. `check` raises if the temporary file
    must not replace the current one.

    Raises:
        OSError: it cannot be written; the old file stays.
    """
    make_folders(path.parent)
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
    # A fixed name, so that the next save removes what a crash has left.
    temporary = path.with_name(f".{path.name}.partial")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(temporary, flags, 0o600), temporary
