"""Tells whether a path is in a folder, by their texts alone.

Both are absolute and normalised, apart from a slash at the end of the folder. A caller that has to
follow symbolic links resolves both first.
"""


def is_below(path: str, folder: str) -> bool:
    """Tell whether `path` is below `folder`; the folder itself is not."""
    return path.startswith(folder.rstrip("/") + "/")


def is_at_or_below(path: str, folder: str) -> bool:
    """Tell whether `path` is `folder` or below it."""
    return path == folder.rstrip("/") or is_below(path, folder)
