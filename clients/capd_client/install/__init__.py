"""`capd install`: puts capd into a client's own files, and takes it out again."""


class InstallError(Exception):
    """A client's configuration cannot be changed so; the text says why, then what to do."""


class UnreadableError(Exception):
    """A text is not of its format, or cannot be edited; the text says why."""

    line: int
    """Where, counted from 1."""
