"""Reads a file, and replaces it as a whole."""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PRIVATE = 0o600


def real_path(path: Path) -> Path:
    """Return `path` with its links resolved; a link that leads to itself is left as it is.

    `Path.resolve` raises RuntimeError for such a link before Python 3.13.
    """
    return Path(os.path.realpath(path))


def read(path: Path) -> bytes | None:
    """Return the content of a file; None if there is no file.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    try:
        # Non-blocking: opening a named pipe must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise _not_a_file(path, path.stat().st_mode) from None
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise _not_a_file(path, mode)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def kind_of(mode: int) -> str:
    """Return what a file of the mode `mode` is, for a person."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def _not_a_file(path: Path, mode: int) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return OSError(errno.EINVAL, f"it is {kind_of(mode)}, not a file", str(path))


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an `OSError` of the block name the file at `path`.

    A write that fails, for example on a full disk, names no file.
    """
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def replace(
    path: Path,
    data: bytes,
    mode: int | None = None,
    *,
    check: Callable[[bytes], object] | None = None,
) -> None:
    """Replace the content of the file at `path` by `data`.

    The change is atomic: a reader sees all of the old content or all of the new. The file gets
    `mode`; without one it keeps its mode, and a new file gets 0600. Resolve links in `path` first,
    because a link would itself be replaced. `check` is called with the new content as it reads back
    from the disk; if it raises, the file is unchanged.

    Raises:
        OSError: it cannot be written; the error names `path`.
    """
    with naming(path):
        _replace(path, data, mode, check)


def _replace(
    path: Path, data: bytes, mode: int | None, check: Callable[[bytes], object] | None
) -> None:
    if mode is None:
        mode = PRIVATE
        with contextlib.suppress(FileNotFoundError):
            mode = path.stat().st_mode & 0o7777
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if check is not None:
            check(Path(temporary).read_bytes())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
