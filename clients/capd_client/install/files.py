"""Reads a file, and replaces it as a whole."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

PRIVATE = 0o600


def read(path: Path) -> bytes | None:
    """Return the content of a file; None if there is none."""
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
    """Replace a file atomically; it keeps its mode, or gets `mode`.

    Readers see the old bytes or the new ones. Follow links first: a link would itself be replaced.
    `check` is called with the content read back from the disk; if it raises, the file stays as it
    was.
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
