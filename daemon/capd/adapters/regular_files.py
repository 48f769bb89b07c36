"""Looks at files of others, and opens them without waiting for a pipe or reading a device."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capd.core.folders import is_below


def is_folder(path: Path) -> bool:
    """Tell whether `path` is a folder; False if it cannot be looked at.

    `Path.is_dir` raises an error then, for example below a folder that may not be entered, or on a
    network file system whose connection is lost.
    """
    return os.path.isdir(path)  # noqa: PTH112


def is_regular(path: Path) -> bool:
    """Tell whether `path` is a regular file or a link to one; False if it cannot be looked at."""
    return os.path.isfile(path)  # noqa: PTH113 - as in `is_folder`


_MOST_SETTINGS_BYTES = 1 << 20


@contextmanager
def opened_regular(path: Path | str, flags: int = 0) -> Iterator[tuple[int, os.stat_result]]:
    """Open the file at `path`, if it is a regular one; yield its descriptor and its status.

    `flags` are more flags of open(2).

    Raises:
        OSError: there is no file, it cannot be opened, or it is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        yield descriptor, status
    finally:
        os.close(descriptor)


@contextmanager
def opened_inside(root: Path, path: Path, whose: str = "its folder") -> Iterator[int]:
    """Open a regular file for reading, if its real path is inside the folder `root`.

    `whose` is what errors call the folder, such as `the project`.

    Raises:
        OSError: there is no file, it cannot be opened, it is not a regular file, or a link leads
            out of the folder.
    """
    real_root, real = os.path.realpath(root), os.path.realpath(path)
    if not is_below(real, real_root):
        raise OSError(errno.EPERM, f"it is outside of {whose}")
    with opened_regular(real, os.O_NOFOLLOW) as (descriptor, _):
        # Checked again on the open file: a folder above it may have been replaced meanwhile.
        link = Path(f"/proc/self/fd/{descriptor}")
        if link.is_symlink() and not is_below(os.fspath(link.readlink()), real_root):
            raise OSError(errno.EPERM, f"it is outside of {whose}")
        yield descriptor


def settings_text(path: Path) -> str:
    """Return the text of a file of the user's settings, in UTF-8.

    A byte order mark at its start, as editors on Windows write it, is left out.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger than 1 MiB.
        UnicodeDecodeError: it is not UTF-8.
    """
    with opened_regular(path) as (descriptor, _):
        return read_up_to(descriptor, _MOST_SETTINGS_BYTES).decode("utf-8-sig")


def read_up_to(descriptor: int, most_bytes: int) -> bytes:
    """Return the content of an open file, given its descriptor.

    Raises:
        OSError: it cannot be read, or has more than `most_bytes` bytes.
    """
    parts: list[bytes] = []
    left = most_bytes + 1
    while left and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    if not left:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes")
    return b"".join(parts)
