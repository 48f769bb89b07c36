"""Reads paths and texts of other people's files, and makes them valid text."""

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
    """Return a path as text that is valid Unicode, whatever its bytes are."""
    return os.fsencode(path).decode("utf-8", "replace")


def file_text(file: Path) -> str:
    """Return a file's text; for a symbolic link, the name of its target.

    At most `LARGEST_FILE_BYTES` + 1 bytes are read, so that a caller notices a larger file.
    """
    if file.is_symlink():
        return file_name(Path(file.readlink().name))
    # O_NOFOLLOW and the check of the type, because the file may have been replaced meanwhile.
    with opened_regular(file, os.O_NOFOLLOW) as (descriptor, _):
        data = os.read(descriptor, LARGEST_FILE_BYTES + 1)
    # Invalid UTF-8 is replaced; the parser then reports it with a line number.
    return data.decode("utf-8", "replace")
