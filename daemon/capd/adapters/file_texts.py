"""Names and texts of other people's files, in forms that can be sent and parsed."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from capd.adapters.regular_files import opened_regular
from capd.core.taps.toml_folder import LARGEST_BYTES as LARGEST_FILE_BYTES

PathText = Annotated[str, msgspec.Meta(min_length=1, pattern="^[^\x00]+$")]
"""A path as a person writes it. A null byte would raise ValueError in every system call."""


def expanded(path: str) -> Path:
    """Return a path with a `~` at its start expanded, if that names a user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def file_name(path: Path) -> str:
    """Return a path as valid text, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "replace")


def file_text(file: Path) -> str:
    """Return a file's text; a link to a sibling reads as the sibling's name.

    Of a file that is too large, one byte more than `LARGEST_FILE_BYTES` is returned.
    """
    if file.is_symlink():
        return file_name(Path(file.readlink().name))
    # What was a file a moment ago may be a link or a pipe by now.
    with opened_regular(file, os.O_NOFOLLOW) as (descriptor, _):
        data = os.read(descriptor, LARGEST_FILE_BYTES + 1)
    # What is not UTF-8 fails in the parser, with a line number.
    return data.decode("utf-8", "replace")
