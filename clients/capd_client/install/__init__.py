"""`capd install`: puts capd into a client's own files, and takes it out again."""


class InstallError(Exception):
    """A client's configuration cannot be changed so; the text says why, then what to do."""
