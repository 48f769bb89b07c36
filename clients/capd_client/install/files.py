"""Reads a file, and replaces it as a whole."""

import contextlib
import os
import tempfile
from collections.abc import Callable
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
        OSError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


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
        OSError: the folder cannot be written.
    """
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
