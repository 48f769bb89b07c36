"""Names and texts of other people's files, in forms that can be sent and parsed."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

PathText = Annotated[str, msgspec.Meta(min_length=1, pattern="^[^\x00]+$")]
"""A path as a person writes it; with a null byte, every call of the system's is a ValueError."""

_LARGEST_FILE_BYTES = 1 << 20


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
    """Return a file's text; a link reads as the name of the sibling that it points to."""
    if file.is_symlink():
        return file_name(Path(file.readlink().name))
    with file.open("rb") as opened:
        data = opened.read(_LARGEST_FILE_BYTES)
    # What is not UTF-8 fails in the parser, with a line number.
    return data.decode("utf-8", "replace")
