"""Reading a file, and replacing it as a whole."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

PRIVATE = 0o600


def read(path: Path) -> bytes | None:
    """Return what is in the file; None where there is none."""
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
    """Put `data` into the file at once; it keeps its mode, or gets `mode`.

    A reader finds the old bytes or the new ones. A link would be replaced itself. `check` is
    called with what the disk gives back; if it raises, the file stays as it was.
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
