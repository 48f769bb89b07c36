"""The token of the HTTP front. It is generated once, and only the user can read its file."""

import os
import secrets
import stat
from pathlib import Path

from capd.core.errors import CapdError

_BYTES = 32
_LONGEST_FILE_BYTES = 4096


class TokenUnsafeError(CapdError):
    """The token's file cannot be used safely."""


def load_token(file: Path) -> str:
    """Return the token in `file`; create it if the file is missing or empty.

    Raises:
        TokenUnsafeError: the file is a link, belongs to another user, can be read by others,
            or holds no token.
    """
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TokenUnsafeError(f"{file} cannot be used: {error.strerror}") from None
    with os.fdopen(fd, "r+b") as opened:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise TokenUnsafeError(f"{file} is not a file of yours: remove it")
        if found.st_mode & 0o077:
            raise TokenUnsafeError(f"{file} is open to other users: remove it, it is made again")
        token = opened.read(_LONGEST_FILE_BYTES).decode("ascii", "replace").strip()
        if not token:
            token = secrets.token_urlsafe(_BYTES)
            opened.write(token.encode() + b"\n")
        elif len(token) < _BYTES or not token.isprintable() or " " in token:
            raise TokenUnsafeError(f"{file} holds no token: remove it, it is made again")
    return token
