"""`capd install`: adds capd to a client's own files, and removes it again."""


class InstallError(Exception):
    """A client's configuration was not changed.

    The first line of the text says why; the lines after it say what to do.
    """


class UnreadableError(Exception):
    """A text is not valid in its format, or cannot be edited; the text says why."""

    line: int
    """The line, counted from 1."""
