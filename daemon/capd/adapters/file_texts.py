"""Names and texts of other people's files, in forms that can be sent and parsed."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from capd.adapters.regular_files import opened_regular
from capd.core.taps.toml_folder import LARGEST_BYTES as LARGEST_FILE_BYTES

PathText = Annotated[str, msgspec.Meta(min_length=1, pattern="^[^\x00]+$")]
"""A path as a person writes it; with a null byte, every call of the system's is a ValueError."""


def expanded(path: str) -> Path:
    """Return a path with the `~` at its start replaced, where that names somebody."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def file_name(path: Path) -> str:
    """Return a path as text that can be sent, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "replace")


def file_text(file: Path) -> str:
    """Return a file's text; a link reads as the name of the sibling that it points to.

    Of a file that is too large there is one byte more than `LARGEST_FILE_BYTES`.
    """
    if file.is_symlink():
        return file_name(Path(file.readlink().name))
    # What was a file a moment ago may be a link or a pipe by now.
    with opened_regular(file, os.O_NOFOLLOW) as (descriptor, _):
        data = os.read(descriptor, LARGEST_FILE_BYTES + 1)
    # What is not UTF-8 fails in the parser, with a line number.
    return data.decode("utf-8", "replace")
